/* SPDX-License-Identifier: MIT */
/*
 * Text exposition format of Prometheus, version 0.0.4.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "abi/ublk_abi.h"
#include "out/stat.h"
#include "util/cleanup.h"

static const struct {
	unsigned int op;
	const char *name;
} ops[] = {
	{ UBLK_IO_OP_READ, "read" },
	{ UBLK_IO_OP_WRITE, "write" },
	{ UBLK_IO_OP_FLUSH, "flush" },
	{ UBLK_IO_OP_DISCARD, "discard" },
	{ UBLK_IO_OP_WRITE_ZEROES, "write_zeroes" },
};

/* A row whose queue is one. */
static const struct stat_row *queue_row(const struct stat_row *rows, size_t n, size_t *i)
{
	while (*i < n && rows[*i].queue < 0)
		(*i)++;
	return *i < n ? &rows[(*i)++] : NULL;
}

static void head(const char *name, const char *type, const char *help)
{
	printf("# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void labels(const char *name, const struct stat_row *r)
{
	printf("%s{device=\"ublkb%" PRId64 "\",queue=\"%" PRId64 "\"", name, r->id, r->queue);
}

static void by_op(const char *name, const char *help, const struct stat_row *rows, size_t n, bool bytes)
{
	const struct stat_row *r;

	head(name, "counter", help);
	for (size_t i = 0; (r = queue_row(rows, n, &i));)
		for (size_t k = 0; k < ARRAY_SIZE(ops); k++) {
			labels(name, r);
			printf(",op=\"%s\"} %" PRIu64 "\n", ops[k].name,
			       bytes ? r->sum.bytes[ops[k].op] : r->sum.done[ops[k].op]);
		}
}

static uint64_t get_errors(const struct stat_row *r)
{
	return r->sum.errors;
}

static uint64_t get_in_flight(const struct stat_row *r)
{
	return r->in_flight;
}

static uint64_t get_wakeups(const struct stat_row *r)
{
	return r->sum.wakeups;
}

static void single(const char *name, const char *type, const char *help,
		   const struct stat_row *rows, size_t n, uint64_t (*get)(const struct stat_row *r))
{
	const struct stat_row *r;

	head(name, type, help);
	for (size_t i = 0; (r = queue_row(rows, n, &i));) {
		labels(name, r);
		printf("} %" PRIu64 "\n", get(r));
	}
}

/* One bucket for each power of two: the classes are finer than a scraper needs. */
static void latency(const struct stat_row *rows, size_t n)
{
	static const char name[] = "ublkctl_latency_seconds";
	const struct stat_row *r;

	head(name, "histogram", "Time of requests in the server");
	for (size_t i = 0; (r = queue_row(rows, n, &i));) {
		uint64_t sum = 0;
		double seconds = 0;

		for (unsigned int c = 0; c < ST_CLASSES; c++) {
			sum += r->sum.latency[c];
			seconds += (double)r->sum.latency[c] *
				   (double)(st_class_ns(c) + st_class_ns(c + 1)) / 2e9;
			if (c % 4 != 3 || c < 39) /* from 2 us on */
				continue;
			labels("ublkctl_latency_seconds_bucket", r);
			printf(",le=\"%.9g\"} %" PRIu64 "\n", (double)st_class_ns(c + 1) / 1e9, sum);
		}
		labels("ublkctl_latency_seconds_bucket", r);
		printf(",le=\"+Inf\"} %" PRIu64 "\n", sum);
		labels("ublkctl_latency_seconds_sum", r);
		printf("} %.9g\n", seconds);
		labels("ublkctl_latency_seconds_count", r);
		printf("} %" PRIu64 "\n", sum);
	}
}

int stat_prometheus(const struct stat_row *rows, size_t n, struct fail *f)
{
	by_op("ublkctl_requests_total", "Requests answered", rows, n, false);
	by_op("ublkctl_bytes_total", "Bytes of requests answered without an error", rows, n, true);
	single("ublkctl_errors_total", "counter", "Requests answered with an error", rows, n,
	       get_errors);
	single("ublkctl_in_flight", "gauge", "Requests in the server", rows, n, get_in_flight);
	single("ublkctl_wakeups_total", "counter", "Waits of the I/O threads for work", rows, n,
	       get_wakeups);
	latency(rows, n);
	return fflush(stdout) || ferror(stdout) ?
		       fail_errno(f, errno, "cannot write to standard output") :
		       0;
}
