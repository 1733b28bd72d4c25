/* SPDX-License-Identifier: MIT */
#include "dev/stats.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi/ublk_abi.h"
#include "util/cleanup.h"
#include "util/fs.h"

#define LINK_START "/memfd:" ST_NAME

/* Descriptor of the counters among those of the process. */
static int open_stats(pid_t pid)
{
	char path[FS_PATH_MAX], link[64];
	_cleanup_dir_ DIR *d = opendir(fs_path(path, "/proc/%d/fd", (int)pid));
	struct dirent *e;

	if (!d)
		return errno == ENOENT ? -ESRCH : -errno;
	while ((e = readdir(d))) {
		ssize_t n = readlinkat(dirfd(d), e->d_name, link, sizeof(link) - 1);
		int fd;

		if (n <= 0)
			continue;
		link[n] = '\0';
		if (strncmp(link, LINK_START, strlen(LINK_START)))
			continue;
		fd = openat(dirfd(d), e->d_name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		return fd < 0 ? -errno : fd;
	}
	return -ENOENT;
}

int stats_map(pid_t pid, struct stats *ret)
{
	_cleanup_fd_ int fd = open_stats(pid);
	struct st_head h;
	struct stat st;
	size_t len;
	void *p;
	int seals;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	/* one that got shorter would end whoever reads it */
	seals = S_ISREG(st.st_mode) ? fcntl(fd, F_GET_SEALS) : -1;
	len = (size_t)st.st_size;
	if (seals < 0 || !(seals & F_SEAL_SHRINK) || len < sizeof(h))
		return -EPROTO;
	p = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	memcpy(&h, p, sizeof(h));
	if (h.magic != ST_MAGIC || h.block_bytes != sizeof(struct st_block) ||
	    h.nr_blocks > (len - sizeof(h)) / sizeof(struct st_block)) {
		munmap(p, len);
		return -EPROTO;
	}
	*ret = (struct stats){ .head = p, .len = len, .nr_blocks = h.nr_blocks };
	return 0;
}

unsigned int stats_queue(const struct st_block *b)
{
	return __atomic_load_n(&b->queue, __ATOMIC_RELAXED) % UBLK_MAX_NR_QUEUES;
}

void stats_unmap(struct stats *s)
{
	if (s->head)
		munmap((void *)s->head, s->len);
	s->head = NULL;
}

const struct st_block *stats_block(const struct stats *s, unsigned int n)
{
	return n < s->nr_blocks ? (const struct st_block *)(const void *)(s->head + 1) + n : NULL;
}

/* The counters of a block, one after the other. */
#define FIRST offsetof(struct st_block, taken)
#define COUNTERS                                                                                      \
	((offsetof(struct st_block, committed) + sizeof(((struct st_block *)0)->committed) - FIRST) / \
	 sizeof(uint64_t))

static uint64_t *counters(struct st_block *b)
{
	return (uint64_t *)(void *)((char *)b + FIRST);
}

static const uint64_t *counters_of(const struct st_block *b)
{
	return (const uint64_t *)(const void *)((const char *)b + FIRST);
}

void stats_add(struct st_block *sum, const struct st_block *b)
{
	for (size_t i = 0; i < COUNTERS; i++)
		counters(sum)[i] += __atomic_load_n(&counters_of(b)[i], __ATOMIC_RELAXED);
}

void stats_sub(struct st_block *sum, const struct st_block *before)
{
	for (size_t i = 0; i < COUNTERS; i++)
		counters(sum)[i] -= counters_of(before)[i];
}

uint64_t stats_in_flight(const struct st_block *b)
{
	uint64_t done = 0;

	for (unsigned int op = 0; op < ST_OPS; op++)
		done += b->done[op];
	/* read one by one: a result can be counted whose request was not yet */
	return b->taken > done ? b->taken - done : 0;
}

uint64_t stats_percentile(const struct st_block *b, unsigned int permille)
{
	uint64_t all = 0, seen = 0, rank;

	for (unsigned int c = 0; c < ST_CLASSES; c++)
		all += b->latency[c];
	if (!all)
		return 0;
	rank = (all * permille + 999) / 1000;
	for (unsigned int c = 0; c < ST_CLASSES; c++) {
		seen += b->latency[c];
		if (seen >= rank)
			return st_class_ns(c + 1) - 1;
	}
	return st_class_ns(ST_CLASSES) - 1;
}
