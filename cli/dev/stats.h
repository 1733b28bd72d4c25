/* SPDX-License-Identifier: MIT */
/*
 * Counters of a running server, read from its memory (util/stats_page.h) without its help.
 */
#ifndef DEV_STATS_H
#define DEV_STATS_H

#include <stddef.h>
#include <sys/types.h>

#include "util/stats_page.h"

struct stats {
	const struct st_head *head;
	size_t len;
	unsigned int nr_blocks; /* as it was: what is mapped is the server's, which can be anybody's */
};

/*
 * Maps the counters of a server. -ENOENT: the process has none (another tool's, or an older server);
 * -ESRCH: no such process; -EACCES or -EPERM: somebody else's; -EPROTO: another layout.
 */
int stats_map(pid_t pid, struct stats *ret);
void stats_unmap(struct stats *s);
/* Queue of a block, below UBLK_MAX_NR_QUEUES whatever the server has written there. */
unsigned int stats_queue(const struct st_block *b);
/* n-th block, in no order of threads or queues; NULL behind the last. */
const struct st_block *stats_block(const struct stats *s, unsigned int n);
/* Adds what b counted to sum; thread and queue of sum stay. */
void stats_add(struct st_block *sum, const struct st_block *b);
/* sum less what it was at an earlier time. */
void stats_sub(struct st_block *sum, const struct st_block *before);
/* Requests that were taken and have no result yet. */
uint64_t stats_in_flight(const struct st_block *b);
/* Upper end, in ns, of the class that has the request which permille ‰ are not slower than; 0: none. */
uint64_t stats_percentile(const struct st_block *b, unsigned int permille);

#endif
