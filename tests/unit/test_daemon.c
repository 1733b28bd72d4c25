/* SPDX-License-Identifier: MIT */
/*
 * Processes: what a server starts with, what its caller is told, however it ends.
 */
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon.h"
#include "util/fs.h"

#define LONG_MS 100000 /* nobody waits that long */

/* What a child saw, in shared memory. */
static struct shared {
	pid_t pid, sid;
	char cwd[64], fd[3][64];
	unsigned int more_fds; /* above 2, but for the pipe */
	mode_t mask;
	bool blocked, ignored; /* any signal but SIGPIPE */
	bool ran;
} * sh;

static int setup(void **state)
{
	(void)state;
	/* servers whose first parent has ended come here */
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return sh == MAP_FAILED;
}

static int teardown(void **state)
{
	(void)state;
	while (waitpid(-1, NULL, 0) > 0)
		;
	munmap(sh, sizeof(*sh));
	return 0;
}

static void look_at_fds(int keep)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	char path[32];

	while (d && (e = readdir(d))) {
		int fd = atoi(e->d_name);

		/* valgrind keeps its own far above */
		if (e->d_name[0] != '.' && fd > 2 && fd < 1000 && fd != keep && fd != dirfd(d))
			sh->more_fds++;
	}
	if (d)
		closedir(d);
	for (int fd = 0; fd < 3; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, sh->fd[fd], sizeof(sh->fd[fd]) - 1) < 0)
			snprintf(sh->fd[fd], sizeof(sh->fd[fd]), "closed");
	}
}

static void look_at_signals(void)
{
	sigset_t set;

	sigprocmask(SIG_SETMASK, NULL, &set);
	for (int s = 1; s < 32; s++) {
		struct sigaction sa;

		sh->blocked |= sigismember(&set, s) == 1;
		if (s != SIGPIPE && s != SIGXFSZ && sigaction(s, NULL, &sa) == 0)
			sh->ignored |= sa.sa_handler == SIG_IGN;
	}
}

static void look_around(int keep)
{
	sh->pid = getpid();
	sh->sid = getsid(0);
	if (!getcwd(sh->cwd, sizeof(sh->cwd)))
		sh->cwd[0] = '\0';
	sh->mask = umask(0);
	look_at_fds(keep);
	look_at_signals();
	sh->ran = true;
}

/* ---- daemon_start ------------------------------------------------------------------------- */

static int ready_fn(void *arg, int fd)
{
	struct daemon_msg m = { .kind = DAEMON_READY, .id = *(int *)arg };

	look_around(fd);
	snprintf(m.text, sizeof(m.text), "a warning");
	daemon_report(fd, &m);
	return 0;
}

static void test_ready(void **state)
{
	struct daemon_msg m = { 0 };
	struct fail f = { 0 };
	int id = 42;

	(void)state;
	assert_int_equal(daemon_start(ready_fn, &id, LONG_MS, &m, &f), 0);
	assert_int_equal(m.kind, DAEMON_READY);
	assert_int_equal(m.id, 42);
	assert_string_equal(m.text, "a warning");
	assert_true(sh->ran);
	assert_int_equal(m.pid, sh->pid);
	assert_int_not_equal(m.pid, getpid());
}

static void test_what_it_starts_with(void **state)
{
	struct daemon_msg m = { 0 };
	struct fail f = { 0 };
	sigset_t set, old;
	int id = 0, other = open("/", O_RDONLY); /* without CLOEXEC */

	(void)state;
	umask(077);
	signal(SIGHUP, SIG_IGN);
	sigfillset(&set);
	sigprocmask(SIG_BLOCK, &set, &old);
	assert_int_equal(daemon_start(ready_fn, &id, LONG_MS, &m, &f), 0);
	sigprocmask(SIG_SETMASK, &old, NULL);
	signal(SIGHUP, SIG_DFL);
	umask(022);
	close(other);
	for (int fd = 0; fd < 3; fd++)
		assert_string_equal(sh->fd[fd], "/dev/null");
	assert_int_equal(sh->more_fds, 0);
	assert_string_equal(sh->cwd, "/");
	assert_int_equal(sh->mask, 022);
	assert_false(sh->blocked);
	assert_false(sh->ignored);
	/* a session of its own, and no leader: no terminal can become its own */
	assert_int_not_equal(sh->sid, getsid(0));
	assert_int_not_equal(sh->sid, sh->pid);
}

/* A caller whose standard descriptors are closed: the pipe must not land on them. */
static void test_closed_descriptors(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	assert_true(pid >= 0);
	if (!pid) {
		struct daemon_msg m = { 0 };
		struct fail f = { 0 };
		int id = 7;

		for (int fd = 0; fd < 3; fd++)
			close(fd);
		_exit(daemon_start(ready_fn, &id, LONG_MS, &m, &f) || m.id != 7);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	for (int fd = 0; fd < 3; fd++)
		assert_string_equal(sh->fd[fd], "/dev/null");
	assert_int_equal(sh->more_fds, 0);
}

static int failed_fn(void *arg, int fd)
{
	struct daemon_msg m = { .kind = DAEMON_FAILED, .err = *(int *)arg };

	sh->pid = getpid();
	memset(m.text, 'x', sizeof(m.text)); /* no end: the reader makes one */
	daemon_report(fd, &m);
	return 1;
}

static void test_failed(void **state)
{
	struct daemon_msg m = { 0 };
	struct fail f = { 0 };
	int err = ENOSPC;
	siginfo_t si;

	(void)state;
	assert_int_equal(daemon_start(failed_fn, &err, LONG_MS, &m, &f), -ENOSPC);
	assert_int_equal(f.err, ENOSPC);
	assert_int_equal(strlen(f.text), FAIL_TEXT - 1);
	/* when the caller hears of it, the process is on its way out: it ends by itself */
	assert_int_equal(waitid(P_PID, (id_t)sh->pid, &si, WEXITED), 0);
	assert_int_equal(si.si_code, CLD_EXITED);
	assert_int_equal(si.si_status, 1);
	/* an error that has no number is still one */
	err = 0;
	assert_int_equal(daemon_start(failed_fn, &err, LONG_MS, &m, &f), -EIO);
}

static int silent_fn(void *arg, int fd)
{
	(void)fd;
	if (*(int *)arg)
		raise(*(int *)arg);
	return 0;
}

static int half_fn(void *arg, int fd)
{
	struct daemon_msg m = { .kind = DAEMON_READY };

	(void)arg;
	return write(fd, &m, sizeof(m) / 2) < 0;
}

static void test_died(void **state)
{
	static int signals[] = { 0, SIGKILL, SIGTERM };
	struct daemon_msg m;
	struct fail f;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(signals); i++) {
		f.err = 0;
		assert_int_equal(daemon_start(silent_fn, &signals[i], LONG_MS, &m, &f), -EIO);
		assert_int_equal(f.err, EIO);
		assert_string_equal(f.text, "the server died before it was ready");
	}
	assert_int_equal(daemon_start(half_fn, NULL, LONG_MS, &m, &f), -EIO);
}

/* Until its caller closes the pipe, which is after it was to be killed. */
static int stuck_fn(void *arg, int fd)
{
	struct pollfd p = { .fd = fd };

	(void)arg;
	while (poll(&p, 1, -1) < 0)
		;
	return 3;
}

static void test_too_slow(void **state)
{
	struct daemon_msg m;
	struct fail f = { 0 };
	siginfo_t si;

	(void)state;
	assert_int_equal(daemon_start(stuck_fn, NULL, 2000, &m, &f), -ETIME);
	assert_int_equal(f.err, ETIME);
	/* its caller has told that it failed: it must not get ready later */
	assert_int_equal(waitid(P_ALL, 0, &si, WEXITED), 0);
	assert_int_equal(si.si_code, CLD_KILLED);
	assert_int_equal(si.si_status, SIGKILL);
}

static void test_report(void **state)
{
	struct daemon_msg in = { .kind = DAEMON_READY, .id = 3 }, out = { 0 };
	int p[2];

	(void)state;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(daemon_report(p[1], &in), 0);
	assert_int_equal(read(p[0], &out, sizeof(out)), sizeof(out));
	assert_memory_equal(&in, &out, sizeof(in));
	close(p[0]);
	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(daemon_report(p[1], &in), -EPIPE);
	signal(SIGPIPE, SIG_DFL);
	close(p[1]);
	/* one write, whole or not at all */
	assert_true(sizeof(struct daemon_msg) <= PIPE_BUF);
}

/* ---- daemon_call -------------------------------------------------------------------------- */

static int call(int (*fn)(void *, struct fail *), void *arg, int timeout_ms, struct fail *f)
{
	struct daemon_call c;
	int r = daemon_call_start(&c, fn, arg, timeout_ms, f);

	return r < 0 ? r : daemon_call_wait(&c, f);
}

static int call_fn(void *arg, struct fail *f)
{
	look_around(-1);
	sh->more_fds--; /* the pipe, whose number it does not know */
	return *(int *)arg ? fail_set(f, *(int *)arg, "no luck with %d", *(int *)arg) : 0;
}

static int bare_fn(void *arg, struct fail *f)
{
	(void)f;
	return *(int *)arg;
}

static int dying_fn(void *arg, struct fail *f)
{
	(void)arg;
	(void)f;
	raise(SIGKILL);
	return 0;
}

static int waiting_fn(void *arg, struct fail *f)
{
	char c;

	(void)f;
	/* the caller's descriptors are gone: a path leads to it */
	return read(open(arg, O_RDONLY), &c, 1) != 1;
}

static void test_call(void **state)
{
	struct fail f = { .err = 5 };
	int arg = 0;

	(void)state;
	assert_int_equal(call(call_fn, &arg, LONG_MS, &f), 0);
	assert_int_equal(f.err, 0);
	assert_int_not_equal(sh->pid, getpid());
	assert_int_equal(sh->sid, sh->pid); /* Ctrl-C is not for it */
	for (int fd = 0; fd < 3; fd++)
		assert_string_equal(sh->fd[fd], "/dev/null");
	assert_int_equal(sh->more_fds, 0);
	assert_int_equal(waitpid(-1, NULL, 0), -1);
	arg = EBUSY;
	assert_int_equal(call(call_fn, &arg, LONG_MS, &f), -EBUSY);
	assert_int_equal(f.err, EBUSY);
	assert_string_equal(f.text, "no luck with 16");
	arg = -1;
	assert_int_equal(call(bare_fn, &arg, LONG_MS, &f), -EIO);
	assert_int_equal(call(dying_fn, NULL, LONG_MS, &f), -EIO);
	assert_int_equal(waitpid(-1, NULL, 0), -1); /* none is left */
}

/* Calls side by side: each one's result is its own, whatever the order. */
static void test_several_calls(void **state)
{
	int errs[3] = { EBUSY, ENODEV, EINVAL };
	struct daemon_call c[3];
	struct fail f = { 0 };

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(daemon_call_start(&c[i], call_fn, &errs[i], LONG_MS, &f), 0);
	for (int i = 2; i >= 0; i--) {
		assert_int_equal(daemon_call_wait(&c[i], &f), -errs[i]);
		assert_int_equal(f.err, errs[i]);
	}
	assert_int_equal(waitpid(-1, NULL, 0), -1);
}

/* The call does not come back in time: it goes on alone, and comes to its end. */
/* A caller that was busy elsewhere until the deadline was past finds the answer that came in time. */
static void test_call_late_look(void **state)
{
	struct fail f = { 0 };
	struct daemon_call c;
	int err = EBUSY;

	(void)state;
	assert_int_equal(daemon_call_start(&c, call_fn, &err, LONG_MS, &f), 0);
	assert_true(poll(&(struct pollfd){ .fd = c.fd, .events = POLLIN }, 1, LONG_MS) == 1);
	c.deadline = fs_now_ms() - 1;
	assert_int_equal(daemon_call_wait(&c, &f), -EBUSY);
}

static void test_call_too_slow(void **state)
{
	char path[] = "/tmp/ublkctl-unit-fifo.XXXXXX";
	struct fail f = { 0 };
	int fd, status;

	(void)state;
	fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(call(waiting_fn, path, 50, &f), -ETIME);
	assert_int_equal(waitpid(-1, &status, WNOHANG), 0);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(write(fd, "x", 1), 1);
	signal(SIGPIPE, SIG_IGN);
	assert_true(waitpid(-1, &status, 0) > 0);
	signal(SIGPIPE, SIG_DFL);
	/* its result interests nobody, and that is no reason to be killed */
	assert_true(WIFEXITED(status));
	close(fd);
	unlink(path);
}

/* ---- companion -------------------------------------------------------------------------- */

static void companion_fn(int fd, void *arg)
{
	char c;

	(void)arg;
	look_around(fd);
	sh->ran = read(fd, &c, 1) == 1;
}

static void test_companion(void **state)
{
	int fd = -1, other = open("/", O_RDONLY), status;
	pid_t pid;

	(void)state;
	for (int told = 0; told < 2; told++) {
		sh->ran = false;
		sh->more_fds = 0;
		pid = daemon_companion(companion_fn, NULL, &fd);
		assert_true(pid > 0 && fd > 2);
		assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
		if (told)
			assert_int_equal(write(fd, "x", 1), 1);
		close(fd); /* all that it needs to end */
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		assert_int_equal(sh->ran, told);
		assert_int_equal(sh->more_fds, 0);
		assert_int_equal(sh->sid, pid);
	}
	close(other);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_ready),
		TEST(test_what_it_starts_with),
		TEST(test_closed_descriptors),
		TEST(test_failed),
		TEST(test_died),
		TEST(test_too_slow),
		TEST(test_report),
		TEST(test_call),
		TEST(test_several_calls),
		TEST(test_call_late_look),
		TEST(test_call_too_slow),
		TEST(test_companion),
	};

	umask(022);
	alarm(200); /* ends a test that hangs */
	return cmocka_run_group_tests_name("daemon", tests, NULL, NULL);
}
