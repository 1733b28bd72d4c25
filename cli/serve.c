/* SPDX-License-Identifier: MIT */
#include "serve.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "daemon.h"
#include "dev/dev.h"
#include "isolate.h"
#include "protect.h"
#include "serve_int.h"
#include "util/cleanup.h"
#include "util/fs.h"

#define FILES_BESIDE 32	      /* open files of a server beside its threads' rings */
#define UNDO_TIMEOUT_MS 10000 /* for each command while undoing */
#define LOOK_TIMEOUT_MS 2000  /* for a look at the device at the end */

/* The last step of every way out. */
static void let_go(struct server *s)
{
	companion_dismiss(&s->companion);
	cleanup_fd(&s->rec_dir);
	cleanup_fd(&s->sig_fd);
	ctrl_close(&s->ctrl);
}

/*
 * Everything back in reverse. The engine is closed before the device is deleted: nobody may wait
 * for STOP_DEV or DEL_DEV in a process that holds /dev/ublkcN.
 */
static void undo(struct server *s, struct fail *why)
{
	/* a device that was there before stays, without a server as before */
	const bool is_new = s->how == SERVE_ADD;
	size_t n = strlen(why->text);
	struct fail f;
	int r = 0;

	if (s->eng)
		eng_finish(s->eng, &f);
	s->eng = NULL;
	if (s->cdev >= 0)
		close(s->cdev);
	s->cdev = -1;
	s->ctrl.timeout_ms = UNDO_TIMEOUT_MS;
	/* the record first: the id is free for others once the device is gone */
	if (is_new && s->step >= STEP_RECORDED)
		rec_remove(s->rec_dir, s->cfg.id, s->rec.cookie);
	if (is_new && s->step >= STEP_ADDED)
		r = ctrl_del_dev(&s->ctrl, (uint32_t)s->cfg.id);
	if (r < 0 && r != -ENODEV)
		snprintf(why->text + n, sizeof(why->text) - n,
			 "; device %d could not be deleted: %s", s->cfg.id, strerror(-r));
	if (s->step >= STEP_TARGET)
		s->tgt->close(&s->dev, is_new);
	let_go(s);
}

/* ---- running ---------------------------------------------------------------------------- */

static void leave(struct server *s)
{
	int r = eng_leave(s->eng);

	if (r < 0)
		msg_error("device %d: cannot let go of it: %s", s->cfg.id, strerror(-r));
}

static void on_signal(struct server *s)
{
	struct signalfd_siginfo si;

	if (read(s->sig_fd, &si, sizeof(si)) != (ssize_t)sizeof(si))
		return;
	if (si.ssi_signo == SERVE_SIG_LEAVE) {
		leave(s);
	} else {
		msg_hint("device %d: ending on signal %u", s->cfg.id, si.ssi_signo);
		s->undo = si.ssi_signo == SERVE_SIG_UNDO;
		if (companion_delete(&s->companion, (uint32_t)s->cfg.id, s->rec.cookie) < 0)
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
 * The threads ended: is the device over with, or does somebody still want it? Without a disk it was
 * stopped, and `stop` has said so in the record; with one it was quiesced, for the next server.
 */
static bool is_wanted(struct server *s)
{
	struct ublksrv_ctrl_dev_info info;
	struct record rec;
	int r;

	if (s->companion.busy)
		return false;
	s->ctrl.timeout_ms = LOOK_TIMEOUT_MS;
	r = ctrl_get_dev_info(&s->ctrl, (uint32_t)s->cfg.id, &info);
	/* ENOENT: its node, by which a user would show that he may ask, has gone already */
	if (r == -ENODEV || r == -ENOENT || (!r && info.ublksrv_flags != s->rec.cookie))
		return false;
	if (r < 0 || info.state != UBLK_S_DEV_DEAD)
		return true;
	return rec_read(s->rec_dir, s->cfg.id, &rec) == 0 && rec.cookie == s->rec.cookie &&
	       rec.stopped;
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
	if (f.err)
		msg_error("device %d: %s", s->cfg.id, f.text);
	else if (is_wanted(s))
		msg_hint("device %d: this server's part is over", s->cfg.id);
	else
		rec_remove(s->rec_dir, s->cfg.id, s->rec.cookie);
	close(s->cdev);
	let_go(s);
	return -f.err;
}

static int report_failed(const struct server *s, const struct fail *f)
{
	struct daemon_msg m = { .kind = DAEMON_FAILED, .err = f->err };

	if (s->report_fd < 0) {
		/* the caller knows another way */
		if (f->err != SERVE_NO_SECOND)
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
	struct fail f;
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
	/* in the background the caller waits for it */
	if (dev_wait_node(s->cfg.id, s->cfg.size, s->cfg.timeout_s, &f) < 0)
		msg_warn("%s", f.text);
	daemon_notify_ready();
	if (printf("/dev/ublkb%d\n", s->cfg.id) < 0 || fflush(stdout))
		r = -EPIPE;
	return r;
}

/*
 * The last server of a device can be on its way out still, with its backing: the kernel closes the files of
 * a ring a while after the process has ended.
 */
static int open_target(struct server *s, struct fail *f)
{
	/* add has waited in the foreground */
	int64_t until = s->how == SERVE_ADD ? 0 : fs_now_ms() + SERVE_LET_GO_MS;
	int r = s->tgt->open(&s->cfg, &s->dev, f);

	while (r == -EBUSY && fs_now_ms() < until && fs_now_ms() < s->deadline) {
		fs_sleep_ms(SERVE_POLL_MS);
		r = s->tgt->open(&s->cfg, &s->dev, f);
	}
	return r;
}

static unsigned int files_needed(const struct dev_cfg *c)
{
	return c->threads + FILES_BESIDE;
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
	sigaddset(&set, SERVE_SIG_LEAVE);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	msg_on_crash();
	r = protect_process(files_needed(&s->cfg), f);
	if (r < 0)
		return r;
	/* before any thread, any device and any descriptor that it must not hold */
	r = companion_start(&s->companion, s->cfg.unprivileged);
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
	r = open_target(s, f);
	if (r < 0)
		return r;
	s->step = STEP_TARGET;
	r = isolate_namespace();
	s->own_ns = r == 0;
	if (r < 0)
		msg_debug("no mount namespace of its own: %s", strerror(-r));
	r = ctrl_open(&s->ctrl, 1, &stage);
	s->ctrl.unprivileged = s->cfg.unprivileged;
	return r < 0 ? fail_errno(f, -r, "cannot open the control device (%s)", stage) : 0;
}

/* Up, until the end, and down. s says what is asked for. */
static int serve_device(struct server *s)
{
	struct fail f = { 0 };
	int r;

	s->tgt = tgt_find(s->cfg.target);
	s->deadline = fs_now_ms() + (int64_t)s->cfg.timeout_s * 1000;
	s->rec_dir = s->cdev = s->sig_fd = s->companion.fd = -1;
	r = prepare_process(s, &f);
	if (!r)
		r = serve_climb(s, &f);
	if (r < 0) {
		undo(s, &f);
		return report_failed(s, &f);
	}
	if (report_ready(s) < 0 && s->how == SERVE_ADD) {
		msg_error("device %d: nobody waits for it any more, deleting it", s->cfg.id);
		undo(s, &f);
		return -EPIPE;
	}
	/* in a namespace shared with others it would be their root as well */
	r = s->own_ns ? isolate_root() : 0;
	if (r < 0)
		msg_debug("keeps its view of the file systems: %s", strerror(-r));
	run(s);
	return wind_up(s);
}

static void same_record(struct record *rec, const void *arg)
{
	(void)rec;
	(void)arg;
}

int serve_check(const struct record *known, struct fail *f)
{
	char path[FS_PATH_MAX];
	int r = protect_process(files_needed(&known->cfg), f);

	if (r < 0)
		return r;
	if (!fs_exists(fs_path(path, "/dev/ublkc%d", known->cfg.id)))
		return fail_set(f, ENOENT, "%s is missing", path);
	/* a full or read-only /run shows */
	r = rec_update(known->cfg.id, known->cookie, same_record, NULL);
	return r < 0 ? fail_errno(f, -r, "cannot write the record of device %d", known->cfg.id) : 0;
}

int serve(const struct dev_cfg *cfg, int report_fd)
{
	struct server s = { .cfg = *cfg, .how = SERVE_ADD, .report_fd = report_fd };

	return serve_device(&s);
}

int serve_again(const struct record *known, enum serve_how how, int report_fd)
{
	struct server s = { .cfg = known->cfg, .how = how, .report_fd = report_fd, .rec = *known };

	return serve_device(&s);
}
