/* SPDX-License-Identifier: MIT */
#include "world.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include "serve.h"
#include "tmpdir.h"

struct world *world;
static pid_t running; /* a server that world_finish() has not seen the end of */

/* ---- folder that stands for / ------------------------------------------------------------ */

static const char *path_of(const char *path)
{
	static char buf[256];

	snprintf(buf, sizeof(buf), "%s%s", world->root, path);
	return buf;
}

int world_put(const char *path, const char *text)
{
	int fd = open(path_of(path), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = write(fd, text, strlen(text));
	close(fd);
	return n == (ssize_t)strlen(text) ? 0 : -EIO;
}

int world_remove(const char *path)
{
	return remove(path_of(path)) < 0 ? -errno : 0;
}

bool world_has(const char *path)
{
	return access(path_of(path), F_OK) == 0;
}

int world_records(void)
{
	DIR *d = opendir(path_of("/run/ublkctl"));
	struct dirent *e;
	int n = 0;

	if (!d)
		return -1;
	while ((e = readdir(d)))
		n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	closedir(d);
	return n;
}

static int make_disk(void)
{
	return mkdir(path_of("/sys"), 0755) || mkdir(path_of("/sys/block"), 0755) ||
	       mkdir(path_of("/sys/block/ublkb0"), 0755) || world_put("/dev/ublkb0", "") ||
	       world_put("/sys/block/ublkb0/dev", "259:0\n") ||
	       world_put("/sys/block/ublkb0/size", "2097152\n");
}

static int make_root(void)
{
	tmpdir_make(world->root);
	/* pids and their start times are the real ones */
	return mkdir(path_of("/dev"), 0755) || mkdir(path_of("/run"), 0755) ||
	       symlink("/proc", path_of("/proc")) || mkfifo(path_of("/done"), 0600) ||
	       world_put("/dev/ublkc0", "") || make_disk();
}

int world_setup(void **state)
{
	(void)state;
	/* orphans of a server come here, so that none is missed */
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (world == MAP_FAILED || make_root())
		return -1;
	setenv("UBLKCTL_SYSROOT", world->root, 1);
	return 0;
}

int world_teardown(void **state)
{
	(void)state;
	/* after a test that failed half-way */
	if (running > 0) {
		kill(running, SIGKILL);
		while (waitpid(-1, NULL, 0) > 0)
			;
	}
	running = 0;
	unsetenv("UBLKCTL_SYSROOT");
	tmpdir_remove(world->root);
	munmap(world, sizeof(*world));
	world = NULL;
	return 0;
}

void world_again(void)
{
	world_teardown(NULL);
	assert_int_equal(world_setup(NULL), 0);
}

struct dev_cfg world_cfg(void)
{
	return (struct dev_cfg){
		.id = CFG_ID_ANY,
		.target = "null",
		.queues = 2,
		.depth = 64,
		.threads = 2,
		.size = 1 << 30,
		.block_size = 512,
		.phys_block_size = 4096,
		.max_io = 512 * 1024,
		.timeout_s = 0, /* whatever is not there at once is not there */
	};
}

/* ---- the server's process ---------------------------------------------------------------- */

#define FDS_MAX 256

static void list_fds(bool *ret)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;

	memset(ret, 0, FDS_MAX * sizeof(*ret));
	while (d && (e = readdir(d))) {
		int fd = atoi(e->d_name);

		if (e->d_name[0] != '.' && fd < FDS_MAX && fd != dirfd(d))
			ret[fd] = true;
	}
	if (d)
		closedir(d);
}

/* Descriptors that are new, and those that are missing but for the report pipe. */
static void note_fds(const bool *before, const bool *after, int report)
{
	for (int fd = 0; fd < FDS_MAX; fd++) {
		char *to = world->fds_left + strlen(world->fds_left);
		size_t room = sizeof(world->fds_left) - strlen(world->fds_left);
		char link[64] = "?", path[32];
		ssize_t n;

		if (before[fd] == after[fd] || fd == report)
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, link, sizeof(link) - 1);
		link[n > 0 ? n : 0] = '\0';
		snprintf(to, room, "%s%d (%s) ", after[fd] ? "+" : "-", fd, link);
	}
}

/* serve() and a look at what it left in its process. */
static void serve_in_child(const struct dev_cfg *cfg, int report)
{
	bool before[FDS_MAX], after[FDS_MAX];

	signal(SIGXFSZ, SIG_IGN);
	world->server = getpid();
	list_fds(before);
	world->result = world->plan.how == SERVE_ADD ?
				serve(cfg, report) :
				serve_again(world->plan.known, world->plan.how, report);
	closelog();
	list_fds(after);
	note_fds(before, after, report);
	world->child_left = waitpid(-1, NULL, WNOHANG) >= 0;
	world->finished = true;
}

static void make_pipe(int fds[2])
{
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
}

void world_start(const struct dev_cfg *cfg, bool foreground, struct world_run *ret)
{
	int report[2] = { -1, -1 }, out[2], err[2];

	if (!foreground)
		make_pipe(report);
	make_pipe(out);
	make_pipe(err);
	fflush(NULL); /* the child has stdio's buffers too */
	ret->pid = fork();
	assert_true(ret->pid >= 0);
	if (!ret->pid) {
		/* a test that is ended from outside takes its server along */
		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		if (!foreground)
			close(report[0]);
		close(out[0]);
		close(err[0]);
		dup2(out[1], STDOUT_FILENO);
		dup2(err[1], STDERR_FILENO);
		serve_in_child(cfg, report[1]);
		_exit(0);
	}
	running = ret->pid;
	if (!foreground)
		close(report[1]);
	close(out[1]);
	close(err[1]);
	ret->report = report[0];
	ret->out = out[0];
	ret->err = err[0];
}

bool world_message(const struct world_run *run, struct daemon_msg *ret)
{
	ssize_t n;

	/* that a device was made is told on the way */
	do {
		n = read(run->report, ret, sizeof(*ret));
		assert_true(n == 0 || n == (ssize_t)sizeof(*ret));
	} while (n && ret->kind == DAEMON_ADDED);
	return n != 0;
}

const char *world_read(int fd, const char *part)
{
	static char text[8192];
	size_t have = 0;
	ssize_t n;

	do {
		n = read(fd, text + have, sizeof(text) - 1 - have);
		have += n > 0 ? (size_t)n : 0;
		text[have] = '\0';
	} while (n > 0 && !(part && strstr(text, part)));
	return text;
}

const char *world_errors(int fd)
{
	static const char here[] = "ublkctl: memory is not locked ";
	const char *text = world_read(fd, NULL), *end = strchr(text, '\n');

	return end && !strncmp(text, here, strlen(here)) ? end + 1 : text;
}

void world_end_device(void)
{
	world->ended = true;
	world_quiesce();
}

void world_quiesce(void)
{
	int fd = open(path_of("/done"), O_RDWR | O_NONBLOCK | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "x", 1), 1);
	/* what is in a fifo is lost with its last opener: the server has it open until it ends */
	close(fd);
}

void world_finish(struct world_run *run)
{
	int status;

	assert_int_equal(waitpid(run->pid, &status, 0), run->pid);
	running = 0;
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0); /* 1 from a sanitizer or valgrind */
	while (waitpid(-1, &status, 0) > 0)
		assert_true(WIFEXITED(status));
	assert_true(world->finished);
	close(run->out);
	close(run->err);
	if (run->report >= 0)
		close(run->report);
}
