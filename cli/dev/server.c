/* SPDX-License-Identifier: MIT */
#include "dev/server.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/cpulist.h"
#include "util/fs.h"

#define STATUS_MAX 16384 /* a line of it grows with the CPUs of the machine */
#define COMM_MAX 15	 /* characters of a thread's name; the kernel cuts off the rest */

/*
 * PF_MEMALLOC_NOIO and PF_LOCAL_THROTTLE of the kernel, what PR_SET_IO_FLUSHER sets: there is no
 * prctl() that asks another task. Both have had these values since Linux 5.6, the first kernel
 * with that prctl().
 */
#define PF_IO_FLUSHER (0x00080000U | 0x00100000U)

/* Text behind "KEY:" and blanks in a status file; NULL without such a line. */
static const char *status_value(const char *text, const char *key)
{
	size_t len = strlen(key);

	for (const char *p = text; p; p = strchr(p, '\n')) {
		p += *p == '\n';
		if (!strncmp(p, key, len) && p[len] == ':')
			return p + len + 1 + strspn(p + len + 1, " \t");
	}
	return NULL;
}

static int64_t status_num(const char *text, const char *key, int64_t unit)
{
	const char *v = status_value(text, key);
	long long n;

	return v && sscanf(v, "%lld", &n) == 1 ? (int64_t)n * unit : -1;
}

static bool read_ns(const char *pid, char *buf, size_t size)
{
	char path[FS_PATH_MAX];
	ssize_t n = readlink(fs_path(path, "/proc/%s/ns/mnt", pid), buf, size - 1);

	buf[n < 0 ? 0 : n] = '\0';
	return n > 0;
}

/* 1 or 0; -1 when one of the two may not be looked at. */
static int has_own_ns(pid_t pid)
{
	char name[16], mine[64], first[64];

	snprintf(name, sizeof(name), "%d", (int)pid);
	if (!read_ns(name, mine, sizeof(mine)) || !read_ns("1", first, sizeof(first)))
		return -1;
	return strcmp(mine, first) != 0;
}

int srv_read(pid_t pid, struct srv_proc *ret)
{
	_cleanup_free_ char *text = malloc(STATUS_MAX);
	char path[FS_PATH_MAX], num[16];
	const char *state;

	if (!text)
		return -ENOMEM;
	if (pid <= 0 || fs_read_text(fs_path(path, "/proc/%d/status", (int)pid), text, STATUS_MAX) < 0)
		return -ESRCH;
	state = status_value(text, "State");
	*ret = (struct srv_proc){
		.pid = pid,
		.state = '?',
		.own_ns = has_own_ns(pid),
		/* a process that is ending has no memory, and no lines about it */
		.locked = status_num(text, "VmLck", 1024),
		.rss = status_num(text, "VmRSS", 1024),
		.threads = status_num(text, "Threads", 1),
	};
	if (state)
		ret->state = *state;
	fs_path(path, "/proc/%d/oom_score_adj", (int)pid);
	ret->has_oom_adj =
		fs_read_text(path, num, sizeof(num)) == 0 && sscanf(num, "%d", &ret->oom_adj) == 1;
	return 0;
}

/* T of "ublkN.T"; -1 for another name, -2 for one that may have been longer. */
static int io_thread_index(const char *comm, size_t len, int id)
{
	char want[32];
	size_t n = (size_t)snprintf(want, sizeof(want), "ublk%d.", id);
	int index = 0;

	if (len <= n || strncmp(comm, want, n))
		return -1;
	for (size_t i = n; i < len; i++) {
		if (!isdigit((unsigned char)comm[i]) || index > 4096)
			return -1;
		index = index * 10 + comm[i] - '0';
	}
	return len == COMM_MAX ? -2 : index;
}

static void read_cpus(pid_t pid, pid_t tid, cpu_set_t *ret)
{
	_cleanup_free_ char *text = malloc(STATUS_MAX);
	char path[FS_PATH_MAX], list[CPULIST_TEXT];
	const char *v = NULL;

	CPU_ZERO(ret);
	fs_path(path, "/proc/%d/task/%d/status", (int)pid, (int)tid);
	if (text && fs_read_text(path, text, STATUS_MAX) == 0)
		v = status_value(text, "Cpus_allowed_list");
	if (v && sscanf(v, "%4095s", list) == 1)
		cpulist_parse(list, ret);
}

/* true: tid is an I/O thread of the device. Threads can end at any time. */
static bool read_thread(pid_t pid, pid_t tid, int id, struct srv_thread *ret)
{
	char path[FS_PATH_MAX], text[1024], *open, *close;
	unsigned int flags = 0;
	int index;

	fs_path(path, "/proc/%d/task/%d/stat", (int)pid, (int)tid);
	if (fs_read_text(path, text, sizeof(text)) < 0)
		return false;
	/* the name is in parentheses and may hold some itself */
	open = strchr(text, '(');
	close = strrchr(text, ')');
	if (!open || !close || close < open)
		return false;
	index = io_thread_index(open + 1, (size_t)(close - open - 1), id);
	if (index == -1 || sscanf(close + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) != 1)
		return false;
	*ret = (struct srv_thread){
		.tid = tid,
		.index = index < 0 ? -1 : index,
		.flusher = (flags & PF_IO_FLUSHER) == PF_IO_FLUSHER,
	};
	read_cpus(pid, tid, &ret->cpus);
	return true;
}

static int by_index(const void *a, const void *b)
{
	const struct srv_thread *x = a, *y = b;

	return x->index != y->index ? x->index - y->index : x->tid - y->tid;
}

int srv_threads(pid_t pid, int id, struct srv_thread **ret, size_t *ret_count)
{
	char path[FS_PATH_MAX];
	_cleanup_dir_ DIR *d = opendir(fs_path(path, "/proc/%d/task", (int)pid));
	_cleanup_free_ struct srv_thread *list = NULL;
	size_t n = 0, room = 0;
	struct dirent *e;

	if (!d)
		return errno == ENOENT ? -ESRCH : -errno;
	while ((e = readdir(d))) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		if (n == room) {
			struct srv_thread *more = realloc(list, (2 * room + 8) * sizeof(*list));

			if (!more)
				return -ENOMEM;
			list = more;
			room = 2 * room + 8;
		}
		n += read_thread(pid, (pid_t)atoi(e->d_name), id, &list[n]);
	}
	if (n)
		qsort(list, n, sizeof(*list), by_index);
	*ret = steal_ptr(&list);
	*ret_count = n;
	return 0;
}
