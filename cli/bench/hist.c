/* SPDX-License-Identifier: MIT */
#include "bench/hist.h"

void hist_merge(struct hist *h, const struct hist *from)
{
	if (!from->count)
		return;
	for (unsigned int i = 0; i < HIST_BUCKETS; i++)
		h->bucket[i] += from->bucket[i];
	if (!h->count || from->min < h->min)
		h->min = from->min;
	if (from->max > h->max)
		h->max = from->max;
	h->sum += from->sum;
	h->count += from->count;
}

/* Middle of a bucket: nothing better is known of the values in it. */
static uint64_t bucket_value(unsigned int i)
{
	unsigned int shift;

	if (i < HIST_PARTS)
		return i;
	shift = i / HIST_PARTS - 1;
	return ((uint64_t)(HIST_PARTS + i % HIST_PARTS) << shift) + ((1ULL << shift) >> 1);
}

uint64_t hist_percentile(const struct hist *h, unsigned int parts, unsigned int total)
{
	uint64_t seen = 0, value = 0;
	/* rounded up, in an order that does not overflow */
	uint64_t want = h->count / total * parts + (h->count % total * parts + total - 1) / total;

	if (want >= h->count)
		return h->max;
	for (unsigned int i = 0; i < HIST_BUCKETS; i++) {
		seen += h->bucket[i];
		if (h->bucket[i] && seen >= want) {
			value = bucket_value(i);
			break;
		}
	}
	/* the ends are known exactly */
	return value < h->min ? h->min : value > h->max ? h->max : value;
}

uint64_t hist_mean(const struct hist *h)
{
	return h->count ? (uint64_t)(h->sum / (double)h->count + 0.5) : 0;
}
