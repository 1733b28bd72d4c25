/* SPDX-License-Identifier: MIT */
/*
 * Live counters of a server, in memory that others may map to read: an anonymous file (memfd) which
 * /proc/PID/fd names ST_NAME. Each block belongs to one thread and one queue and is written by that
 * thread alone, a few instructions per request, without any order: a reader sees counters that are
 * right each by itself.
 */
#ifndef UTIL_STATS_PAGE_H
#define UTIL_STATS_PAGE_H

#include <stdint.h>

#define ST_NAME "ublkctl-stats"
#define ST_MAGIC 0x3174736b6c6275ULL
#define ST_OPS 8 /* the driver's operation numbers, UBLK_IO_OP_… */
/* Latencies: 4 classes for each power of two; class n starts at st_class_ns(n). */
#define ST_CLASSES 128
#define ST_SIZES 13 /* batches of 1, 2-3, 4-7, … 4096 */

struct st_head {
	uint64_t magic;
	uint32_t nr_blocks, block_bytes;
	uint64_t reserved[6];
};

struct st_block {
	uint32_t thread, queue;
	uint64_t taken;		/* requests delivered */
	uint64_t done[ST_OPS];	/* results given, by operation */
	uint64_t bytes[ST_OPS]; /* of those without an error */
	uint64_t errors;
	/* time in the server, from the turn that brought a request to the turn that gave the result */
	uint64_t latency[ST_CLASSES];
	/* waits in which the thread could sleep; counted in the block of its first queue */
	uint64_t wakeups;
	uint64_t fetched[ST_SIZES]; /* batch path: FETCH completions by how many requests they brought */
	uint64_t committed[ST_SIZES]; /* batch path: COMMIT commands by how many results they took */
} __attribute__((aligned(64)));

/* Class of a time: exact below 4 ns, then 4 for each power of two. */
static inline unsigned int st_class(uint64_t ns)
{
	unsigned int log2, c;

	if (ns < 4)
		return (unsigned int)ns;
	log2 = 63U - (unsigned int)__builtin_clzll(ns);
	c = (log2 - 1) * 4 + (unsigned int)(ns >> (log2 - 2) & 3);
	return c < ST_CLASSES ? c : ST_CLASSES - 1;
}

/* Its lower end. */
static inline uint64_t st_class_ns(unsigned int c)
{
	return c < 4 ? c : (uint64_t)(4 + c % 4) << (c / 4 - 1);
}

/* Class of the size of a batch. */
static inline unsigned int st_size(unsigned int n)
{
	unsigned int c = 31U - (unsigned int)__builtin_clz(n | 1);

	return c < ST_SIZES ? c : ST_SIZES - 1;
}

#endif
