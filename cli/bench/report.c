/* SPDX-License-Identifier: MIT */
/*
 * What was measured, as a table or JSON, and what can be concluded from it.
 */
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "bench/bench.h"
#include "out/out_json.h"
#include "util/cleanup.h"

double bench_iops(const struct bench_row *r)
{
	return r->ns ? (double)r->ios * 1e9 / (double)r->ns : 0;
}

double bench_spread(const struct bench_row *r)
{
	return r->iops_min > 0 ? (r->iops_max - r->iops_min) * 100 / r->iops_min : 0;
}

/* ---- comparisons ------------------------------------------------------------------------ */

static void row_name(const struct bench_row *r, char *buf, size_t size)
{
	snprintf(buf, size, "%s%s", r->data_mode ? r->data_mode : r->target,
		 r->batch > 0 ? " with batch" : "");
}

/* Of two rows that stand side by side: is the difference one? */
static void warn_unclear(const struct bench_row *a, const struct bench_row *b)
{
	double one = bench_iops(a), two = bench_iops(b), less = one < two ? one : two;
	double differ = less > 0 ? fabs(one - two) * 100 / less : 0;
	double a_spread = bench_spread(a), b_spread = bench_spread(b);
	double spread = a_spread > b_spread ? a_spread : b_spread;
	char a_name[128], b_name[128];

	if (spread <= differ)
		return;
	row_name(a, a_name, sizeof(a_name));
	row_name(b, b_name, sizeof(b_name));
	msg_warn("%s and %s differ by %.1f %%, the rounds of one of them by %.1f %%: this tells nothing",
		 a_name, b_name, differ, spread);
}

static double ratio(const struct bench_row *r, const struct bench_row *to)
{
	return bench_iops(to) > 0 ? bench_iops(r) / bench_iops(to) : NAN;
}

/* The per-I/O row of the same mode, for a batch row; NULL otherwise. */
static const struct bench_row *partner(const struct bench_row *rows, size_t n,
				       const struct bench_row *r)
{
	for (size_t i = 0; r->batch > 0 && i < n; i++)
		if (rows[i].batch == 0 && !strcmp(rows[i].data_mode, r->data_mode))
			return &rows[i];
	return NULL;
}

void bench_compare(struct bench_row *rows, size_t n)
{
	const struct bench_row *base = n && rows[0].batch < 0 ? &rows[0] : NULL;

	for (size_t i = 0; i < n; i++) {
		struct bench_row *r = &rows[i];
		const struct bench_row *per_io = partner(rows, n, r);

		r->batch_ratio = per_io ? ratio(r, per_io) : NAN;
		r->baseline_ratio = base && r != base ? ratio(r, base) : NAN;
		if (per_io)
			warn_unclear(r, per_io);
		if (base && r != base)
			warn_unclear(r, base);
	}
}

/* ---- columns ---------------------------------------------------------------------------- */

#define GET(fn)                                                                                    \
	static void fn(const struct bench_row *r, struct col_value *ret);                          \
	static void fn##_col(const void *row, struct col_value *ret)                               \
	{                                                                                          \
		fn(row, ret);                                                                      \
	}                                                                                          \
	static void fn(const struct bench_row *r, struct col_value *ret)

GET(get_target)
{
	ret->text = r->target;
}

GET(get_mode)
{
	ret->text = r->data_mode;
}

GET(get_batch)
{
	ret->num = r->batch;
}

GET(get_iops)
{
	ret->num = (int64_t)(bench_iops(r) + 0.5);
}

GET(get_bandwidth)
{
	ret->num = (int64_t)(bench_iops(r) * r->block_size + 0.5);
}

GET(get_time)
{
	ret->num = r->ios ? (int64_t)((double)r->ns / (double)r->ios + 0.5) : -1;
}

GET(get_mean)
{
	ret->num = r->hist.count ? (int64_t)hist_mean(&r->hist) : -1;
}

static int64_t percentile(const struct bench_row *r, unsigned int parts, unsigned int total)
{
	return r->hist.count ? (int64_t)hist_percentile(&r->hist, parts, total) : -1;
}

GET(get_p50)
{
	ret->num = percentile(r, 1, 2);
}

GET(get_p99)
{
	ret->num = percentile(r, 99, 100);
}

GET(get_p999)
{
	ret->num = percentile(r, 999, 1000);
}

GET(get_cpu)
{
	ret->num = r->has_cpu && r->cpu_ios ?
			   (int64_t)((double)r->cpu_ns / (double)r->cpu_ios + 0.5) :
			   -1;
}

GET(get_spread)
{
	ret->real = bench_spread(r);
}

GET(get_batch_ratio)
{
	ret->real = r->batch_ratio;
}

GET(get_baseline_ratio)
{
	ret->real = r->baseline_ratio;
}

static const struct col bench_cols[] = {
	{ "TARGET", "target", COL_TEXT, true, "target, or path of the baseline", get_target_col },
	{ "MODE", "data_mode", COL_TEXT, true, "how data moves between driver and server",
	  get_mode_col },
	{ "BATCH", "batch", COL_BOOL, true, "batch I/O path", get_batch_col },
	{ "IOPS", "iops", COL_NUM, true, "requests per second", get_iops_col },
	{ "BANDWIDTH", "bandwidth", COL_SIZE, true, "bytes per second", get_bandwidth_col },
	{ "TIME", "time_ns", COL_NUM, true, "time divided by requests, ns", get_time_col },
	{ "MEAN", "latency_mean_ns", COL_NUM, true, "mean latency, ns", get_mean_col },
	{ "P50", "latency_p50_ns", COL_NUM, true, "latency of 50 % of requests at most, ns",
	  get_p50_col },
	{ "P99", "latency_p99_ns", COL_NUM, true, "latency of 99 % of requests at most, ns",
	  get_p99_col },
	{ "P999", "latency_p999_ns", COL_NUM, true, "latency of 99.9 % of requests at most, ns",
	  get_p999_col },
	{ "CPU", "server_cpu_ns", COL_NUM, true, "CPU time of the server per request, ns",
	  get_cpu_col },
	{ "SPREAD", "spread_percent", COL_REAL, true, "fastest above slowest round, percent",
	  get_spread_col },
	{ "BATCH-RATIO", "batch_ratio", COL_REAL, true, "IOPS, batch to per-I/O path",
	  get_batch_ratio_col },
	{ "BASE-RATIO", "baseline_ratio", COL_REAL, true, "IOPS, to those of the baseline",
	  get_baseline_ratio_col },
};

const struct col *bench_columns(size_t *ret_count)
{
	*ret_count = ARRAY_SIZE(bench_cols);
	return bench_cols;
}

/* ---- output ----------------------------------------------------------------------------- */

static struct json_object *text_or_null(const char *text)
{
	return text ? out_json_text(text) : NULL;
}

static struct json_object *count_or_null(uint64_t n)
{
	return n ? json_object_new_int64((int64_t)n) : NULL;
}

/* The question that goes with the answers. */
static void add_workload(void *root, const void *arg)
{
	const struct bench_plan *p = arg;
	struct json_object *o = json_object_new_object();
	struct utsname u;

	json_object_object_add(o, "target", json_object_new_string(p->dev.target));
	json_object_object_add(o, "backing", text_or_null(p->dev.file));
	json_object_object_add(o, "null_data", text_or_null(p->dev.null_data));
	json_object_object_add(o, "baseline", text_or_null(p->baseline));
	json_object_object_add(o, "queues", count_or_null(p->dev.queues));
	json_object_object_add(o, "rw", json_object_new_string(p->rw));
	json_object_object_add(o, "block_size", count_or_null(p->load.block_size));
	json_object_object_add(o, "iodepth", count_or_null(p->load.depth));
	json_object_object_add(o, "jobs", count_or_null(p->load.jobs));
	json_object_object_add(o, "ios", count_or_null(p->load.ios));
	json_object_object_add(o, "seconds", count_or_null(p->load.time_ns / 1000000000));
	json_object_object_add(o, "repeat", count_or_null(p->repeat));
	json_object_object_add(o, "kernel", uname(&u) ? NULL : out_json_text(u.release));
	json_object_object_add(root, "workload", o);
}

int bench_report(const struct bench_plan *p, const struct bench_row *rows, bool json, struct fail *f)
{
	const struct out_opts opts = { .json = json };
	struct out o = {
		.json_array = "results",
		.rows = rows,
		.row_size = sizeof(*rows),
		.nr_rows = bench_nr_rows(p),
		.json_extra = add_workload,
		.json_extra_arg = p,
	};

	o.cols = bench_columns(&o.nr_cols);
	return out_print(&o, &opts, f);
}
