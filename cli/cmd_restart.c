/* SPDX-License-Identifier: MIT */
/*
 * quiesce: takes a device from its server, its I/O waits. restart: hands it to a new server.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "abi/feature.h"
#include "cmd.h"
#include "daemon.h"
#include "dev/dev.h"
#include "revive.h"
#include "util/cleanup.h"
#include "util/fs.h"

struct restart_cfg {
	struct cmd_common common;
	bool all;
	unsigned int timeout_s;
};

#define AT(member) offsetof(struct restart_cfg, member)
/* Time that the driver gets to say that it timed out, before we do. */
#define ANSWER_S 2U
#define LOOK_MS 2000 /* for a look at the device afterwards */

/* clang-format off: one option, one entry */
static const struct opt quiesce_options[] = {
	CMD_OPT_TIMEOUT(AT(timeout_s), "deadline, also for the requests in hand (default: 30)"), OPT_END
};

static const struct opt restart_options[] = {
	{ .name = "all",
	  .letter = 'a',
	  .type = OPT_FLAG,
	  .offset = AT(all),
	  .help = "every device that can be handed over, one after the other" },
	CMD_OPT_TIMEOUT(AT(timeout_s), "deadline, also for the requests in hand (default: 30)"),
	OPT_END
};
/* clang-format on */

static const struct restart_cfg restart_defaults = { .timeout_s = CMD_TIMEOUT_DEFAULT };

static int check_can(const struct dev_view *v, struct fail *f)
{
	if (v->flags & UBLK_F_QUIESCE)
		return 0;
	if (!(v->flags & UBLK_F_USER_RECOVERY))
		return fail_set(f, EINVAL,
				"device %d cannot be handed over: it was added without --recovery",
				v->id);
	return fail_set(
		f, FAIL_UNSUPPORTED,
		"device %d cannot be handed over: it was added without UBLK_F_QUIESCE, which needs Linux %s or later",
		v->id, abi_feature_by_bit((unsigned int)__builtin_ctzll(UBLK_F_QUIESCE))->since);
}

static int look(struct ctrl *c, int id, struct dev_view *v, struct fail *f)
{
	int r = dev_look_known(c, id, v, f);

	return r < 0 ? r : check_can(v, f);
}

static int still_busy(const struct dev_view *v, unsigned int timeout_s, struct fail *f)
{
	return fail_set(
		f, ETIME,
		"device %d: its server (process %d) still has requests after %u s; new ones wait. 'ublkctl restart %d' tries again; or kill the server, and 'ublkctl recover %d'",
		v->id, (int)v->pid, timeout_s, v->id, v->id);
}

struct question {
	uint32_t id;
	unsigned int timeout_s;
};

static int quiesce_dev(void *arg, struct fail *f)
{
	const struct question *q = arg;
	struct ctrl c;
	int r = dev_open_ctrl(&c, INT32_MAX, f);

	if (r < 0)
		return r;
	r = ctrl_quiesce_dev(&c, q->id, q->timeout_s * 1000);
	ctrl_close(&c);
	return r < 0 && r != -ENODEV ? fail_errno(f, -r, "cannot quiesce device %u", q->id) : 0;
}

/* Per-I/O path: the driver takes the idle tags away, the server goes when its requests are done. */
static int ask_driver(const struct dev_view *v, unsigned int timeout_s, struct fail *f)
{
	struct question q = { (uint32_t)v->id, timeout_s };
	int r = cmd_in_helper(quiesce_dev, &q, timeout_s + ANSWER_S, f);

	return r == -EBUSY || r == -ETIME ? still_busy(v, timeout_s, f) : r;
}

/* One of ours lets go at once. On the batch path it does all of it, hold.h says why. */
static int ask_server(const struct dev_view *v, struct fail *f)
{
	int pidfd, r = 0;

	if (!v->has_record || v->pid != v->rec.pid)
		return 0;
	pidfd = (int)syscall(SYS_pidfd_open, v->rec.pid, 0);
	/* the process of the record still, now that it is held */
	if (pidfd >= 0 && rec_server_alive(&v->rec) &&
	    syscall(SYS_pidfd_send_signal, pidfd, SERVE_SIG_LEAVE, NULL, 0) < 0)
		r = fail_errno(f, errno, "cannot signal the server of device %d", v->id);
	if (pidfd >= 0)
		close(pidfd);
	return r;
}

/* The device without its server: state quiesced, or fail-io where it was added so. */
static int quiesce(struct ctrl *c, struct dev_view *v, unsigned int timeout_s, struct fail *f)
{
	int64_t deadline = fs_now_ms() + (int64_t)timeout_s * 1000;
	int r;

	if (!v->has_disk)
		return fail_set(f, EINVAL, "device %d has no disk: nothing to quiesce", v->id);
	if (v->batch == 1 && !v->has_record)
		return fail_set(
			f, EINVAL,
			"device %d is another tool's and on the batch path: the driver's own way would make its I/O fail",
			v->id);
	r = v->batch == 1 ? 0 : ask_driver(v, timeout_s, f);
	if (!r)
		r = ask_server(v, f);
	/* the driver can have taken nearly all of the time to say yes */
	if (!r && deadline < fs_now_ms() + ANSWER_S * 1000)
		deadline = fs_now_ms() + ANSWER_S * 1000;
	if (!r)
		r = revive_wait(c, v, deadline, f);
	return r == -ETIME ? still_busy(v, timeout_s, f) : r;
}

static int quiesce_one(int id, const void *arg, struct fail *f)
{
	const struct restart_cfg *cfg = arg;
	struct dev_view v;
	struct ctrl c;
	int r = dev_open_ctrl(&c, (int)cfg->timeout_s * 1000, f);

	if (r < 0)
		return r;
	r = look(&c, id, &v, f);
	if (!r)
		r = quiesce(&c, &v, cfg->timeout_s, f);
	ctrl_close(&c);
	return r;
}

static int quiesce_run(const struct cmd_args *a, struct fail *f)
{
	_cleanup_free_ int *ids = NULL;
	size_t n = 0;
	int r = cmd_ids_or_all(a, false, &ids, &n, f);

	return r < 0 ? r : cmd_each(ids, n, quiesce_one, a->cfg, f);
}

static int check_next(void *arg, struct fail *f)
{
	return serve_check(arg, f);
}

/*
 * What could be wrong with the next server is looked for before the last one is stopped. *ret_taken:
 * that has happened.
 */
static int prepare(const struct restart_cfg *cfg, int id, struct record *ret, bool *ret_taken,
		   struct fail *f)
{
	struct dev_view v;
	struct ctrl c;
	int r = dev_open_ctrl(&c, (int)cfg->timeout_s * 1000, f);

	*ret_taken = false;
	if (r < 0)
		return r;
	r = look(&c, id, &v, f);
	if (!r)
		r = revive_load(&v, cfg->timeout_s, ret, f);
	if (!r)
		r = cmd_in_helper(check_next, ret, cfg->timeout_s, f);
	if (!r && ret->cfg.recovery == RECOVERY_FAIL_IO)
		msg_hint("device %d was added with --recovery fail-io: its I/O fails until the new server answers",
			 id);
	if (!r) {
		r = quiesce(&c, &v, cfg->timeout_s, f);
		*ret_taken = !r;
	}
	ctrl_close(&c);
	return r;
}

/* Somebody's recover can have been faster. */
static bool has_server(int id)
{
	struct dev_view v;
	struct fail f;
	struct ctrl c;
	bool yes;

	if (dev_open_ctrl(&c, LOOK_MS, &f) < 0)
		return false;
	yes = dev_probe(&c, id, &v) == 0 && v.state && !strcmp(v.state, "live");
	ctrl_close(&c);
	return yes;
}

static int restart_one(int id, const void *arg, struct fail *f)
{
	struct record rec;
	sigset_t before;
	bool taken;
	int r;

	/*
	 * Between two servers the device has none: who presses Ctrl-C then, or loses the connection, would
	 * leave it so.
	 */
	daemon_hold_signals(&before);
	r = prepare(arg, id, &rec, &taken, f);
	if (!r)
		r = revive_serve(&rec, SERVE_RECOVER, false, f);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (r < 0 && taken && !has_server(id))
		msg_hint("device %d has no server now, its I/O %s: 'ublkctl recover %d' tries again",
			 id, rec.cfg.recovery == RECOVERY_FAIL_IO ? "fails" : "waits", id);
	return r < 0 ? r : cmd_print_path(id, f);
}

/* It has a server of ours and can be handed over. */
static bool is_served(const struct dev_view *v)
{
	return v->has_record && v->state && !strcmp(v->state, "live") && v->flags & UBLK_F_QUIESCE;
}

static int restart_run(const struct cmd_args *a, struct fail *f)
{
	const struct restart_cfg *cfg = a->cfg;
	_cleanup_free_ int *ids = NULL;
	size_t n = 0;
	int r;

	r = cmd_ids_or_all(a, cfg->all, &ids, &n, f);
	if (!r && cfg->all)
		r = cmd_keep(ids, &n, is_served, cfg->timeout_s, f);
	return r < 0 ? r : cmd_each(ids, n, restart_one, cfg, f);
}

const struct cmd cmd_quiesce = {
	.name = "quiesce",
	.summary = "take devices from their servers, I/O waits",
	.operands = "ID|/dev/ublkbN...",
	.min_operands = 1,
	.max_operands = CMD_OPERANDS_ANY,
	.operand_hint = HINT_DEVICE,
	.options = quiesce_options,
	.cfg_size = sizeof(struct restart_cfg),
	.cfg_defaults = &restart_defaults,
	.run = quiesce_run,
};

const struct cmd cmd_restart = {
	.name = "restart",
	.summary = "hand devices to new servers, without I/O errors",
	.operands = "ID|/dev/ublkbN... | --all",
	.max_operands = CMD_OPERANDS_ANY,
	.operand_hint = HINT_DEVICE,
	.options = restart_options,
	.cfg_size = sizeof(struct restart_cfg),
	.cfg_defaults = &restart_defaults,
	.run = restart_run,
};
