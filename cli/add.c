/* SPDX-License-Identifier: MIT */
#include "add.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dev/affinity.h"
#include "dev/dev.h"
#include "engine/iobuf.h"
#include "serve.h"
#include "target/target.h"
#include "util/cleanup.h"
#include "util/fs.h"

#define LET_GO_MS 1000 /* for a backing that is in use */
#define LET_GO_POLL_MS 20

#define QUEUES_DEFAULT_MAX 4
#define BATCH_DEPTH_MIN 2

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
	if (!d->mode_word || strcmp(d->mode_word, ADD_MODE_BEST) || !tgt->fixed_bufs ||
	    d->unprivileged || tags_per_thread(d) > IOBUF_SLOTS_MAX)
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
	/*
	 * What answers the I/O sorts it better than the disk in front of it. A user cannot write to
	 * sysfs: no wish, no warning.
	 */
	if (!d->scheduler && !d->unprivileged)
		d->scheduler = "none";
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
	if (iobuf_mode(d->mode)->request_buf && tags > IOBUF_SLOTS_MAX)
		return fail_set(
			f, FAIL_USAGE,
			"%u requests per thread: the %s mode can have %u (fewer queues per thread or depth)",
			tags, iobuf_mode(d->mode)->name, IOBUF_SLOTS_MAX);
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
	int r = dev_open_ctrl(&c, (int)d->timeout_s * 1000, f);

	if (r < 0)
		return r;
	r = dev_get_features(&c, &mask, f);
	ctrl_close(&c);
	if (r < 0)
		return r;
	choose_best(d, tgt, mask);
	/* where the driver has it, a device that can be recovered can also be handed over */
	d->quiesce = d->recovery != RECOVERY_OFF && (mask & UBLK_F_QUIESCE);
	return dev_need_features(serve_wanted_flags(d), mask, f);
}

/*
 * The target knows that its backing is taken; which device has it, the records tell: it is named. Has it a
 * server, which will keep it?
 */
static bool name_attached(const struct dev_cfg *d, struct fail *f)
{
	_cleanup_free_ int *ids = NULL;
	size_t n = 0, len = strlen(f->text);
	struct dev_view v;

	if (!d->file_dev || dev_scan(&ids, &n) < 0)
		return false;
	for (size_t i = 0; i < n; i++)
		if (dev_probe(NULL, ids[i], &v) == 0 && v.has_record &&
		    v.rec.cfg.file_ino == d->file_ino && v.rec.cfg.file_dev == d->file_dev) {
			snprintf(f->text + len, sizeof(f->text) - len, ": by device %d", ids[i]);
			return v.pid > 0;
		}
	return false;
}

/* A backing that a server has which is just ending is free in a moment. */
static int check_target(struct dev_cfg *d, const struct tgt_ops *tgt, struct fail *f)
{
	const int64_t until = fs_now_ms() + LET_GO_MS;
	int r;

	while ((r = tgt->check(d, f)) == -EBUSY && !name_attached(d, f) && fs_now_ms() < until)
		fs_sleep_ms(LET_GO_POLL_MS);
	return r;
}

int add_prepare(struct dev_cfg *d, struct fail *f)
{
	const struct tgt_ops *tgt = tgt_find(d->target);
	int r;

	d->umask = umask(022);
	umask(d->umask);
	set_defaults(d);
	r = check_cfg(d, f);
	if (!r)
		r = check_unprivileged(d, f);
	if (!r)
		r = tidy_affinity(d, f);
	if (!r && d->queue_attr)
		r = qattr_check(d->queue_attr, f);
	if (!r)
		r = check_target(d, tgt, f);
	return r < 0 ? r : check_driver(d, tgt, f);
}
