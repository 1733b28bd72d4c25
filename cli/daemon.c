/* SPDX-License-Identifier: MIT */
#include "daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/fs.h"

/* Leaves only keep (above 2, or -1 for none) and /dev/null on 0-2. */
static void shed_descriptors(int keep)
{
	int null;

	for (int fd = 0; fd <= 2; fd++)
		close(fd);
	null = open("/dev/null", O_RDWR); /* the lowest free number: 0 */
	if (null != 0 || dup2(0, 1) < 0 || dup2(0, 2) < 0)
		_exit(1);
	if (keep > 3)
		close_range(3, (unsigned int)keep - 1, 0);
	close_range(keep < 3 ? 3 : (unsigned int)keep + 1, ~0U, 0);
}

/* A pipe whose ends are above the standard descriptors, even where the caller closed those. */
static int make_pipe(int fds[2])
{
	int low[2];

	if (pipe2(low, O_CLOEXEC) < 0)
		return -errno;
	for (int i = 0; i < 2; i++) {
		fds[i] = fcntl(low[i], F_DUPFD_CLOEXEC, 3);
		close(low[i]);
	}
	return fds[0] < 0 || fds[1] < 0 ? -EMFILE : 0;
}

/* As after exec by init: the caller's mask and ignored signals are not the server's. */
static void reset_signals(void)
{
	sigset_t none;

	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static void become_daemon(int report_fd)
{
	shed_descriptors(report_fd);
	reset_signals();
	umask(022);
	if (chdir("/") < 0)
		_exit(1); /* there is always a / */
}

int daemon_report(int report_fd, const struct daemon_msg *m)
{
	ssize_t n;

	do
		n = write(report_fd, m, sizeof(*m)); /* below PIPE_BUF: all or nothing */
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof(*m) ? 0 : -EPIPE;
}

static void daemon_child(int (*fn)(void *arg, int report_fd), void *arg, int fd)
{
	struct daemon_msg m = { .kind = DAEMON_PID };
	pid_t pid;

	setsid();
	/* once more: a session leader could get a terminal */
	pid = fork();
	if (pid < 0) {
		m.kind = DAEMON_FAILED;
		m.err = errno;
		snprintf(m.text, sizeof(m.text), "cannot fork: %s", strerror(m.err));
		daemon_report(fd, &m);
	}
	if (pid)
		_exit(pid < 0);
	become_daemon(fd);
	m.pid = getpid();
	daemon_report(fd, &m);
	_exit(fn(arg, fd));
}

/* One whole message by deadline; -EPIPE when the other side is gone. */
static int read_msg(int fd, int64_t deadline, void *buf, size_t size)
{
	size_t have = 0;

	while (have < size) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		int64_t left = deadline - fs_now_ms();
		ssize_t n;

		/* an answer that is there counts, whenever somebody comes to look */
		if (poll(&p, 1, left > 0 ? (int)left : 0) <= 0) {
			if (left <= 0)
				return -ETIME;
			continue;
		}
		n = read(fd, (char *)buf + have, size - have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -EPIPE;
		have += (size_t)n;
	}
	return 0;
}

/* Reads until the one message that ends the wait; *seen gets what the others told. */
static int read_verdict(int fd, int64_t deadline, struct daemon_msg *m, struct daemon_msg *seen)
{
	int r;

	for (;;) {
		r = read_msg(fd, deadline, m, sizeof(*m));
		if (!r && m->kind == DAEMON_PID) {
			seen->pid = m->pid;
		} else if (!r && m->kind == DAEMON_ADDED) {
			seen->id = m->id;
			seen->cookie = m->cookie;
		} else {
			return r;
		}
	}
}

static int wait_ready(int fd, int timeout_ms, struct daemon_msg *m, struct fail *f)
{
	int64_t deadline = fs_now_ms() + timeout_ms;
	struct daemon_msg seen = { .id = -1 };
	int r = read_verdict(fd, deadline, m, &seen);
	char rest;

	if (r < 0) {
		*m = seen;
		if (r == -ETIME && seen.pid)
			kill(seen.pid, SIGKILL);
		return r == -ETIME ?
			       fail_set(f, ETIME,
					"the server did not become ready in time and was killed") :
			       fail_set(f, EIO, "the server died before it was ready");
	}
	m->pid = seen.pid;
	m->cookie = seen.cookie;
	if (m->kind == DAEMON_READY)
		return 0;
	/* the end of the pipe is the end of the process: nothing of it is left then */
	read_msg(fd, deadline, &rest, 1);
	m->text[sizeof(m->text) - 1] = '\0';
	m->id = -1;
	return fail_set(f, m->err ? m->err : EIO, "%s", m->text);
}

int daemon_start(int (*fn)(void *arg, int report_fd), void *arg, int timeout_ms,
		 struct daemon_msg *ret, struct fail *f)
{
	int fds[2], status, r;
	pid_t pid;

	ret->id = -1;
	r = make_pipe(fds);
	if (r < 0)
		return fail_errno(f, -r, "cannot make a pipe");
	pid = fork();
	if (pid == 0) {
		close(fds[0]);
		daemon_child(fn, arg, fds[1]);
	}
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return fail_errno(f, errno, "cannot fork");
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	r = wait_ready(fds[0], timeout_ms, ret, f);
	close(fds[0]);
	return r;
}

static void call_child(int (*fn)(void *arg, struct fail *f), void *arg, int fd)
{
	struct fail f = { 0 };

	setsid(); /* Ctrl-C must not stop half-way what the driver is doing */
	become_daemon(fd);
	if (fn(arg, &f) < 0 && !f.err)
		f.err = EIO;
	_exit(write(fd, &f, sizeof(f)) < 0);
}

int daemon_call_start(struct daemon_call *c, int (*fn)(void *arg, struct fail *f), void *arg,
		      int timeout_ms, struct fail *f)
{
	int fds[2], r;

	c->deadline = fs_now_ms() + timeout_ms;
	r = make_pipe(fds);
	if (r < 0)
		return fail_errno(f, -r, "cannot make a pipe");
	c->pid = fork();
	if (c->pid == 0)
		call_child(fn, arg, fds[1]);
	close(fds[1]);
	c->fd = fds[0];
	if (c->pid < 0) {
		close(c->fd);
		return fail_errno(f, errno, "cannot fork");
	}
	return 0;
}

int daemon_call_wait(struct daemon_call *c, struct fail *f)
{
	int r = read_msg(c->fd, c->deadline, f, sizeof(*f));

	close(c->fd);
	if (r == -ETIME)
		return r;
	waitpid(c->pid, NULL, 0);
	if (r < 0)
		return fail_set(f, EIO, "the helper process died");
	return -f->err;
}

bool daemon_call_done(const struct daemon_call *c)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };

	return fs_now_ms() >= c->deadline || poll(&p, 1, 0) > 0;
}

void daemon_call_leave(struct daemon_call *c)
{
	close(c->fd);
}

pid_t daemon_companion(void (*fn)(int fd, void *arg), void *arg, int *ret_fd)
{
	int fds[2], r;
	pid_t pid;

	r = make_pipe(fds);
	if (r < 0)
		return r;
	pid = fork();
	if (pid == 0) {
		/* not of the server's group: a signal to the group must not end it first */
		setsid();
		shed_descriptors(fds[0]);
		fn(fds[0], arg);
		_exit(0);
	}
	close(fds[0]);
	if (pid < 0) {
		close(fds[1]);
		return -errno;
	}
	*ret_fd = fds[1];
	return pid;
}

void daemon_notify_ready(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	_cleanup_fd_ int fd = -1;
	socklen_t len;

	if (!path || (*path != '/' && *path != '@') || strlen(path) >= sizeof(sa.sun_path))
		return;
	memcpy(sa.sun_path, path, strlen(path));
	len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
	if (*path == '@')
		sa.sun_path[0] = '\0'; /* abstract */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || sendto(fd, "READY=1", 7, MSG_NOSIGNAL, (struct sockaddr *)&sa, len) < 0)
		msg_warn("cannot tell the service manager that the device is ready: %s",
			 strerror(errno));
}

void daemon_hold_signals(sigset_t *ret_before)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, ret_before);
}
