/* SPDX-License-Identifier: MIT */
/*
 * bench: what the data modes and I/O paths of this machine's driver cost.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "cmd.h"
#include "target/target.h"
#include "util/cleanup.h"

#define SECONDS_DEFAULT 2
#define BUFFER_MAX (1ULL << 30) /* that a ring can register in one piece */

struct bench_cfg {
	struct cmd_common common;
	struct bench_plan plan;
	uint64_t block_size;
	unsigned int ios, seconds;
	const char *modes, *plot;
	bool json, force, no_latency;
};

#define AT(member) offsetof(struct bench_cfg, member)

static const char *rw_word(unsigned int n)
{
	static const char *const words[] = { "read", "write", "mix" };

	return n < ARRAY_SIZE(words) ? words[n] : NULL;
}

/* clang-format off: one option, one entry */
static const struct opt bench_options[] = {
	{ .name = "type",
	  .letter = 't',
	  .type = OPT_WORD,
	  .arg = "TARGET",
	  .word = tgt_name_at,
	  .offset = AT(plan.dev.target),
	  .help = "what answers the I/O (default: null)" },
	{ .name = "file",
	  .letter = 'f',
	  .type = OPT_TEXT,
	  .arg = "PATH",
	  .offset = AT(plan.dev.file),
	  .hint = HINT_FILE,
	  .help = "backing of -t file: a regular file or a block device" },
	{ .name = "null-data",
	  .type = OPT_WORD,
	  .arg = "WHAT",
	  .word = cfg_null_data_name,
	  .offset = AT(plan.dev.null_data),
	  .help = "what reads of -t null return: zeros, or none where it can be" },
	{ .name = "modes",
	  .letter = 'm',
	  .type = OPT_TEXT,
	  .arg = "LIST",
	  .offset = AT(modes),
	  .help = "MODE[:batch|:per-io],... (default: all that the driver has)" },
	{ .name = "rw",
	  .type = OPT_WORD,
	  .arg = "WHAT",
	  .word = rw_word,
	  .offset = AT(plan.rw),
	  .help = "read (default), write, or half of each: mix" },
	{ .name = "bs",
	  .type = OPT_SIZE,
	  .arg = "SIZE",
	  .offset = AT(block_size),
	  .min = 512,
	  .max = 32 << 20,
	  .help = "size of a request (default: 4K)" },
	{ .name = "iodepth",
	  .type = OPT_UINT,
	  .arg = "N",
	  .offset = AT(plan.load.depth),
	  .min = 1,
	  .max = LOAD_DEPTH_MAX,
	  .help = "requests in flight of each job (default: 32)" },
	{ .name = "jobs",
	  .type = OPT_UINT,
	  .arg = "N",
	  .offset = AT(plan.load.jobs),
	  .min = 1,
	  .max = LOAD_JOBS_MAX,
	  .help = "threads that make requests (default: 1)" },
	{ .name = "queues",
	  .letter = 'q',
	  .type = OPT_UINT,
	  .arg = "N",
	  .offset = AT(plan.dev.queues),
	  .min = 1,
	  .max = UBLK_MAX_NR_QUEUES,
	  .help = "hardware queues (default: as add)" },
	{ .name = "ios",
	  .type = OPT_UINT,
	  .arg = "N",
	  .offset = AT(ios),
	  .min = 1,
	  .max = UINT32_MAX,
	  .help = "requests to measure, of all jobs together" },
	{ .name = "seconds",
	  .type = OPT_UINT,
	  .arg = "N",
	  .offset = AT(seconds),
	  .min = 1,
	  .max = CMD_TIMEOUT_MAX,
	  .help = "time to measure (default: 2)" },
	{ .name = "repeat",
	  .type = OPT_UINT,
	  .arg = "N",
	  .offset = AT(plan.repeat),
	  .min = 1,
	  .max = 1000,
	  .help = "rounds (default: 3)" },
	{ .name = "baseline",
	  .type = OPT_TEXT,
	  .arg = "DEVICE",
	  .offset = AT(plan.baseline),
	  .hint = HINT_FILE,
	  .help = "measure this one too, and compare with it" },
	{ .name = "no-latency",
	  .type = OPT_FLAG,
	  .offset = AT(no_latency),
	  .help = "do not look at the clock for each request" },
	{ .name = "plot",
	  .type = OPT_TEXT,
	  .arg = "FILE.svg|.png",
	  .offset = AT(plot),
	  .hint = HINT_FILE,
	  .help = "draw the results, with gnuplot" },
	{ .name = "force",
	  .type = OPT_FLAG,
	  .offset = AT(force),
	  .help = "write to --file and --baseline: what is in them is lost" },
	CMD_OPT_TIMEOUT(AT(plan.dev.timeout_s),
			"deadline for making and deleting a device (default: 30)"),
	{ .name = "json", .type = OPT_FLAG, .offset = AT(json), .help = "print JSON" },
	OPT_END
};
/* clang-format on */

static const struct bench_cfg bench_defaults = {
	.plan = {
		.dev = {
			.id = CFG_ID_ANY,
			.target = "null",
			.depth = 128,
			.max_io = 512 << 10,
			.timeout_s = CMD_TIMEOUT_DEFAULT,
		},
		.load = { .depth = 32, .jobs = 1 },
		.rw = "read",
		.repeat = 3,
	},
	.block_size = 4096,
};

static int check_target(const struct bench_cfg *cfg, struct fail *f)
{
	const struct dev_cfg *d = &cfg->plan.dev;
	const bool is_null = tgt_find(d->target) == &tgt_null;

	if (is_null && d->file)
		return fail_set(f, FAIL_USAGE, "--file: only with -t file");
	if (!is_null && !d->file)
		return fail_set(f, FAIL_USAGE, "--file PATH is needed");
	if (!is_null && d->null_data)
		return fail_set(f, FAIL_USAGE, "--null-data: only with -t null");
	if (cfg->plan.load.write_percent && !cfg->force && (d->file || cfg->plan.baseline))
		return fail_set(f, FAIL_USAGE,
				"--rw %s: what is in %s is lost, --force says that it may be",
				cfg->plan.rw, d->file ? d->file : cfg->plan.baseline);
	return 0;
}

/* The words → a plan. */
static int make_plan(struct bench_cfg *cfg, struct fail *f)
{
	struct bench_plan *p = &cfg->plan;

	if (cfg->ios && cfg->seconds)
		return fail_set(f, FAIL_USAGE, "--ios and --seconds exclude each other");
	if (cfg->block_size % 512)
		return fail_set(f, FAIL_USAGE, "--bs: %llu is not a multiple of 512",
				(unsigned long long)cfg->block_size);
	if (cfg->block_size * p->load.depth * p->load.jobs > BUFFER_MAX)
		return fail_set(f, FAIL_USAGE, "--bs times --iodepth times --jobs is more than 1G");
	p->dev.target = tgt_find(p->dev.target)->name; /* not the second one that it may have */
	p->load.block_size = (unsigned int)cfg->block_size;
	p->load.write_percent = !strcmp(p->rw, "read") ? 0 : !strcmp(p->rw, "mix") ? 50 : 100;
	p->load.ios = cfg->ios;
	if (!cfg->ios)
		p->load.time_ns = (cfg->seconds ? cfg->seconds : SECONDS_DEFAULT) * 1000000000ULL;
	p->load.latency = !cfg->no_latency;
	/* what is only read is not locked and can be in use */
	p->dev.read_only = p->dev.file && !p->load.write_percent;
	return bench_parse_modes(cfg->modes, p, f);
}

/* As if the signal had come without anything to tidy up. */
static void die_of(int sig)
{
	signal(sig, SIG_DFL);
	raise(sig);
}

static int bench_run(const struct cmd_args *a, struct fail *f)
{
	struct bench_cfg *cfg = a->cfg;
	_cleanup_free_ struct bench_row *rows = NULL;
	size_t n;
	int sig = 0, r = make_plan(cfg, f);

	if (!r)
		r = check_target(cfg, f);
	if (!r && cfg->plot)
		r = bench_check_plot(cfg->plot, f);
	if (!r && geteuid() != 0)
		r = fail_set(f, EPERM, "only root can make the devices that are measured");
	if (!r)
		r = bench_check_driver(&cfg->plan, f);
	if (r < 0)
		return r;
	n = bench_nr_rows(&cfg->plan);
	rows = calloc(n + 1, sizeof(*rows));
	if (!rows)
		return fail_errno(f, ENOMEM, "cannot start");
	if (cfg->plan.dev.null_data && !strcmp(cfg->plan.dev.null_data, "none"))
		msg_warn("reads of zero-copy devices return uninitialized kernel memory (--null-data none)");
	r = bench_measure(&cfg->plan, rows, &sig, f);
	if (sig)
		die_of(sig);
	if (r < 0)
		return r;
	bench_compare(rows, n);
	r = bench_report(&cfg->plan, rows, cfg->json, f);
	return !r && cfg->plot ? bench_plot(cfg->plot, rows, n, f) : r;
}

const struct cmd cmd_bench = {
	.name = "bench",
	.summary = "measure data modes and I/O paths on temporary devices",
	.options = bench_options,
	.cfg_size = sizeof(struct bench_cfg),
	.cfg_defaults = &bench_defaults,
	.columns = bench_columns,
	.run = bench_run,
};
