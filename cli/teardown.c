/* SPDX-License-Identifier: MIT */
#include "teardown.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon.h"
#include "dev/dev.h"
#include "util/cleanup.h"
#include "util/fault.h"
#include "util/fs.h"

#define POLL_MS 10
#define SAFE_STOP_MS 3000 /* then it is looked whether there is a server at all */
#define USER_POLL_MS 100  /* looking for users reads all of /proc */
/* Devices that are stopped at a time: most of a stop is waiting for the kernel. */
#define AT_ONCE 16
/* An opener that no process shows is udev or the kernel on its way out: it gets this long. */
#define UNSEEN_USER_MS 2000

/* One device on its way out. */
struct target_dev {
	const struct teardown_how *how;
	bool safe_stop; /* the driver itself refuses to stop a disk in use */
	struct dev_view view;
	struct daemon_call call;
	int64_t users_until; /* fs_now_ms(): so long for users to go, the same for all devices */
	int64_t deadline;    /* fs_now_ms(): of everything after that */
	char user[DEV_USER_TEXT]; /* who loses it by --force */
	bool missing;		  /* and that is no failure */
	int err;		  /* of the start; the text is printed already */
};

/* ---- in the helper process: calls that may hang with the server -------------------------- */

static bool is_served(struct ctrl *c, uint32_t id)
{
	struct ublksrv_ctrl_dev_info info;

	return ctrl_get_dev_info(c, id, &info) == 0 && info.state == UBLK_S_DEV_LIVE;
}

/*
 * The safe stop waits for a lock that whoever opens the disk has, or the driver's own look for
 * partitions, also while its I/O waits for a server. Without one there is none to lose: the other stop
 * makes that I/O fail and goes through. Not so where only the safe one is wanted.
 */
static int safe_stop(struct ctrl *c, const struct target_dev *t)
{
	const int whole_ms = c->timeout_ms;
	uint32_t id = (uint32_t)t->view.id;
	int r;

	c->timeout_ms = SAFE_STOP_MS;
	do
		r = ctrl_try_stop_dev(c, id);
	while (r == -ETIME && fs_now_ms() < t->deadline && (t->how->safe_only || is_served(c, id)));
	c->timeout_ms = whole_ms;
	return r == -ETIME && !t->how->safe_only && fs_now_ms() < t->deadline ?
		       ctrl_stop_dev(c, id) :
		       r;
}

static int stop_disk(struct ctrl *c, const struct target_dev *t)
{
	uint32_t id = (uint32_t)t->view.id;
	int r;

	r = t->how->force || !t->safe_stop ? ctrl_stop_dev(c, id) : safe_stop(c, t);
	return r == -ENODEV ? 0 : r; /* no disk: nothing to stop */
}

/* Ids are used again: is it still the device that was looked at? 0, -ESTALE, or the driver's no. */
static int is_same(struct ctrl *c, const struct target_dev *t)
{
	struct ublksrv_ctrl_dev_info info;
	int r = ctrl_get_dev_info(c, (uint32_t)t->view.id, &info);

	if (r == -ENODEV || (!r && info.ublksrv_flags != t->view.cookie))
		return -ESTALE;
	return r;
}

static void remove_record(const struct target_dev *t)
{
	_cleanup_fd_ int dir = t->view.has_record ? rec_open_dir(false) : -1;

	if (dir >= 0 && rec_remove(dir, t->view.id, t->view.rec.cookie) < 0)
		msg_debug("the record of device %d stays", t->view.id);
}

static void set_stopped(struct record *rec, const void *arg)
{
	rec->stopped = *(const bool *)arg;
}

/* Before the server can end: it looks there whether its device is still wanted. */
static int mark_stopped(const struct target_dev *t, bool stopped)
{
	return rec_update(t->view.id, t->view.cookie, set_stopped, &stopped);
}

static int stop_failed(const struct target_dev *t, int r, struct fail *f)
{
	if (t->how->keep)
		mark_stopped(t, false);
	return r == -EBUSY ? fail_set(f, EBUSY, "the driver says it is in use") :
			     fail_errno(f, -r, "cannot stop device %d", t->view.id);
}

static int stop_and_delete(void *arg, struct fail *f)
{
	struct target_dev *t = arg;
	uint32_t id = (uint32_t)t->view.id;
	struct ctrl c;
	int r = dev_open_ctrl(&c, INT32_MAX, f); /* the caller has the deadline */

	if (r < 0)
		return r;
	c.unprivileged = t->view.flags & UBLK_F_UNPRIVILEGED_DEV;
	r = is_same(&c, t);
	if (r == -ESTALE)
		return 0; /* somebody else was faster: gone is gone */
	if (r < 0)
		return fail_errno(f, -r, "cannot look at device %u", id);
	fault_point("stop", 0);
	r = t->how->keep ? mark_stopped(t, true) : 0;
	if (r < 0)
		return fail_errno(f, -r, "cannot write the record of device %u", id);
	fault_point("stop", 1);
	r = stop_disk(&c, t);
	if (r < 0)
		return stop_failed(t, r, f);
	fault_point("stop", 2);
	if (t->how->keep || is_same(&c, t) == -ESTALE)
		return 0;
	/* while the id is held: afterwards it can be the next device's record */
	remove_record(t);
	fault_point("stop", 3);
	/*
	 * Who has the disk open keeps the id: --force does not wait for them, nor a dead disk. For an
	 * unprivileged device the driver knows the waiting form alone.
	 */
	r = !c.unprivileged && (t->how->no_wait || t->how->force || !t->view.has_disk) ?
		    ctrl_del_dev_async(&c, id) :
		    ctrl_del_dev(&c, id);
	fault_point("stop", 4);
	ctrl_close(&c);
	return r < 0 && r != -ENODEV ? fail_errno(f, -r, "cannot delete device %u", id) : 0;
}

/* ---- in the foreground ------------------------------------------------------------------ */

static int timed_out(const struct target_dev *t, const char *what, struct fail *f)
{
	char user[DEV_USER_TEXT], path[FS_PATH_MAX], stat[512] = "";
	const char *p;
	char state = '?';

	if (t->view.pid > 0 &&
	    fs_read_text(fs_path(path, "/proc/%d/stat", (int)t->view.pid), stat, sizeof(stat)) == 0 &&
	    (p = strrchr(stat, ')')) && p[1])
		state = p[2];
	return fail_set(
		f, ETIME,
		"device %d: timed out after %u s waiting %s (state %s, server process %d in state %c, %s)",
		t->view.id, t->how->timeout_s, what, t->view.state ? t->view.state : "unknown",
		(int)t->view.pid, state, dev_find_user(t->view.id, user) ? user : "no user seen");
}

static int busy(int id, const char *who, struct fail *f)
{
	return fail_set(f, EBUSY, "device %d is busy: %s", id, who);
}

/* Waits for users as long as the options say. */
static int wait_unused(const struct target_dev *t, struct fail *f)
{
	char user[DEV_USER_TEXT];

	if (t->how->force)
		return 0;
	while (dev_may_be_used(t->view.id, user)) {
		if (fs_now_ms() >= t->users_until)
			return busy(t->view.id, user, f);
		fs_sleep_ms(USER_POLL_MS);
	}
	return 0;
}

static int start_stop(struct target_dev *t, struct fail *f)
{
	int64_t now, whole_ms = (int64_t)t->how->timeout_s * 1000;
	int r = wait_unused(t, f);

	if (r < 0)
		return r;
	now = fs_now_ms();
	if (!t->deadline)
		t->deadline = now + whole_ms;
	return daemon_call_start(&t->call, stop_and_delete, t,
				 t->deadline > now ? (int)(t->deadline - now) : 1, f);
}

/* After start_stop(): the result, with further tries while an opener is only passing by. */
static int finish_stop(struct target_dev *t, struct fail *f)
{
	int64_t last = fs_now_ms() + UNSEEN_USER_MS;
	int r;

	if (last < t->users_until)
		last = t->users_until;
	/* the one form of delete for it waits for who has the disk open: --force does not */
	if (t->how->force && t->view.flags & UBLK_F_UNPRIVILEGED_DEV)
		while (!daemon_call_done(&t->call)) {
			if (!dev_anything_left(t->view.id)) {
				daemon_call_leave(&t->call);
				return 0;
			}
			fs_sleep_ms(POLL_MS);
		}
	for (;;) {
		r = daemon_call_wait(&t->call, f);
		if (r == -ETIME)
			return timed_out(t, "for its disk to stop and its server to close it", f);
		if (r != -EBUSY)
			return r;
		if (fs_now_ms() >= last)
			return busy(t->view.id, "it is open, by nobody that can be seen from here", f);
		fs_sleep_ms(POLL_MS);
		r = start_stop(t, f);
		if (r < 0)
			return r;
	}
}

/* The id was free when the driver returned; nodes go through devtmpfs or udev a little later. */
static int wait_gone(const struct target_dev *t, struct fail *f)
{
	const struct dev_view *v = &t->view;

	/* the record's pid counts where the driver says the same: it can be another namespace's */
	bool has_server = v->has_record && v->pid == v->rec.pid;

	while ((t->how->keep ? dev_disk_left(v->id) : dev_anything_left(v->id)) ||
	       (has_server && rec_server_alive(&v->rec))) {
		struct dev_view now;

		/* the id can be a new device's by now: that one is not waited for */
		if (dev_probe(NULL, v->id, &now) == 0 && now.has_record &&
		    now.rec.cookie != v->rec.cookie)
			break;
		if (fs_now_ms() >= t->deadline)
			return timed_out(t, "for its nodes and its server to go", f);
		fs_sleep_ms(POLL_MS);
	}
	return 0;
}

static int begin(struct ctrl *c, struct target_dev *t, int id, struct fail *f)
{
	int r = dev_look_known(c, id, &t->view, f);

	if (r == -ENODEV && t->how->ignore_missing) {
		t->missing = true;
		return 0;
	}
	if (r < 0)
		return r;
	if (t->how->keep && !t->view.has_record)
		return fail_set(
			f, EINVAL,
			"device %d has no record that can be believed: 'ublkctl start' could not bring it back",
			id);
	if (t->how->force)
		dev_find_user(id, t->user);
	return start_stop(t, f);
}

/* The driver lets go of an id a little after the nodes. */
static bool id_is_free(struct ctrl *c, int id)
{
	int64_t deadline = fs_now_ms() + UNSEEN_USER_MS;
	struct ublksrv_ctrl_dev_info info;

	while (ctrl_get_dev_info(c, (uint32_t)id, &info) != -ENODEV) {
		if (fs_now_ms() >= deadline)
			return false;
		fs_sleep_ms(POLL_MS);
	}
	return true;
}

static int finish(struct ctrl *c, struct target_dev *t, struct fail *f)
{
	int r = finish_stop(t, f);

	if (r < 0)
		return r;
	if (*t->user)
		msg_hint("device %d was %s: its id is free once that ends", t->view.id, t->user);
	if (t->how->no_wait)
		return 0;
	r = wait_gone(t, f);
	if (!r && !t->how->keep && !t->view.has_disk && !*t->user && !id_is_free(c, t->view.id))
		msg_hint("device %d is deleted: its id is free once the last user of its dead disk is gone",
			 t->view.id);
	return r;
}

/* Stops n devices side by side. The first failure; all are tried, each failure is printed. */
static int stop_some(struct ctrl *c, const struct teardown_how *how, bool safe_stop, const int *ids,
		     size_t n, struct fail *f)
{
	const int64_t users_until = fs_now_ms() + (int64_t)how->wait_s * 1000;
	struct target_dev *t = calloc(n, sizeof(*t));
	int r, first = 0;

	if (!t)
		return fail_errno(f, ENOMEM, "cannot stop devices");
	for (size_t i = 0; i < n; i++) {
		t[i].how = how;
		t[i].users_until = users_until;
		t[i].safe_stop = safe_stop;
		t[i].err = begin(c, &t[i], ids[i], f);
		if (t[i].err < 0)
			msg_error("%s", f->text);
	}
	for (size_t i = 0; i < n; i++) {
		r = t[i].err;
		if (!r && !t[i].missing) {
			r = finish(c, &t[i], f);
			if (r < 0)
				msg_error("%s", f->text);
		}
		first = first ? first : r;
	}
	free(t);
	f->text[0] = '\0';
	return first;
}

int teardown(const struct teardown_how *how, const int *ids, size_t n, struct fail *f)
{
	uint64_t features = 0;
	int r, first = 0;
	struct ctrl c;

	r = dev_open_ctrl(&c, (int)how->timeout_s * 1000, f);
	if (r < 0)
		return r;
	/* a driver too old to tell has no safe stop either */
	ctrl_get_features(&c, &features);
	r = how->safe_only ? dev_need_features(UBLK_F_SAFE_STOP_DEV, features, f) : 0;
	if (r < 0) {
		ctrl_close(&c);
		return r;
	}
	for (size_t i = 0; i < n; i += AT_ONCE) {
		r = stop_some(&c, how, features & UBLK_F_SAFE_STOP_DEV, ids + i,
			      n - i < AT_ONCE ? n - i : AT_ONCE, f);
		first = first ? first : r;
	}
	ctrl_close(&c);
	return first;
}
