/* SPDX-License-Identifier: MIT */
#include "serve.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "abi/feature.h"
#include "companion.h"
#include "ctrl/ctrl.h"
#include "daemon.h"
#include "dev/record.h"
#include "engine/engine.h"
#include "engine/iobuf.h"
#include "isolate.h"
#include "target/target.h"
#include "util/cleanup.h"
#include "util/fs.h"
#include "util/num.h"
#include "version.h"

#define UNDO_TIMEOUT_MS 10000 /* for each command while undoing */

/* How far the ladder was climbed: undo() takes the same steps down. */
enum step { STEP_NONE, STEP_TARGET, STEP_ADDED, STEP_RECORDED, STEP_OPENED, STEP_STARTED };

struct server {
	struct dev_cfg cfg; /* with what the driver granted */
	const struct tgt_ops *tgt;
	struct tgt_dev dev;
	struct ctrl ctrl;
	int64_t deadline;
	int report_fd;
	enum step step;
	struct ublksrv_ctrl_dev_info info;
	struct record rec;
	int rec_dir, cdev, sig_fd;
	struct companion companion;
	struct eng *eng;
	bool undo; /* nobody was told of the device: what its target made goes with it */
	char warning[FAIL_TEXT];
};

uint64_t serve_wanted_flags(const struct dev_cfg *cfg)
{
	uint64_t flags = UBLK_F_CMD_IOCTL_ENCODE | iobuf_mode(cfg->mode)->flags;

	if (cfg->batch)
		flags |= UBLK_F_BATCH_IO;
	if (cfg->no_partscan)
		flags |= UBLK_F_NO_AUTO_PART_SCAN;
	return flags;
}

/* Time left for the next control command. */
static void set_ctrl_timeout(struct server *s)
{
	int64_t left = s->deadline - fs_now_ms();

	s->ctrl.timeout_ms = left > 1 ? (int)left : 1;
}

/* The last step of every way out. */
static void let_go(struct server *s)
{
	companion_dismiss(&s->companion);
	cleanup_fd(&s->rec_dir);
	cleanup_fd(&s->sig_fd);
	ctrl_close(&s->ctrl);
}

/* ---- the ladder ------------------------------------------------------------------------- */

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
	s->cfg.id = (int)i->dev_id;
	s->cfg.queues = i->nr_hw_queues;
	s->cfg.depth = i->queue_depth;
	s->cfg.max_io = i->max_io_buf_bytes;
	if (!s->cfg.batch)
		s->cfg.threads = s->cfg.queues;
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
	return check_granted(s, s->info.flags, f);
}

static void fill_record(struct server *s)
{
	struct record *rec = &s->rec;
	time_t now = time(NULL);
	struct tm tm;

	rec->cfg = s->cfg;
	snprintf(rec->target, sizeof(rec->target), "%s", s->tgt->name);
	snprintf(rec->data_mode, sizeof(rec->data_mode), "%s", iobuf_mode(s->cfg.mode)->name);
	snprintf(rec->backing, sizeof(rec->backing), "%s", s->cfg.file ? s->cfg.file : "");
	snprintf(rec->io, sizeof(rec->io), "%s", s->cfg.file ? cfg_io_name(s->cfg.io) : "");
	snprintf(rec->null_data, sizeof(rec->null_data), "%s",
		 s->cfg.null_data ? s->cfg.null_data : "");
	snprintf(rec->version, sizeof(rec->version), "%s", UBLKCTL_VERSION);
	rec->pid = getpid();
	rec->pid_start = fs_pid_start(rec->pid);
	strftime(rec->created, sizeof(rec->created), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
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

/* udev can be slower than we are, or have the new node open itself. */
static int step_open(struct server *s, struct fail *f)
{
	char path[FS_PATH_MAX];

	fs_path(path, "/dev/ublkc%d", s->cfg.id);
	for (;;) {
		s->cdev = open(path, O_RDWR | O_CLOEXEC);
		if (s->cdev >= 0)
			break;
		if ((errno != ENOENT && errno != EBUSY && errno != EACCES) ||
		    fs_now_ms() >= s->deadline)
			return fail_errno(f, errno, "cannot open %s", path);
		fs_sleep_ms(SERVE_POLL_MS);
	}
	s->step = STEP_OPENED;
	return 0;
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
	return 0;
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
		.batch = s->cfg.batch,
		.mode = s->cfg.mode,
		.tgt = s->tgt,
		.tgt_priv = s->dev.priv,
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
	memcpy(&ec.fds[1], s->dev.fds, s->dev.nr_fds * sizeof(ec.fds[0]));
	r = get_affinity(s, sets, f);
	if (!r)
		r = eng_start(&ec, &s->eng, f);
	if (!r && eng_flusher_errno(s->eng))
		add_warning(s,
			    "I/O threads are no I/O flushers (%s): memory reclaim may wait for this device",
			    strerror(eng_flusher_errno(s->eng)));
	return r;
}

static int step_start(struct server *s, struct fail *f)
{
	int r;

	set_ctrl_timeout(s);
	r = ctrl_start_dev(&s->ctrl, (uint32_t)s->cfg.id, getpid());
	if (r == -ETIME)
		return fail_set(f, ETIME, "device %d did not start in time", s->cfg.id);
	if (r < 0)
		return fail_errno(f, -r, "cannot start device %d", s->cfg.id);
	s->step = STEP_STARTED;
	set_ctrl_timeout(s);
	r = ctrl_get_dev_info(&s->ctrl, (uint32_t)s->cfg.id, &s->info);
	if (r < 0)
		return fail_errno(f, -r, "cannot read back device %d", s->cfg.id);
	return check_granted(s, s->info.flags, f);
}

static int step_commit(struct server *s, struct fail *f)
{
	int r = rec_write(s->rec_dir, &s->rec);

	return r < 0 ? fail_errno(f, -r, "cannot write the record of device %d", s->cfg.id) : 0;
}

static int climb(struct server *s, struct fail *f)
{
	static int (*const steps[])(struct server *, struct fail *) = {
		step_add, step_record, step_open, step_params, step_engine, step_start, step_commit,
	};

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		int r = steps[i](s, f);

		if (r < 0)
			return r;
	}
	return 0;
}

/*
 * Everything back in reverse. The engine is closed before the device is deleted: nobody may wait
 * for STOP_DEV or DEL_DEV in a process that holds /dev/ublkcN.
 */
static void undo(struct server *s)
{
	struct fail f;

	if (s->eng)
		eng_finish(s->eng, &f);
	s->eng = NULL;
	if (s->cdev >= 0)
		close(s->cdev);
	s->cdev = -1;
	s->ctrl.timeout_ms = UNDO_TIMEOUT_MS;
	/* the record first: the id is free for others once the device is gone */
	if (s->step >= STEP_RECORDED)
		rec_remove(s->rec_dir, s->cfg.id, s->rec.cookie);
	if (s->step >= STEP_ADDED)
		ctrl_del_dev(&s->ctrl, (uint32_t)s->cfg.id);
	if (s->step >= STEP_TARGET)
		s->tgt->close(&s->dev, true);
	let_go(s);
}

/* ---- running ---------------------------------------------------------------------------- */

static void on_signal(struct server *s)
{
	struct signalfd_siginfo si;

	if (read(s->sig_fd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
		msg_hint("device %d: ending on signal %u", s->cfg.id, si.ssi_signo);
		s->undo = si.ssi_signo == SERVE_SIG_UNDO;
		if (companion_delete(&s->companion, (uint32_t)s->cfg.id) < 0)
			msg_error("cannot delete the device: no companion process; use 'ublkctl del %d'",
				  s->cfg.id);
	}
}

/* Until the threads have ended: the device was stopped, or one of them failed. */
static void run(struct server *s)
{
	struct pollfd p[2] = {
		{ .fd = eng_done_fd(s->eng), .events = POLLIN },
		{ .fd = s->sig_fd, .events = POLLIN },
	};

	while (!(p[0].revents & POLLIN)) {
		if (poll(p, 2, -1) < 0)
			p[0].revents = p[1].revents = 0;
		if (p[1].revents & POLLIN)
			on_signal(s);
	}
}

/*
 * After the device: the record goes before /dev/ublkcN is closed, since the id is free for
 * others from then on. A server that failed leaves it: the device is still there, dead.
 */
static int wind_up(struct server *s)
{
	struct fail f;

	eng_finish(s->eng, &f);
	s->eng = NULL;
	s->tgt->close(&s->dev, s->undo);
	if (!f.err)
		rec_remove(s->rec_dir, s->cfg.id, s->rec.cookie);
	else
		msg_error("device %d: %s", s->cfg.id, f.text);
	close(s->cdev);
	let_go(s);
	return -f.err;
}

static int report_failed(const struct server *s, const struct fail *f)
{
	struct daemon_msg m = { .kind = DAEMON_FAILED, .err = f->err };

	if (s->report_fd < 0) {
		msg_error("%s", f->text);
	} else {
		snprintf(m.text, sizeof(m.text), "%s", f->text);
		daemon_report(s->report_fd, &m);
	}
	return -f->err;
}

/* -EPIPE: the caller has gone, and nobody knows of the device. */
static int report_ready(struct server *s)
{
	struct daemon_msg m = { .kind = DAEMON_READY, .id = s->cfg.id };
	int r = 0;

	snprintf(m.text, sizeof(m.text), "%s", s->warning);
	if (s->report_fd >= 0) {
		r = daemon_report(s->report_fd, &m);
		close(s->report_fd);
		s->report_fd = -1;
		return r;
	}
	if (*s->warning)
		msg_warn("%s", s->warning);
	daemon_notify_ready();
	if (printf("/dev/ublkb%d\n", s->cfg.id) < 0 || fflush(stdout))
		r = -EPIPE;
	return r;
}

static int prepare_process(struct server *s, struct fail *f)
{
	const char *stage;
	sigset_t set;
	int r;

	/* blocked in the companion as well: a service manager signals both, and needs it then */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SERVE_SIG_UNDO);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	/* before any thread, any device and any descriptor that it must not hold */
	r = companion_start(&s->companion);
	if (r < 0)
		return fail_errno(f, -r, "cannot fork the companion process");
	s->sig_fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (s->sig_fd < 0)
		return fail_errno(f, errno, "cannot wait for signals");
	/*
	 * The target before the namespace: its backing keeps its file system busy where the caller
	 * sees it. The namespace before any thread, also those of the control ring: each thread that
	 * is there already would stay behind.
	 */
	r = s->tgt->open(&s->cfg, &s->dev, f);
	if (r < 0)
		return r;
	s->step = STEP_TARGET;
	r = isolate_namespace();
	if (r < 0)
		msg_debug("no mount namespace of its own: %s", strerror(-r));
	r = ctrl_open(&s->ctrl, 1, &stage);
	return r < 0 ? fail_errno(f, -r, "cannot open the control device (%s)", stage) : 0;
}

int serve(const struct dev_cfg *cfg, int report_fd)
{
	struct server s = {
		.cfg = *cfg,
		.tgt = tgt_find(cfg->target),
		.deadline = fs_now_ms() + (int64_t)cfg->timeout_s * 1000,
		.report_fd = report_fd,
		.rec_dir = -1,
		.cdev = -1,
		.sig_fd = -1,
		.companion = { .fd = -1 },
	};
	struct fail f = { 0 };
	int r = prepare_process(&s, &f);

	if (!r)
		r = climb(&s, &f);
	if (r < 0) {
		undo(&s);
		return report_failed(&s, &f);
	}
	if (report_ready(&s) < 0) {
		msg_error("device %d: nobody waits for it any more, deleting it", s.cfg.id);
		undo(&s);
		return -EPIPE;
	}
	r = isolate_root();
	if (r < 0)
		msg_debug("keeps its view of the file systems: %s", strerror(-r));
	run(&s);
	return wind_up(&s);
}
