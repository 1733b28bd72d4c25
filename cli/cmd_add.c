/* SPDX-License-Identifier: MIT */
/*
 * add: words → struct dev_cfg, checks, a server in the background, its device verified.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd.h"
#include "dev/affinity.h"
#include "dev/dev.h"
#include "engine/iobuf.h"
#include "launch.h"
#include "serve.h"
#include "target/target.h"
#include "util/cleanup.h"
#include "util/fs.h"
#include "util/num.h"

#define QUEUES_DEFAULT_MAX 4
#define BATCH_DEPTH_MIN 2
#define BUF_SLOTS_MAX 16384U /* of a ring's buffer table */

struct add_cfg {
	struct cmd_common common;
	bool json, user_copy, zero_copy, auto_zc;
	struct dev_cfg dev;
};

#define ADD(member) offsetof(struct add_cfg, member)
#define DEV(member) offsetof(struct add_cfg, dev.member)
#define KIB 1024ULL
#define SIZE_MAX_BYTES ((uint64_t)INT64_MAX & ~4095ULL)

#define BEST "best"

/* The data modes, and best. */
static const char *mode_word(unsigned int n)
{
	if (n > 0 && !iobuf_mode_name(n) && iobuf_mode_name(n - 1))
		return BEST;
	return iobuf_mode_name(n);
}

/* clang-format off: one option, one entry */
static const struct opt add_options[] = {
	{ .name = "type",
	  .letter = 't',
	  .type = OPT_WORD,
	  .arg = "TARGET",
	  .word = tgt_name_at,
	  .offset = DEV(target),
	  .help = "what answers the I/O (required)" },
	{ .name = "id",
	  .letter = 'n',
	  .type = OPT_ID,
	  .arg = "ID",
	  .offset = DEV(id),
	  .help = "device id (default: the lowest that is free)" },
	{ .name = "batch",
	  .letter = 'b',
	  .type = OPT_FLAG,
	  .offset = DEV(batch),
	  .help = "use the driver's batch I/O path (Linux 7.0)" },
	{ .name = "queues",
	  .letter = 'q',
	  .type = OPT_UINT,
	  .arg = "N",
	  .offset = DEV(queues),
	  .min = 1,
	  .max = UBLK_MAX_NR_QUEUES,
	  .help = "hardware queues (default: CPUs, at most 4)" },
	{ .name = "depth",
	  .letter = 'd',
	  .type = OPT_UINT,
	  .arg = "N",
	  .offset = DEV(depth),
	  .min = 1,
	  .max = UBLK_MAX_QUEUE_DEPTH,
	  .help = "requests per queue, 1 to 4096 (default: 128)" },
	{ .name = "threads",
	  .type = OPT_UINT,
	  .arg = "N",
	  .offset = DEV(threads),
	  .min = 1,
	  .max = UBLK_MAX_NR_QUEUES,
	  .help = "I/O threads (default: one per queue; others only with --batch)" },
	{ .name = "affinity",
	  .type = OPT_TEXT,
	  .arg = "QUEUE=CPUS[:...]",
	  .offset = DEV(affinity),
	  .help = "CPUs of a queue's threads, as 0=0-3,5:1=4 (default: the driver's)" },
	{ .name = "size",
	  .letter = 's',
	  .type = OPT_SIZE,
	  .arg = "SIZE",
	  .offset = DEV(size),
	  .min = 512,
	  .max = SIZE_MAX_BYTES,
	  .help = "size of the device (null: 250G; file: to the end of the backing)" },
	{ .name = "block-size",
	  .type = OPT_SIZE,
	  .arg = "SIZE",
	  .offset = DEV(block_size),
	  .min = 512,
	  .max = 4096,
	  .pow2 = true,
	  .help = "logical block size (default: 512, or that of the backing)" },
	{ .name = "physical-block-size",
	  .type = OPT_SIZE,
	  .arg = "SIZE",
	  .offset = DEV(phys_block_size),
	  .min = 512,
	  .max = 1024 * KIB,
	  .pow2 = true,
	  .help = "physical block size (default: 4096, or that of the backing)" },
	{ .name = "max-io",
	  .type = OPT_SIZE,
	  .arg = "SIZE",
	  .offset = DEV(max_io),
	  .min = 4096,
	  .max = UBLK_MAX_IO_BUF_BYTES,
	  .help = "largest request (default: 512K, at most 32M)" },
	{ .name = "read-only",
	  .type = OPT_FLAG,
	  .offset = DEV(read_only),
	  .help = "make a read-only device" },
	{ .name = "data-mode",
	  .type = OPT_WORD,
	  .arg = "MODE",
	  .word = mode_word,
	  .offset = DEV(mode_word),
	  .help = "how data moves, see DATA MODES in ublkctl(8) (default: copy)" },
	{ .name = "user-copy",
	  .letter = 'u',
	  .type = OPT_FLAG,
	  .offset = ADD(user_copy),
	  .help = "--data-mode user-copy" },
	{ .name = "zero-copy",
	  .letter = 'z',
	  .type = OPT_FLAG,
	  .offset = ADD(zero_copy),
	  .help = "--data-mode zero-copy" },
	{ .name = "auto-zc", .type = OPT_FLAG, .offset = ADD(auto_zc), .help = "--data-mode auto-zc" },
	{ .name = "recovery",
	  .letter = 'r',
	  .type = OPT_WORD,
	  .arg = "HOW",
	  .word = cfg_recovery_name,
	  .offset = DEV(recovery_word),
	  .help = "if the server dies: off (default), queue, reissue or fail-io" },
	{ .name = "no-partscan",
	  .type = OPT_FLAG,
	  .offset = DEV(no_partscan),
	  .help = "no partition scan at start (Linux 7.0)" },
	{ .name = "unprivileged",
	  .type = OPT_FLAG,
	  .offset = DEV(unprivileged),
	  .help = "make a device of the calling user, who is not root" },
	{ .name = "mlock",
	  .type = OPT_FLAG,
	  .offset = DEV(mlock),
	  .help = "lock the I/O buffers in memory, all of them, at start" },
	{ .name = "foreground",
	  .type = OPT_FLAG,
	  .offset = DEV(foreground),
	  .help = "serve from this process until it is stopped" },
	{ .name = "timeout",
	  .type = OPT_UINT,
	  .arg = "SEC",
	  .offset = DEV(timeout_s),
	  .min = 1,
	  .max = CMD_TIMEOUT_MAX,
	  .help = "deadline (default: 30)" },
	{ .name = "json", .type = OPT_FLAG, .offset = ADD(json), .help = "print the new device as JSON" },
	OPT_END
};
/* clang-format on */

static const struct add_cfg add_defaults = {
	.dev = {
		.id = CFG_ID_ANY,
		.depth = 128,
		.max_io = 512 * KIB,
		.timeout_s = CMD_TIMEOUT_DEFAULT,
	},
};

/* At most one way to say the mode; "best" is copy until the driver was asked. */
static int choose_mode(struct add_cfg *cfg, struct fail *f)
{
	struct dev_cfg *d = &cfg->dev;

	if (!!d->mode_word + cfg->user_copy + cfg->zero_copy + cfg->auto_zc > 1)
		return fail_set(f, FAIL_USAGE, "more than one data mode");
	if (cfg->user_copy)
		d->mode = DATA_USER_COPY;
	if (cfg->zero_copy)
		d->mode = DATA_ZERO_COPY;
	if (cfg->auto_zc)
		d->mode = DATA_AUTO_ZC;
	if (cfg_index(iobuf_mode_name, d->mode_word) >= 0)
		d->mode = (enum data_mode)cfg_index(iobuf_mode_name, d->mode_word);
	return 0;
}

/* Requests that the busiest thread can have at a time. */
static unsigned int tags_per_thread(const struct dev_cfg *d)
{
	return (d->queues + d->threads - 1) / d->threads * d->depth;
}

/*
 * The fastest mode by measurement: a null device has no data to move and copy costs least; any
 * other target saves a copy where the driver registers request pages.
 */
static void choose_best(struct dev_cfg *d, const struct tgt_ops *tgt, uint64_t mask)
{
	if (!d->mode_word || strcmp(d->mode_word, BEST) || !tgt->fixed_bufs || d->unprivileged ||
	    tags_per_thread(d) > BUF_SLOTS_MAX)
		return;
	if (mask & UBLK_F_AUTO_BUF_REG)
		d->mode = DATA_AUTO_ZC;
	else if (mask & UBLK_F_SUPPORT_ZERO_COPY)
		d->mode = DATA_ZERO_COPY;
}

static void set_defaults(struct dev_cfg *d)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (!d->queues)
		d->queues = cpus < 1		      ? 1 :
			    cpus > QUEUES_DEFAULT_MAX ? QUEUES_DEFAULT_MAX :
							(unsigned int)cpus;
	if (!d->threads)
		d->threads = d->queues;
	/* its queue of events holds two or more (Linux 7.3: ADD_DEV says EINVAL) */
	if (d->batch && d->depth < BATCH_DEPTH_MIN) {
		msg_warn("--depth %u: the driver's batch path takes %u or more, using %u", d->depth,
			 BATCH_DEPTH_MIN, BATCH_DEPTH_MIN);
		d->depth = BATCH_DEPTH_MIN;
	}
}

static int check_cfg(const struct dev_cfg *d, struct fail *f)
{
	unsigned int tags = tags_per_thread(d);

	if (!d->batch && d->threads != d->queues)
		return fail_set(f, FAIL_USAGE,
				"--threads %u: without --batch there is one thread per queue (%u)",
				d->threads, d->queues);
	if (d->batch && iobuf_mode(d->mode)->per_io_only)
		return fail_set(f, FAIL_USAGE, "--data-mode %s: the batch path has no such command",
				iobuf_mode(d->mode)->name);
	if (iobuf_mode(d->mode)->request_buf && tags > BUF_SLOTS_MAX)
		return fail_set(
			f, FAIL_USAGE,
			"%u requests per thread: the %s mode can have %u (fewer queues per thread or depth)",
			tags, iobuf_mode(d->mode)->name, BUF_SLOTS_MAX);
	if (d->phys_block_size && d->phys_block_size < d->block_size)
		return fail_set(f, FAIL_USAGE,
				"--physical-block-size: %llu is smaller than the block size %llu",
				(unsigned long long)d->phys_block_size,
				(unsigned long long)d->block_size);
	if (d->max_io % 4096)
		return fail_set(f, FAIL_USAGE, "--max-io: %llu is not a multiple of 4096",
				(unsigned long long)d->max_io);
	return 0;
}

/* In the form that is shown and recorded: by queue, each list as short as can be. */
static int tidy_affinity(struct dev_cfg *d, struct fail *f)
{
	static char text[CFG_AFFINITY_TEXT]; /* cfg points to it until the end */
	_cleanup_free_ cpu_set_t *sets = calloc(d->queues, sizeof(*sets));
	int r;

	if (!d->affinity)
		return 0;
	if (!sets)
		return fail_errno(f, ENOMEM, "cannot start");
	r = aff_check(d->affinity, d->queues, f);
	if (r < 0)
		return r;
	aff_apply(d->affinity, d->queues, sets);
	if (aff_format(sets, d->queues, text) < 0)
		return fail_set(f, FAIL_USAGE, "--affinity: too long");
	d->affinity = text;
	return 0;
}

/* What the driver would refuse, or drop without a word. */
static int check_unprivileged(const struct dev_cfg *d, struct fail *f)
{
	const struct iobuf_mode *mode = iobuf_mode(d->mode);

	if (!d->unprivileged)
		return 0;
	if (geteuid() == 0)
		return fail_set(f, FAIL_USAGE, "--unprivileged: only for users other than root");
	if (mode->request_buf || !mode->commit_addr)
		return fail_set(
			f, FAIL_USAGE,
			"--data-mode %s: not with --unprivileged, whose server the driver does not trust with kernel memory (copy and get-data can be had)",
			mode->name);
	if (d->recovery != RECOVERY_OFF)
		return fail_set(
			f, FAIL_USAGE,
			"--recovery %s: not with --unprivileged, the driver does not let I/O wait for such a server",
			cfg_recovery_name(d->recovery));
	return 0;
}

/* Refuses what the driver has not, before anything is made; the ring does not cross the fork. */
static int check_driver(struct dev_cfg *d, const struct tgt_ops *tgt, struct fail *f)
{
	struct ctrl c;
	uint64_t mask;
	int r = cmd_open_ctrl(&c, (int)d->timeout_s * 1000, f);

	if (r < 0)
		return r;
	r = cmd_get_features(&c, &mask, f);
	ctrl_close(&c);
	if (r < 0)
		return r;
	choose_best(d, tgt, mask);
	/* where the driver has it, a device that can be recovered can also be handed over */
	d->quiesce = d->recovery != RECOVERY_OFF && (mask & UBLK_F_QUIESCE);
	return cmd_need_features(serve_wanted_flags(d), mask, f);
}

static int print_result(const struct add_cfg *cfg, int id, struct fail *f)
{
	int r = cfg->json ? cmd_print_device(id, f) : 0;

	if (r < 0)
		return r;
	if ((!cfg->json && printf("/dev/ublkb%d\n", id) < 0) || fflush(stdout))
		return fail_errno(f, errno,
				  "cannot write to standard output, device %d is deleted again", id);
	return 0;
}

static int add_background(struct add_cfg *cfg, struct fail *f)
{
	struct launched l;
	int r = launch(&cfg->dev, &l, f);

	if (r < 0)
		return r;
	r = print_result(cfg, l.id, f);
	if (r < 0)
		launch_undo(&cfg->dev, &l);
	return r;
}

/* An option of one target with another is a mistake, not a word to ignore. */
static int check_target_options(const struct cmd_args *a, const struct tgt_ops *tgt, struct fail *f)
{
	const struct tgt_ops *other;

	for (unsigned int i = 0; (other = tgt_at(i)); i++)
		for (const struct opt *o = other->options; other != tgt && o->name; o++)
			if (opt_was_seen(a->options, a->seen, o->name))
				return fail_set(f, FAIL_USAGE, "--%s: only with -t %s", o->name,
						other->name);
	return 0;
}

/* The target knows that its backing is taken; which device has it, the records tell. */
static void name_attached(const struct dev_cfg *d, struct fail *f)
{
	_cleanup_free_ int *ids = NULL;
	size_t n = 0, len = strlen(f->text);
	struct dev_view v;

	if (!d->file_dev || dev_scan(&ids, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++)
		if (dev_probe(NULL, ids[i], &v) == 0 && v.has_record &&
		    v.rec.cfg.file_ino == d->file_ino && v.rec.cfg.file_dev == d->file_dev) {
			snprintf(f->text + len, sizeof(f->text) - len, ": by device %d", ids[i]);
			return;
		}
}

static int add_run(const struct cmd_args *a, struct fail *f)
{
	struct add_cfg *cfg = a->cfg;
	const struct tgt_ops *tgt;
	int r;

	if (!cfg->dev.target)
		return fail_set(f, FAIL_USAGE, "--type TARGET is needed (-t null)");
	if (cfg->json && cfg->dev.foreground)
		return fail_set(f, FAIL_USAGE, "--json and --foreground exclude each other");
	tgt = tgt_find(cfg->dev.target);
	cfg->dev.umask = umask(022);
	umask(cfg->dev.umask);
	set_defaults(&cfg->dev);
	if (cfg->dev.recovery_word)
		cfg->dev.recovery =
			(enum recovery)cfg_index(cfg_recovery_name, cfg->dev.recovery_word);
	r = check_target_options(a, tgt, f);
	if (!r)
		r = choose_mode(cfg, f);
	if (!r)
		r = check_cfg(&cfg->dev, f);
	if (!r)
		r = check_unprivileged(&cfg->dev, f);
	if (!r)
		r = tidy_affinity(&cfg->dev, f);
	if (!r)
		r = tgt->check(&cfg->dev, f);
	if (r == -EBUSY)
		name_attached(&cfg->dev, f);
	if (!r)
		r = check_driver(&cfg->dev, tgt, f);
	if (r < 0)
		return r;
	if (!cfg->dev.foreground)
		return add_background(cfg, f);
	return serve(&cfg->dev, -1);
}

const struct cmd cmd_add = {
	.name = "add",
	.summary = "add a device and start its server",
	.options = add_options,
	.flags = CMD_TARGET_OPTIONS,
	.target_offset = offsetof(struct add_cfg, dev),
	.cfg_size = sizeof(struct add_cfg),
	.cfg_defaults = &add_defaults,
	.run = add_run,
};
