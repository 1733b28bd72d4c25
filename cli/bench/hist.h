/* SPDX-License-Identifier: MIT */
/*
 * Log-linear histogram: each power of two is cut into equal parts, so that a value is known to 1/64
 * of itself in a fixed amount of memory, and adding one is a few instructions.
 */
#ifndef BENCH_HIST_H
#define BENCH_HIST_H

#include <stdint.h>

#define HIST_BITS 6 /* 2^HIST_BITS parts of each power of two */
#define HIST_PARTS (1U << HIST_BITS)
#define HIST_BUCKETS ((64 - HIST_BITS + 1) * HIST_PARTS)

struct hist {
	uint64_t count, max, min;
	double sum;
	uint64_t bucket[HIST_BUCKETS];
};

static inline unsigned int hist_index(uint64_t v)
{
	unsigned int shift;

	if (v < HIST_PARTS)
		return (unsigned int)v;
	shift = 63 - (unsigned int)__builtin_clzll(v) - HIST_BITS;
	return (shift + 1) * HIST_PARTS + (unsigned int)(v >> shift & (HIST_PARTS - 1));
}

static inline void hist_add(struct hist *h, uint64_t v)
{
	h->bucket[hist_index(v)]++;
	h->sum += (double)v;
	if (!h->count++ || v < h->min)
		h->min = v;
	if (v > h->max)
		h->max = v;
}

/* Adds all of from to h. */
void hist_merge(struct hist *h, const struct hist *from);
/*
 * The smallest value that parts of total (99 of 100, 999 of 1000) of the values are not above, to the
 * precision of the histogram; 0 without values.
 */
uint64_t hist_percentile(const struct hist *h, unsigned int parts, unsigned int total);
/* 0 without values */
uint64_t hist_mean(const struct hist *h);

#endif
