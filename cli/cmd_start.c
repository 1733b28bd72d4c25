/* SPDX-License-Identifier: MIT */
/*
 * start: a stopped device gets its disk and a server again.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cmd.h"
#include "daemon.h"
#include "dev/dev.h"
#include "launch.h"
#include "revive.h"
#include "util/cleanup.h"

struct start_cfg {
	struct cmd_common common;
	bool foreground;
	unsigned int timeout_s;
};

#define AT(member) offsetof(struct start_cfg, member)

/* clang-format off: one option, one entry */
static const struct opt start_options[] = {
	CMD_OPT_FOREGROUND(AT(foreground), "serve from this process until the device is stopped"),
	CMD_OPT_TIMEOUT(AT(timeout_s), "deadline (default: 30)"), OPT_END
};
/* clang-format on */

static const struct start_cfg start_defaults = { .timeout_s = CMD_TIMEOUT_DEFAULT };

static int prepare(const struct start_cfg *cfg, int id, struct record *ret, struct fail *f)
{
	char user[DEV_USER_TEXT];
	struct dev_view v;
	struct ctrl c;
	int r = dev_open_ctrl(&c, (int)cfg->timeout_s * 1000, f);

	if (r < 0)
		return r;
	r = dev_look_known(&c, id, &v, f);
	ctrl_close(&c);
	if (r < 0)
		return r;
	if (v.has_disk && v.state && !strcmp(v.state, "live"))
		return fail_set(f, EBUSY, "device %d is live already, served by process %d", id,
				(int)v.pid);
	if (v.has_disk)
		return fail_set(f, EINVAL, "device %d has its disk: 'ublkctl recover %d' is for it",
				id, id);
	/* of its last disk: as long as it is in use, the driver makes no other one */
	if (dev_may_be_used(id, user))
		return fail_set(f, EBUSY, "device %d is busy: %s", id, user);
	return revive_load(&v, cfg->timeout_s, ret, f);
}

/* In a helper process. Only if it is still the device of the record, and still without a disk. */
static int delete_stopped(void *arg, struct fail *f)
{
	const struct record *rec = arg;
	struct ublksrv_ctrl_dev_info info;
	uint32_t id = (uint32_t)rec->cfg.id;
	struct ctrl c;
	int r = dev_open_ctrl(&c, INT32_MAX, f);

	if (r < 0)
		return r;
	c.unprivileged = rec->cfg.unprivileged;
	r = ctrl_get_dev_info(&c, id, &info);
	if (!r && (info.ublksrv_flags != rec->cookie || info.state != UBLK_S_DEV_DEAD))
		return fail_set(f, EBUSY, "device %u was started meanwhile", id);
	if (!r)
		r = ctrl_del_dev(&c, id);
	ctrl_close(&c);
	return r < 0 ? fail_errno(f, -r, "cannot make device %u anew", id) : 0;
}

/*
 * A driver that does not take a second server for a device without a disk (Linux 6.12 says EINVAL to
 * its FETCH): the device is made once more, with the same id.
 */
static int make_anew(const struct start_cfg *cfg, struct record *rec, struct fail *f)
{
	_cleanup_fd_ int dir = rec_open_dir(false);
	struct launched l;
	sigset_t before;
	size_t n;
	int r;

	/* in between there is no device: who presses Ctrl-C then would lose it */
	daemon_hold_signals(&before);
	r = cmd_in_helper(delete_stopped, rec, cfg->timeout_s, f);
	if (r < 0) {
		sigprocmask(SIG_SETMASK, &before, NULL);
		return r;
	}
	r = cfg->foreground ? serve(&rec->cfg, -1) : launch(&rec->cfg, &l, f);
	sigprocmask(SIG_SETMASK, &before, NULL);
	n = strlen(f->text);
	if (r < 0 && dir >= 0)
		rec_remove(dir, rec->cfg.id, rec->cookie);
	if (r < 0 && n)
		snprintf(f->text + n, sizeof(f->text) - n, "; device %d is gone", rec->cfg.id);
	return r;
}

static int start_one(int id, const void *arg, struct fail *f)
{
	const struct start_cfg *cfg = arg;
	struct record rec;
	int r = prepare(cfg, id, &rec, f);

	if (!r)
		r = revive_serve(&rec, SERVE_START, cfg->foreground, f);
	if (r == -SERVE_NO_SECOND)
		r = make_anew(cfg, &rec, f);
	if (r < 0 || cfg->foreground)
		return r;
	r = dev_wait_node(id, rec.cfg.size, cfg->timeout_s, f);
	return r < 0 ? r : cmd_print_path(id, f);
}

static int start_run(const struct cmd_args *a, struct fail *f)
{
	const struct start_cfg *cfg = a->cfg;
	_cleanup_free_ int *ids = NULL;
	size_t n = 0;
	int r = cmd_ids(a, &ids, &n, f);

	if (!r && cfg->foreground && n > 1)
		r = fail_set(f, FAIL_USAGE, "--foreground: only with one id");
	return r < 0 ? r : cmd_each(ids, n, start_one, cfg, f);
}

const struct cmd cmd_start = {
	.name = "start",
	.summary = "bring the disks of stopped devices back",
	.operands = "ID|/dev/ublkbN...",
	.min_operands = 1,
	.max_operands = CMD_OPERANDS_ANY,
	.operand_hint = HINT_DEVICE,
	.options = start_options,
	.cfg_size = sizeof(struct start_cfg),
	.cfg_defaults = &start_defaults,
	.run = start_run,
};
