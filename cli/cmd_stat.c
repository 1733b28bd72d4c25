/* SPDX-License-Identifier: MIT */
/*
 * stat: what running servers have done, without asking them.
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd.h"
#include "dev/dev.h"
#include "out/out_json.h"
#include "out/stat.h"
#include "util/cleanup.h"
#include "util/fs.h"

#define STAT_TIMEOUT_MS 2000
#define NS_PER_S 1000000000ULL
#define NEXT_SERVER_MS 3000 /* for recover or restart */
#define NEXT_SERVER_POLL_MS 50

struct stat_cfg {
	struct cmd_common common;
	struct out_opts out;
	bool queues, prometheus, list_columns;
	unsigned int watch_s;
};

#define AT(member) offsetof(struct stat_cfg, member)

/* clang-format off: one option, one entry */
static const struct opt stat_options[] = {
	CMD_OPTS_TABLE(AT(out)),
	{ .name = "queues",
	  .letter = 'q',
	  .type = OPT_FLAG,
	  .offset = AT(queues),
	  .help = "a line for each queue instead of each device" },
	{ .name = "watch",
	  .letter = 'w',
	  .type = OPT_UINT,
	  .arg = "SEC",
	  .offset = AT(watch_s),
	  .min = 1,
	  .max = CMD_TIMEOUT_MAX,
	  .help = "again every SEC seconds, per second, until Ctrl-C" },
	{ .name = "prometheus",
	  .type = OPT_FLAG,
	  .offset = AT(prometheus),
	  .help = "print the text format of Prometheus" },
	{ .name = "list-columns",
	  .type = OPT_FLAG,
	  .offset = AT(list_columns),
	  .help = "print the columns and what they mean" },
	OPT_END
};
/* clang-format on */

static const struct stat_cfg stat_defaults;

/* A device whose counters are mapped, with the rows they are summed up in. */
struct source {
	int id;
	struct stats stats;
	unsigned int queues;
	pid_t pid; /* of the server */
	uint64_t pid_start;
};

/* -ENODATA: a device whose server keeps no counters, or that has none. */
static int open_source(struct ctrl *c, int id, struct source *s, struct fail *f)
{
	struct dev_view v;
	int r = dev_look(c, id, &v, f);

	if (r < 0)
		return r;
	if (v.pid < 0)
		return fail_set(f, ENODATA, "device %d has no server", id);
	r = stats_map((pid_t)v.pid, &s->stats);
	if (r == -ENOENT || r == -EPROTO)
		return fail_set(f, ENODATA,
				"the server of device %d (process %d) keeps no counters that can be read",
				id, (int)v.pid);
	if (r < 0)
		return fail_errno(f, -r, "cannot read the counters of device %d (process %d)", id,
				  (int)v.pid);
	s->id = id;
	s->pid = (pid_t)v.pid;
	s->pid_start = fs_pid_start(s->pid);
	for (unsigned int i = 0; stats_block(&s->stats, i); i++)
		if (stats_queue(stats_block(&s->stats, i)) >= s->queues)
			s->queues = stats_queue(stats_block(&s->stats, i)) + 1;
	return 0;
}

/* Rows of one device: one for each queue, or one. */
static size_t take_rows(const struct source *s, bool by_queue, struct stat_row *rows)
{
	size_t n = by_queue ? s->queues : 1;
	const struct st_block *b;

	for (size_t i = 0; i < n; i++)
		rows[i] = (struct stat_row){ .id = s->id, .queue = by_queue ? (int64_t)i : -1 };
	for (unsigned int i = 0; (b = stats_block(&s->stats, i)); i++)
		stats_add(&rows[by_queue ? stats_queue(b) % n : 0].sum, b);
	for (size_t i = 0; i < n; i++)
		rows[i].in_flight = stats_in_flight(&rows[i].sum);
	return n;
}

static size_t take_all(const struct source *s, size_t nr, bool by_queue, struct stat_row *rows)
{
	size_t n = 0;

	for (size_t i = 0; i < nr; i++)
		n += take_rows(&s[i], by_queue, rows + n);
	return n;
}

static void per_second(struct st_block *b, uint64_t ns)
{
	uint64_t *v = &b->taken, *end = b->latency;

	/* latencies stay counts: only their shares are asked for */
	for (; v < end; v++)
		*v = (uint64_t)((double)*v * (double)NS_PER_S / (double)ns + 0.5);
	v = &b->wakeups;
	end = b->committed + ST_SIZES;
	for (; v < end; v++)
		*v = (uint64_t)((double)*v * (double)NS_PER_S / (double)ns + 0.5);
}

static int print_rows(const struct stat_cfg *cfg, const struct stat_row *rows, size_t n,
		      struct fail *f)
{
	struct out o = {
		.json_array = "devices", .rows = rows, .row_size = sizeof(*rows), .nr_rows = n
	};
	int r;

	if (cfg->prometheus)
		return stat_prometheus(rows, n, f);
	o.cols = col_stat(&o.nr_cols);
	r = out_print(&o, &cfg->out, f);
	if (!r && fflush(stdout))
		r = fail_errno(f, errno, "cannot write to standard output");
	return r;
}

/*
 * The counters of a server stay mapped when it has ended, as they were. Takes those of the next one, which
 * gets a moment to be there; they start at 0.
 */
static int follow(struct source *s, bool *ret_new, struct fail *f)
{
	const int64_t until = fs_now_ms() + NEXT_SERVER_MS;
	struct source next = { 0 };
	struct ctrl c;
	int r;

	*ret_new = fs_pid_start(s->pid) != s->pid_start;
	if (!*ret_new)
		return 0;
	r = dev_open_ctrl(&c, STAT_TIMEOUT_MS, f);
	if (r < 0)
		return r;
	while ((r = open_source(&c, s->id, &next, f)) == -ENODATA && fs_now_ms() < until)
		fs_sleep_ms(NEXT_SERVER_POLL_MS);
	ctrl_close(&c);
	if (!r && next.queues != s->queues) {
		stats_unmap(&next.stats);
		r = fail_set(f, ENODATA, "device %d is another one now", s->id);
	}
	if (r < 0)
		return r;
	stats_unmap(&s->stats);
	*s = next;
	return 0;
}

static size_t nr_rows(const struct source *s, size_t nr, bool by_queue)
{
	size_t n = 0;

	for (size_t i = 0; i < nr; i++)
		n += by_queue ? s[i].queues : 1;
	return n;
}

/* Takes the first of nr sources out, and its rows. */
static void drop_first(struct source *s, size_t nr, bool by_queue, struct stat_row *rows)
{
	stats_unmap(&s->stats);
	memmove(rows, rows + nr_rows(s, 1, by_queue),
		nr_rows(s + 1, nr - 1, by_queue) * sizeof(*rows));
	memmove(s, s + 1, (nr - 1) * sizeof(*s));
}

/* Those that are gone are told of and left out; the last one's end is a failure. */
static int follow_all(struct source *s, size_t *nr, bool by_queue, struct stat_row *before,
		      struct fail *f)
{
	size_t i = 0, row = 0;

	while (i < *nr) {
		const size_t n = nr_rows(&s[i], 1, by_queue);
		bool is_new;
		int r = follow(&s[i], &is_new, f);

		if (r < 0 && *nr == 1)
			return r;
		if (r < 0) {
			msg_hint("%s", f->text);
			drop_first(&s[i], (*nr)-- - i, by_queue, &before[row]);
			continue;
		}
		for (size_t k = 0; is_new && k < n; k++)
			before[row + k].sum = (struct st_block){ 0 };
		row += n;
		i++;
	}
	return 0;
}

/* Until Ctrl-C, or until no device has a server any more. */
static int watch(const struct stat_cfg *cfg, struct source *s, size_t *nr, struct stat_row *rows,
		 struct stat_row *before, struct fail *f)
{
	bool by_queue = cfg->queues;
	uint64_t then = fs_now_ns(), next = then;
	int r = 0;

	take_all(s, *nr, by_queue, before);
	while (!r) {
		struct timespec until;
		uint64_t now;
		size_t n;

		next += cfg->watch_s * NS_PER_S;
		until = (struct timespec){ (time_t)(next / NS_PER_S), (long)(next % NS_PER_S) };
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
			;
		r = follow_all(s, nr, by_queue, before, f);
		if (r < 0)
			break;
		now = fs_now_ns();
		n = take_all(s, *nr, by_queue, rows);
		for (size_t i = 0; i < n; i++) {
			struct st_block sum = rows[i].sum;

			stats_sub(&rows[i].sum, &before[i].sum);
			per_second(&rows[i].sum, now - then);
			before[i].sum = sum;
		}
		then = now;
		r = print_rows(cfg, rows, n, f);
	}
	return r;
}

/* Those that have counters; a device that was asked for and has none is a failure. */
static int open_all(const int *ids, size_t n, bool asked, struct source *s, size_t *ret_nr,
		    struct fail *f)
{
	struct ctrl c;
	size_t k = 0;
	int first = 0, r = dev_open_ctrl(&c, STAT_TIMEOUT_MS, f);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		r = open_source(&c, ids[i], &s[k], f);
		if (r == 0)
			k++;
		else if (asked)
			msg_error("%s", f->text);
		if (asked && !first)
			first = r;
	}
	ctrl_close(&c);
	f->text[0] = '\0';
	*ret_nr = k;
	return first;
}

static int report(const struct stat_cfg *cfg, struct source *s, size_t *nr, struct fail *f)
{
	_cleanup_free_ struct stat_row *rows = NULL, *before = NULL;
	bool by_queue = cfg->queues || cfg->prometheus;
	size_t n = nr_rows(s, *nr, by_queue);

	rows = aligned_alloc(_Alignof(struct stat_row), (n + 1) * sizeof(*rows));
	before = aligned_alloc(_Alignof(struct stat_row), (n + 1) * sizeof(*before));
	if (!rows || !before)
		return fail_errno(f, ENOMEM, "cannot show counters");
	if (cfg->watch_s)
		return watch(cfg, s, nr, rows, before, f);
	return print_rows(cfg, rows, take_all(s, *nr, by_queue, rows), f);
}

static int stat_run(const struct cmd_args *a, struct fail *f)
{
	const struct stat_cfg *cfg = a->cfg;
	_cleanup_free_ struct source *s = NULL;
	_cleanup_free_ int *ids = NULL;
	size_t n = 0, nr = 0, nr_cols, index[OUT_COLS_MAX];
	struct out o = { 0 };
	int r, missing;

	o.cols = col_stat(&o.nr_cols);
	if (cfg->list_columns) {
		o.cols = col_stat(&nr_cols);
		col_list(o.cols, nr_cols);
		return 0;
	}
	if (cfg->prometheus && (cfg->out.json || cfg->watch_s))
		return fail_set(f, FAIL_USAGE, "--prometheus excludes --json and --watch");
	r = col_select(&o, cfg->out.columns, index, &nr_cols, f);
	if (!r)
		r = cmd_ids_or_all(a, !a->nr_operands, &ids, &n, f);
	if (r < 0)
		return r;
	s = calloc(n + 1, sizeof(*s));
	if (!s)
		return fail_errno(f, ENOMEM, "cannot show counters");
	missing = open_all(ids, n, a->nr_operands > 0, s, &nr, f);
	r = nr || !missing ? report(cfg, s, &nr, f) : 0;
	for (size_t i = 0; i < nr; i++)
		stats_unmap(&s[i].stats);
	return r < 0 ? r : missing;
}

const struct cmd cmd_stat = {
	.name = "stat",
	.summary = "show what running servers have done",
	.operands = "[ID|/dev/ublkbN]...",
	.max_operands = CMD_OPERANDS_ANY,
	.operand_hint = HINT_DEVICE,
	.options = stat_options,
	.cfg_size = sizeof(struct stat_cfg),
	.cfg_defaults = &stat_defaults,
	.columns = col_stat,
	.run = stat_run,
};
