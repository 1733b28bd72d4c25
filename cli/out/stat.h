/* SPDX-License-Identifier: MIT */
/*
 * Output of `stat`: columns, JSON, and the text format of Prometheus.
 */
#ifndef OUT_STAT_H
#define OUT_STAT_H

#include <stdint.h>

#include "dev/stats.h"
#include "out/col.h"

struct stat_row {
	int64_t id;
	int64_t queue; /* -1: all of the device */
	uint64_t in_flight;
	struct st_block sum; /* since the server's start, or per second */
};

const struct col *col_stat(size_t *ret_count);
/* Rows of queues, -1 is passed over: text exposition format 0.0.4, on stdout. */
int stat_prometheus(const struct stat_row *rows, size_t n, struct fail *f);

#endif
