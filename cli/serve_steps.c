/* SPDX-License-Identifier: MIT */
/*
 * The way up of a server: from an open target to a device that answers. serve.c takes it back.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "abi/feature.h"
#include "daemon.h"
#include "dev/affinity.h"
#include "dev/qattr.h"
#include "engine/iobuf.h"
#include "protect.h"
#include "serve_int.h"
#include "util/cleanup.h"
#include "util/fault.h"
#include "util/fs.h"
#include "util/num.h"
#include "version.h"

uint64_t serve_wanted_flags(const struct dev_cfg *cfg)
{
	static const uint64_t recovery[] = {
		[RECOVERY_QUEUE] = UBLK_F_USER_RECOVERY,
		[RECOVERY_REISSUE] = UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_REISSUE,
		[RECOVERY_FAIL_IO] = UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_FAIL_IO,
	};
	uint64_t flags =
		UBLK_F_CMD_IOCTL_ENCODE | iobuf_mode(cfg->mode)->flags | recovery[cfg->recovery];

	if (cfg->batch)
		flags |= UBLK_F_BATCH_IO;
	if (cfg->no_partscan)
		flags |= UBLK_F_NO_AUTO_PART_SCAN;
	if (cfg->quiesce)
		flags |= UBLK_F_QUIESCE;
	if (cfg->unprivileged)
		flags |= UBLK_F_UNPRIVILEGED_DEV;
	return flags;
}

/* Time left for the next control command. */
static void set_ctrl_timeout(struct server *s)
{
	int64_t left = s->deadline - fs_now_ms();

	s->ctrl.timeout_ms = left > 1 ? (int)left : 1;
}

static int check_granted(struct server *s, uint64_t granted, struct fail *f)
{
	uint64_t missing = serve_wanted_flags(&s->cfg) & ~granted;
	const struct abi_feature *feat;

	if (!missing)
		return 0;
	feat = abi_feature_by_bit((unsigned int)__builtin_ctzll(missing));
	return fail_set(f, FAIL_UNSUPPORTED, "the driver did not grant %s for device %d",
			feat ? feat->name : "a feature", s->cfg.id);
}

/* For whoever started the server: its own stderr is nobody's by now. */
__attribute__((format(printf, 2, 3))) static void add_warning(struct server *s, const char *fmt, ...)
{
	size_t n = strlen(s->warning);
	va_list ap;

	if (n && n + 2 < sizeof(s->warning))
		n += (size_t)snprintf(s->warning + n, sizeof(s->warning) - n, "; ");
	va_start(ap, fmt);
	vsnprintf(s->warning + n, sizeof(s->warning) - n, fmt, ap);
	va_end(ap);
}

/* The driver may lower queues and depth: what it granted is what is served. */
static void take_grant(struct server *s)
{
	const struct ublksrv_ctrl_dev_info *i = &s->info;

	if (i->nr_hw_queues != s->cfg.queues)
		add_warning(s, "the driver granted %u of %u queues", i->nr_hw_queues, s->cfg.queues);
	if (i->queue_depth != s->cfg.depth)
		add_warning(s, "the driver granted a depth of %u, not %u", i->queue_depth,
			    s->cfg.depth);
	/* one for each queue stays that */
	if (s->cfg.threads == s->cfg.queues)
		s->cfg.threads = i->nr_hw_queues;
	s->cfg.id = (int)i->dev_id;
	s->cfg.queues = i->nr_hw_queues;
	s->cfg.depth = i->queue_depth;
	s->cfg.max_io = i->max_io_buf_bytes;
}

/* From here on whoever waits for the server can delete the device if it does not get ready. */
static void tell_added(const struct server *s)
{
	struct daemon_msg m = { .kind = DAEMON_ADDED, .id = s->cfg.id, .cookie = s->rec.cookie };

	if (s->report_fd >= 0)
		daemon_report(s->report_fd, &m);
}

static int step_add(struct server *s, struct fail *f)
{
	int r;

	while (getrandom(&s->rec.cookie, sizeof(s->rec.cookie), 0) < 0 || !s->rec.cookie)
		;
	s->info = (struct ublksrv_ctrl_dev_info){
		.dev_id = (uint32_t)s->cfg.id,
		.nr_hw_queues = (uint16_t)s->cfg.queues,
		.queue_depth = (uint16_t)s->cfg.depth,
		.max_io_buf_bytes = (uint32_t)s->cfg.max_io,
		.ublksrv_pid = getpid(),
		.flags = serve_wanted_flags(&s->cfg),
		.ublksrv_flags = s->rec.cookie,
	};
	set_ctrl_timeout(s);
	r = ctrl_add_dev(&s->ctrl, &s->info);
	if (r == -EEXIST)
		return fail_set(f, EEXIST, "device id %d is taken", s->cfg.id);
	if (r < 0)
		return fail_errno(f, -r, "cannot add a device");
	s->step = STEP_ADDED;
	take_grant(s);
	tell_added(s);
	return check_granted(s, s->info.flags, f);
}

static void fill_record(struct server *s)
{
	struct record *rec = &s->rec;
	time_t now = time(NULL);
	struct tm tm;

	rec->cfg = s->cfg;
	rec->stopped = false;
	snprintf(rec->target, sizeof(rec->target), "%s", s->tgt->name);
	snprintf(rec->data_mode, sizeof(rec->data_mode), "%s", iobuf_mode(s->cfg.mode)->name);
	snprintf(rec->backing, sizeof(rec->backing), "%s", s->cfg.file ? s->cfg.file : "");
	snprintf(rec->io, sizeof(rec->io), "%s", s->cfg.file ? cfg_io_name(s->cfg.io) : "");
	snprintf(rec->null_data, sizeof(rec->null_data), "%s",
		 s->cfg.null_data ? s->cfg.null_data : "");
	if (s->cfg.affinity != rec->affinity)
		snprintf(rec->affinity, sizeof(rec->affinity), "%s",
			 s->cfg.affinity ? s->cfg.affinity : "");
	snprintf(rec->scheduler, sizeof(rec->scheduler), "%s",
		 s->cfg.scheduler ? s->cfg.scheduler : "");
	snprintf(rec->queue_attr, sizeof(rec->queue_attr), "%s",
		 s->cfg.queue_attr ? s->cfg.queue_attr : "");
	snprintf(rec->hugepages, sizeof(rec->hugepages), "%s",
		 s->cfg.hugepages ? cfg_huge_name(s->eng ? eng_huge_pages(s->eng) : HUGE_NONE) : "");
	snprintf(rec->version, sizeof(rec->version), "%s", UBLKCTL_VERSION);
	rec->pid = getpid();
	rec->pid_start = fs_pid_start(rec->pid);
	snprintf(rec->recovery, sizeof(rec->recovery), "%s", cfg_recovery_name(s->cfg.recovery));
	if (s->how == SERVE_ADD)
		strftime(rec->created, sizeof(rec->created), "%Y-%m-%dT%H:%M:%SZ",
			 gmtime_r(&now, &tm));
}

/* Written before anything can go wrong with a server in place, and once more at the end. */
static int step_record(struct server *s, struct fail *f)
{
	int r;

	s->rec_dir = rec_open_dir(true);
	if (s->rec_dir < 0)
		return fail_errno(f, -s->rec_dir, "cannot use the record directory /run/ublkctl");
	fill_record(s);
	r = rec_write(s->rec_dir, &s->rec);
	if (r < 0)
		return fail_errno(f, -r, "cannot write the record of device %d", s->cfg.id);
	s->step = STEP_RECORDED;
	return 0;
}

/* The device of a record, as it is now: nothing is asked for, what it was granted is served. */
static int step_adopt(struct server *s, struct fail *f)
{
	int id = s->cfg.id, r;

	set_ctrl_timeout(s);
	r = ctrl_get_dev_info(&s->ctrl, (uint32_t)id, &s->info);
	if (r == -ENODEV || (!r && s->info.ublksrv_flags != s->rec.cookie))
		return fail_set(f, ENODEV, "device %d is gone", id);
	if (r < 0)
		return fail_errno(f, -r, "cannot look at device %d", id);
	take_grant(s);
	r = check_granted(s, s->info.flags, f);
	if (r < 0)
		return r;
	s->rec_dir = rec_open_dir(false);
	if (s->rec_dir < 0)
		return fail_errno(f, -s->rec_dir, "cannot use the record directory /run/ublkctl");
	fill_record(s);
	return 0;
}

/* EBUSY until the driver is done with the last server: its end takes as long as its I/O. */
static int step_recovery(struct server *s, struct fail *f)
{
	int r;

	for (;;) {
		set_ctrl_timeout(s);
		r = ctrl_start_recovery(&s->ctrl, (uint32_t)s->cfg.id);
		if (r != -EBUSY)
			break;
		if (fs_now_ms() >= s->deadline)
			return fail_set(f, ETIME,
					"device %d: timed out waiting for the end of its last server",
					s->cfg.id);
		fs_sleep_ms(SERVE_POLL_MS);
	}
	/*
	 * Linux 6.12 says EINVAL when an earlier try got so far and no further: then this step is done.
	 * Where it means anything else, the next ones say so.
	 */
	return r < 0 && r != -EINVAL ? fail_errno(f, -r, "cannot recover device %d", s->cfg.id) : 0;
}

/* With its node open the id stays this device's: is it still the one of the record? */
static int check_adopted(struct server *s, struct fail *f)
{
	struct ublksrv_ctrl_dev_info info;
	struct record now;
	int r;

	set_ctrl_timeout(s);
	r = ctrl_get_dev_info(&s->ctrl, (uint32_t)s->cfg.id, &info);
	if (r < 0)
		return fail_errno(f, -r, "cannot look at device %d", s->cfg.id);
	if (info.ublksrv_flags != s->rec.cookie)
		return fail_set(f, ENODEV, "device %d is gone", s->cfg.id);
	/* what was changed while the last server ended */
	if (rec_read(s->rec_dir, s->cfg.id, &now) == 0 && now.cookie == s->rec.cookie) {
		s->cfg.size = now.cfg.size;
		s->was_stopped = now.stopped;
		snprintf(s->rec.affinity, sizeof(s->rec.affinity), "%s", now.affinity);
		s->cfg.affinity = *s->rec.affinity ? s->rec.affinity : NULL;
		fill_record(s);
	}
	return 0;
}

/* udev can be slower than we are, or have the new node open itself. */
static int step_open(struct server *s, struct fail *f)
{
	char path[FS_PATH_MAX];

	fs_path(path, "/dev/ublkc%d", s->cfg.id);
	for (;;) {
		s->cdev = open(path, O_RDWR | O_CLOEXEC);
		if (s->cdev >= 0)
			break;
		if (errno == EACCES && s->cfg.unprivileged && fs_now_ms() >= s->deadline)
			return fail_set(
				f, EACCES,
				"cannot open %s: no udev rule has given it to this user (61-ublkctl-unprivileged.rules)",
				path);
		if ((errno != ENOENT && errno != EBUSY && errno != EACCES) ||
		    fs_now_ms() >= s->deadline)
			return fail_errno(f, errno, "cannot open %s", path);
		fs_sleep_ms(SERVE_POLL_MS);
	}
	s->step = STEP_OPENED;
	return s->how == SERVE_ADD ? 0 : check_adopted(s, f);
}

static int step_params(struct server *s, struct fail *f)
{
	const struct dev_cfg *c = &s->cfg;
	struct ublk_params p = { .types = UBLK_PARAM_TYPE_BASIC };
	int r;

	p.basic = (struct ublk_param_basic){
		.attrs = c->read_only ? UBLK_ATTR_READ_ONLY : 0,
		.logical_bs_shift = (uint8_t)num_log2(c->block_size),
		.physical_bs_shift = (uint8_t)num_log2(c->phys_block_size),
		.io_min_shift = (uint8_t)num_log2(c->phys_block_size),
		.io_opt_shift = (uint8_t)num_log2(c->phys_block_size),
		.max_sectors = (uint32_t)(c->max_io >> 9),
		.dev_sectors = c->size >> 9,
	};
	s->tgt->params(&s->dev, c, &p);
	set_ctrl_timeout(s);
	r = ctrl_set_params(&s->ctrl, (uint32_t)c->id, &p);
	return r < 0 ? fail_errno(f, -r, "cannot set the parameters of device %d", c->id) : 0;
}

static int get_affinity(struct server *s, cpu_set_t *sets, struct fail *f)
{
	for (unsigned int q = 0; q < s->cfg.queues; q++) {
		int r;

		set_ctrl_timeout(s);
		r = ctrl_get_queue_affinity(&s->ctrl, (uint32_t)s->cfg.id, (uint16_t)q, &sets[q]);
		/* a machine with more CPUs than cpu_set_t holds: threads keep their CPUs */
		if (r == -EINVAL)
			CPU_ZERO(&sets[q]);
		else if (r < 0)
			return fail_errno(f, -r, "cannot get the CPUs of queue %u", q);
	}
	aff_apply(s->cfg.affinity, s->cfg.queues, sets);
	return 0;
}

/* They make nothing possible that usual pages do not: without them the device is served all the same. */
static void note_huge_pages(struct server *s)
{
	if (!s->cfg.hugepages)
		return;
	fill_record(s);
	if (eng_huge_pages(s->eng) != HUGE_NONE)
		return;
	if (iobuf_mode(s->cfg.mode)->server_buf)
		add_warning(s,
			    "no huge pages for I/O buffers: too few are reserved (vm.nr_hugepages), and transparent ones are off");
	else
		add_warning(s, "no huge pages: in the %s mode there are no I/O buffers",
			    iobuf_mode(s->cfg.mode)->name);
}

static int check_lockable(const struct server *s, struct fail *f)
{
	const struct dev_cfg *c = &s->cfg;
	/* the last server's memory is given back a while after it has ended */
	const int64_t until = s->how == SERVE_ADD ? 0 : fs_now_ms() + SERVE_LET_GO_MS;
	int r;

	/* huge pages that are reserved are no longer among what is available */
	if (!c->mlock || c->hugepages || !iobuf_mode(c->mode)->server_buf)
		return 0;
	while ((r = protect_can_lock((uint64_t)c->queues * c->depth * c->max_io, f)) < 0 &&
	       fs_now_ms() < until)
		fs_sleep_ms(SERVE_POLL_MS);
	return r;
}

static int step_engine(struct server *s, struct fail *f)
{
	_cleanup_free_ cpu_set_t *sets = calloc(s->cfg.queues, sizeof(*sets));
	struct eng_cfg ec = {
		.id = s->cfg.id,
		.queues = s->cfg.queues,
		.depth = s->cfg.depth,
		.threads = s->cfg.threads,
		.max_io = s->cfg.max_io,
		.lock_bufs = s->cfg.mlock,
		.huge_bufs = s->cfg.hugepages,
		.poll_us = s->cfg.poll_us,
		.batch = s->cfg.batch,
		.mode = s->cfg.mode,
		.tgt = s->tgt,
		.tgt_priv = s->dev.priv,
		.fixed_bufs = s->tgt->fixed_bufs && !s->dev.plain_bufs,
		.fds = { s->cdev },
		.nr_fds = 1 + s->dev.nr_fds,
		.affinity = sets,
	};
	int r;

	/* before the first request, the driver's own for partitions: its failure is told there */
	if (s->report_fd >= 0)
		msg_to_syslog(s->cfg.id);
	if (!sets)
		return fail_errno(f, ENOMEM, "cannot start the I/O engine");
	r = protect_memory();
	if (r < 0)
		msg_warn("memory is not locked (%s): when memory is short this server can wait for its own device",
			 r == -EPERM ? "not permitted: RLIMIT_MEMLOCK, CAP_IPC_LOCK" : strerror(-r));
	memcpy(&ec.fds[1], s->dev.fds, s->dev.nr_fds * sizeof(ec.fds[0]));
	r = get_affinity(s, sets, f);
	if (!r)
		r = check_lockable(s, f);
	if (!r)
		r = eng_start(&ec, &s->eng, f);
	if (r == -EINVAL && s->how == SERVE_START) {
		f->err = SERVE_NO_SECOND;
		return -SERVE_NO_SECOND;
	}
	if (!r) {
		protect_from_oom();
		note_huge_pages(s);
	}
	if (!r && eng_flusher_errno(s->eng))
		add_warning(s,
			    "I/O threads are no I/O flushers (%s): memory reclaim may wait for this device",
			    strerror(eng_flusher_errno(s->eng)));
	return r;
}

static int step_start(struct server *s, struct fail *f)
{
	const bool anew = s->how != SERVE_RECOVER;
	int r;

	set_ctrl_timeout(s);
	r = (anew ? ctrl_start_dev : ctrl_end_recovery)(&s->ctrl, (uint32_t)s->cfg.id, getpid());
	if (r == -ETIME)
		return fail_set(f, ETIME, "device %d did not start in time", s->cfg.id);
	if (r < 0)
		return fail_errno(f, -r, "cannot %s device %d", anew ? "start" : "recover", s->cfg.id);
	s->step = STEP_STARTED;
	set_ctrl_timeout(s);
	r = ctrl_get_dev_info(&s->ctrl, (uint32_t)s->cfg.id, &s->info);
	if (r < 0)
		return fail_errno(f, -r, "cannot read back device %d", s->cfg.id);
	return check_granted(s, s->info.flags, f);
}

static void not_set(void *arg, const char *name, const char *value, int err)
{
	add_warning(arg, "queue/%s is not set to %s: %s", name, value, strerror(err));
}

/*
 * A disk works without its settings: what cannot be set is told and is no failure. Recovery keeps the
 * disk, and with it what was set.
 */
static int step_tune(struct server *s, struct fail *f)
{
	(void)f;
	qattr_apply(s->cfg.id, s->cfg.scheduler, s->cfg.queue_attr, not_set, s);
	return 0;
}

/* What other commands may have changed since it was read is theirs: size, CPUs, the wish to stop. */
static void commit(struct record *now, const void *arg)
{
	const struct server *s = arg;
	struct record rec = s->rec;

	rec.cfg.size = now->cfg.size;
	if (rec.cfg.file_size < now->cfg.file_size)
		rec.cfg.file_size = now->cfg.file_size;
	memcpy(rec.affinity, now->affinity, sizeof(rec.affinity));
	rec.stopped = now->stopped && !s->was_stopped;
	*now = rec;
}

static int step_commit(struct server *s, struct fail *f)
{
	int r = rec_update(s->cfg.id, s->rec.cookie, commit, s);

	return r < 0 ? fail_errno(f, -r, "cannot write the record of device %d", s->cfg.id) : 0;
}

typedef int step_fn(struct server *, struct fail *);

int serve_climb(struct server *s, struct fail *f)
{
	static step_fn *const ladders[][9] = {
		[SERVE_ADD] = { step_add, step_record, step_open, step_params, step_engine,
				step_start, step_tune, step_commit },
		[SERVE_START] = { step_adopt, step_open, step_params, step_engine, step_start,
				  step_tune, step_commit },
		[SERVE_RECOVER] = { step_adopt, step_recovery, step_open, step_engine, step_start,
				    step_commit },
	};

	fault_point("serve", 0);
	for (unsigned int i = 0; ladders[s->how][i]; i++) {
		int r = ladders[s->how][i](s, f);

		if (r < 0)
			return r;
		fault_point("serve", i + 1);
	}
	return 0;
}
