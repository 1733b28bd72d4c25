/* SPDX-License-Identifier: MIT */
#include "launch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "daemon.h"
#include "dev/dev.h"
#include "serve.h"
#include "util/cleanup.h"
#include "util/fs.h"

static int serve_entry(void *arg, int report_fd)
{
	return serve(arg, report_fd) < 0;
}

/* In a helper process: the driver may wait for a server that is stuck. */
static int delete_left(void *arg, struct fail *f)
{
	const struct daemon_msg *m = arg;
	_cleanup_fd_ int dir = rec_open_dir(false);
	struct ublksrv_ctrl_dev_info info;
	uint32_t id = (uint32_t)m->id;
	struct ctrl c;
	int r = dev_open_ctrl(&c, INT32_MAX, f);

	if (r < 0)
		return r;
	r = ctrl_get_dev_info(&c, id, &info);
	if (r < 0 || info.ublksrv_flags != m->cookie)
		return 0;
	c.unprivileged = info.flags & UBLK_F_UNPRIVILEGED_DEV;
	ctrl_stop_dev(&c, id);
	if (dir >= 0)
		rec_remove(dir, m->id, m->cookie);
	r = ctrl_del_dev(&c, id);
	ctrl_close(&c);
	return r < 0 && r != -ENODEV ? fail_errno(f, -r, "cannot delete device %u", id) : 0;
}

/* A server that died, or was killed because it was stuck, could not take back what it did. */
static void clear_left(struct daemon_msg *m, struct fail *why)
{
	size_t n = strlen(why->text);
	struct daemon_call call;
	struct fail f = { 0 };

	if (daemon_call_start(&call, delete_left, m, SERVE_UNDO_MS, &f) == 0 &&
	    daemon_call_wait(&call, &f) == 0)
		return;
	snprintf(why->text + n, sizeof(why->text) - n,
		 "; device %d could not be deleted: 'ublkctl del --force %d' tries again", m->id,
		 m->id);
}

int launch(struct dev_cfg *cfg, struct launched *ret, struct fail *f)
{
	struct daemon_msg m;
	int r = daemon_start(serve_entry, cfg, (int)cfg->timeout_s * 1000 + SERVE_UNDO_MS, &m, f);

	if (r < 0) {
		if (m.id >= 0)
			clear_left(&m, f);
		return r;
	}
	*ret = (struct launched){ .id = m.id, .pid = m.pid, .cookie = m.cookie };
	daemon_hold_signals(&ret->before);
	if (*m.text)
		msg_warn("%s", m.text);
	r = dev_wait_node(m.id, cfg->size, cfg->timeout_s, f);
	if (r < 0) {
		launch_undo(cfg, ret);
		sigprocmask(SIG_SETMASK, &ret->before, NULL);
	}
	return r;
}

void launch_undo(const struct dev_cfg *d, const struct launched *l)
{
	int64_t deadline = fs_now_ms() + (int64_t)d->timeout_s * 1000;
	struct daemon_msg left = { .id = l->id, .cookie = l->cookie };
	struct fail f = { .text = "" };

	/* the server deletes its device when it is asked to end; one that has died did not */
	if (kill(l->pid, SERVE_SIG_UNDO) == 0)
		while (dev_anything_left(l->id) && fs_now_ms() < deadline)
			fs_sleep_ms(SERVE_POLL_MS);
	if (dev_anything_left(l->id))
		clear_left(&left, &f);
	if (*f.text)
		msg_error("%s", f.text + 2);
}
