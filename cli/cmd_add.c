/* SPDX-License-Identifier: MIT */
/*
 * add: words → struct dev_cfg, checks, a server in the background, its device verified.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "add.h"
#include "cmd.h"
#include "dev/qattr.h"
#include "engine/iobuf.h"
#include "launch.h"
#include "serve.h"
#include "target/target.h"
#include "util/num.h"

struct add_cfg {
	struct cmd_common common;
	bool json, user_copy, zero_copy, auto_zc;
	struct dev_cfg dev;
};

#define ADD(member) offsetof(struct add_cfg, member)
#define DEV(member) offsetof(struct add_cfg, dev.member)
#define KIB 1024ULL
#define SIZE_MAX_BYTES ((uint64_t)INT64_MAX & ~4095ULL)

/* The data modes, and best. */
static const char *mode_word(unsigned int n)
{
	if (n > 0 && !iobuf_mode_name(n) && iobuf_mode_name(n - 1))
		return ADD_MODE_BEST;
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
	{ .name = "scheduler",
	  .type = OPT_WORD,
	  .arg = "NAME",
	  .word = qattr_scheduler_word,
	  .offset = DEV(scheduler),
	  .help = "I/O scheduler: none (default), mq-deadline, kernel (its choice)" },
	{ .name = "queue-attr",
	  .type = OPT_TEXT,
	  .arg = "NAME=VALUE[,...]",
	  .offset = DEV(queue_attr),
	  .help = "attributes of the disk's queue, as nomerges=2,iostats=0" },
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
	{ .name = "hugepages",
	  .type = OPT_FLAG,
	  .offset = DEV(hugepages),
	  .help = "I/O buffers in huge pages: reserved ones, or transparent ones" },
	{ .name = "poll",
	  .type = OPT_UINT,
	  .arg = "USEC",
	  .offset = DEV(poll_us),
	  .max = CFG_POLL_US_MAX,
	  .help = "I/O threads look for work so long before they sleep (default: 0)" },
	CMD_OPT_FOREGROUND(DEV(foreground), "serve from this process until it is stopped"),
	CMD_OPT_TIMEOUT(DEV(timeout_s), "deadline (default: 30)"),
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
	/* a device that nobody was told of must not stay: a reader may have gone */
	signal(SIGPIPE, SIG_IGN);
	r = print_result(cfg, l.id, f);
	if (r < 0)
		launch_undo(&cfg->dev, &l);
	sigprocmask(SIG_SETMASK, &l.before, NULL);
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

static int add_run(const struct cmd_args *a, struct fail *f)
{
	struct add_cfg *cfg = a->cfg;
	int r;

	if (!cfg->dev.target)
		return fail_set(f, FAIL_USAGE, "--type TARGET is needed (-t null)");
	if (cfg->json && cfg->dev.foreground)
		return fail_set(f, FAIL_USAGE, "--json and --foreground exclude each other");
	if (cfg->dev.recovery_word)
		cfg->dev.recovery =
			(enum recovery)cfg_index(cfg_recovery_name, cfg->dev.recovery_word);
	r = check_target_options(a, tgt_find(cfg->dev.target), f);
	if (!r)
		r = choose_mode(cfg, f);
	if (!r)
		r = add_prepare(&cfg->dev, f);
	if (r < 0)
		return r;
	if (cfg->dev.null_data && !strcmp(cfg->dev.null_data, "none"))
		msg_warn("reads of this device return uninitialized kernel memory (--null-data none)");
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
