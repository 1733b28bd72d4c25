/* SPDX-License-Identifier: MIT */
#include "engine/bufmem.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "util/fs.h"
#include "util/num.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define THP_DIR "/sys/kernel/mm/transparent_hugepage"
#define HUGE_DEFAULT (2UL << 20)
#define HUGE_MIN 65536UL
#define HUGE_MAX (1UL << 30)

/* 32 to 80 of the 128 TiB that 47 bits have */
#define APART_MIN (UINT64_C(32) << 40)
#define APART_MAX (UINT64_C(80) << 40)

#define MAP_FLAGS (MAP_PRIVATE | MAP_ANONYMOUS)

/*
 * Where no other process has memory, a hint for mmap(): the driver's batch path (seen with Linux 7.3.4) goes
 * on for a moment when its server is killed, in a thread of the kernel that has any process' memory, and
 * writes data of requests and tags there, at the addresses of the dead server's buffers. Programs,
 * libraries, heaps and stacks lie at both ends of the address space; this is in the middle, and at random.
 * Memory that is not there is an error that the driver handles. Where addresses are fewer, the kernel
 * chooses, as ever.
 */
static void *apart(void)
{
	uint64_t n;

	if (sizeof(void *) < 8 || getrandom(&n, sizeof(n), GRND_NONBLOCK) != sizeof(n))
		return NULL;
	n = APART_MIN + n % (APART_MAX - APART_MIN);
	return (void *)(uintptr_t)(n & ~(HUGE_MAX - 1));
}

/* Bytes of the huge page that one entry of a page directory maps. */
static size_t huge_size(void)
{
	char path[FS_PATH_MAX];
	uint64_t n;

	if (fs_read_u64(fs_path(path, THP_DIR "/hpage_pmd_size"), &n) < 0 || n < HUGE_MIN ||
	    n > HUGE_MAX || (n & (n - 1)))
		return HUGE_DEFAULT;
	return (size_t)n;
}

/*
 * From the pool, as much as is asked for or nothing. Touched at once: nobody else can have these pages
 * meanwhile, and a process whose NUMA nodes have none is told so here and not by a signal.
 */
static int from_pool(size_t len, size_t page, struct bufmem *ret)
{
	const int size = (int)num_log2(page) << MAP_HUGE_SHIFT;
	void *p;

	len = num_round_up(len, page);
	p = mmap(apart(), len, PROT_READ | PROT_WRITE, MAP_FLAGS | MAP_HUGETLB | size, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	if (madvise(p, len, MADV_POPULATE_WRITE) < 0) {
		int err = errno;

		munmap(p, len);
		return -err;
	}
	*ret = (struct bufmem){ .p = p, .len = len, .huge = HUGE_RESERVED };
	return 0;
}

/* Does this kernel give transparent huge pages of a size to memory that asks for them? */
static bool has_transparent(size_t page)
{
	char path[FS_PATH_MAX], text[64];

	/* Linux 6.8 has a switch for each size, which can leave it to the one for all */
	fs_path(path, THP_DIR "/hugepages-%zukB/enabled", page >> 10);
	if (fs_read_text(path, text, sizeof(text)) < 0 || strstr(text, "[inherit]"))
		if (fs_read_text(fs_path(path, THP_DIR "/enabled"), text, sizeof(text)) < 0)
			return false;
	return !strstr(text, "[never]");
}

/*
 * Address space that starts at a multiple of align. Without access: a process that locks what it maps
 * (mlockall) would have the kernel fill it at once.
 */
static int reserve(size_t len, size_t align, void **ret)
{
	uint8_t *p = mmap(apart(), len + align, PROT_NONE, MAP_FLAGS | MAP_NORESERVE, -1, 0);
	size_t skip;

	if (p == MAP_FAILED)
		return -errno;
	if (align) {
		skip = num_round_up((uintptr_t)p, align) - (uintptr_t)p;
		if (skip)
			munmap(p, skip);
		p += skip;
		if (align - skip)
			munmap(p + len, align - skip);
	}
	*ret = p;
	return 0;
}

/* All there before the first request, and to stay. */
static int lock_now(void *p, size_t len)
{
	if (mprotect(p, len, PROT_READ | PROT_WRITE) < 0 || mlock(p, len) < 0)
		return -errno;
	return 0;
}

/* Only reserved: what a process locks of its memory (mlockall) must not make it used. */
static int only_reserve(void *p, size_t len)
{
	if (munlock(p, len) < 0 || mprotect(p, len, PROT_READ | PROT_WRITE) < 0)
		return -errno;
	return 0;
}

int bufmem_alloc(size_t len, bool lock, bool huge, struct bufmem *ret)
{
	const size_t page = huge ? huge_size() : 0;
	struct bufmem m = { .len = len };
	int r;

	if (huge && from_pool(len, page, ret) == 0)
		return 0;
	huge = huge && has_transparent(page);
	if (huge)
		m.len = num_round_up(len, page);
	r = reserve(m.len, huge ? page : 0, &m.p);
	if (r < 0)
		return r;
	if (huge && madvise(m.p, m.len, MADV_HUGEPAGE) == 0)
		m.huge = HUGE_TRANSPARENT;
	else /* a huge page per touched 4 KiB would make a reserved buffer a used one */
		madvise(m.p, m.len, MADV_NOHUGEPAGE);
	r = lock ? lock_now(m.p, m.len) : only_reserve(m.p, m.len);
	if (r < 0) {
		munmap(m.p, m.len);
		return r;
	}
	*ret = m;
	return 0;
}

int bufmem_map(size_t len, struct bufmem *ret)
{
	void *p = mmap(apart(), len, PROT_READ | PROT_WRITE, MAP_FLAGS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	*ret = (struct bufmem){ .p = p, .len = len };
	return 0;
}

void bufmem_free(struct bufmem *m)
{
	if (m->p)
		munmap(m->p, m->len);
	*m = (struct bufmem){ 0 };
}
