/* SPDX-License-Identifier: MIT */
/*
 * Columns of `stat`: rows are struct stat_row.
 */
#include "out/stat.h"

#include "abi/ublk_abi.h"
#include "util/cleanup.h"

#define GET_OP(fn, array, op)                                                                      \
	static void fn(const void *row, struct col_value *ret)                                     \
	{                                                                                          \
		ret->num = (int64_t)((const struct stat_row *)row)->sum.array[op];                 \
	}
#define GET_MEMBER(fn, member)                                                                     \
	static void fn(const void *row, struct col_value *ret)                                     \
	{                                                                                          \
		ret->num = (int64_t)((const struct stat_row *)row)->member;                        \
	}
#define GET_PERCENTILE(fn, permille)                                                               \
	static void fn(const void *row, struct col_value *ret)                                     \
	{                                                                                          \
		uint64_t ns = stats_percentile(&((const struct stat_row *)row)->sum, permille);    \
                                                                                                   \
		ret->num = ns ? (int64_t)ns : -1;                                                  \
	}
#define GET_SIZES(fn, array)                                                                       \
	static void fn(const void *row, struct col_value *ret)                                     \
	{                                                                                          \
		ret->counts = ((const struct stat_row *)row)->sum.array;                           \
		ret->nr_counts = ST_SIZES;                                                         \
	}

GET_MEMBER(get_id, id)
GET_MEMBER(get_queue, queue)
GET_OP(get_reads, done, UBLK_IO_OP_READ)
GET_OP(get_writes, done, UBLK_IO_OP_WRITE)
GET_OP(get_flushes, done, UBLK_IO_OP_FLUSH)
GET_OP(get_discards, done, UBLK_IO_OP_DISCARD)
GET_OP(get_zeroes, done, UBLK_IO_OP_WRITE_ZEROES)
GET_OP(get_read_bytes, bytes, UBLK_IO_OP_READ)
GET_OP(get_write_bytes, bytes, UBLK_IO_OP_WRITE)
GET_MEMBER(get_errors, sum.errors)
GET_MEMBER(get_in_flight, in_flight)
GET_PERCENTILE(get_p50, 500)
GET_PERCENTILE(get_p99, 990)
GET_PERCENTILE(get_p999, 999)
GET_MEMBER(get_wakeups, sum.wakeups)
GET_SIZES(get_fetches, fetched)
GET_SIZES(get_commits, committed)

/* clang-format off: one column, one line */
static const struct col stat_cols[] = {
	{ "ID", "id", COL_NUM, true, "device id", get_id },
	{ "QUEUE", "queue", COL_NUM, false, "hardware queue; unknown for the whole device", get_queue },
	{ "READS", "reads", COL_NUM, true, "reads answered", get_reads },
	{ "WRITES", "writes", COL_NUM, true, "writes answered", get_writes },
	{ "FLUSHES", "flushes", COL_NUM, true, "flushes answered", get_flushes },
	{ "DISCARDS", "discards", COL_NUM, true, "discards answered", get_discards },
	{ "ZEROES", "write_zeroes", COL_NUM, false, "write-zeroes answered", get_zeroes },
	{ "READ-BYTES", "read_bytes", COL_SIZE, true, "bytes read", get_read_bytes },
	{ "WRITE-BYTES", "write_bytes", COL_SIZE, true, "bytes written", get_write_bytes },
	{ "ERRORS", "errors", COL_NUM, true, "requests answered with an error", get_errors },
	{ "IN-FLIGHT", "in_flight", COL_NUM, true, "requests in the server", get_in_flight },
	{ "P50", "latency_p50_ns", COL_NUM, true,
	  "half of the requests took no longer in the server, in ns", get_p50 },
	{ "P99", "latency_p99_ns", COL_NUM, true, "99 of 100 took no longer, in ns", get_p99 },
	{ "P999", "latency_p999_ns", COL_NUM, false, "999 of 1000 took no longer, in ns", get_p999 },
	{ "WAKEUPS", "wakeups", COL_NUM, true, "waits of the I/O threads for work", get_wakeups },
	{ "FETCH-SIZES", "fetch_sizes", COL_COUNTS, false,
	  "batch path: fetches that brought 1, 2-3, 4-7, ... requests", get_fetches },
	{ "COMMIT-SIZES", "commit_sizes", COL_COUNTS, false,
	  "batch path: commits that took 1, 2-3, 4-7, ... results", get_commits },
};
/* clang-format on */

const struct col *col_stat(size_t *ret_count)
{
	*ret_count = ARRAY_SIZE(stat_cols);
	return stat_cols;
}
