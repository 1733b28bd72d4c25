/* SPDX-License-Identifier: MIT */
/*
 * recover: a new server for a device whose server has gone.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cmd.h"
#include "dev/dev.h"
#include "revive.h"
#include "util/cleanup.h"
#include "util/fs.h"

struct recover_cfg {
	struct cmd_common common;
	bool all, foreground;
	unsigned int wait_s, timeout_s;
};

#define AT(member) offsetof(struct recover_cfg, member)

/* clang-format off: one option, one entry */
static const struct opt recover_options[] = {
	{ .name = "all",
	  .letter = 'a',
	  .type = OPT_FLAG,
	  .offset = AT(all),
	  .help = "every device that waits for a server" },
	CMD_OPT_WAIT(AT(wait_s), "wait so long for the end of the last server (default: 30)"),
	CMD_OPT_FOREGROUND(AT(foreground), "serve from this process until the device is stopped"),
	CMD_OPT_TIMEOUT(AT(timeout_s), "deadline (default: 30)"),
	OPT_END
};
/* clang-format on */

static const struct recover_cfg recover_defaults = {
	.wait_s = CMD_TIMEOUT_DEFAULT,
	.timeout_s = CMD_TIMEOUT_DEFAULT,
};

/* A server that is alive is not to be waited for: whoever wants it replaced says `restart`. */
static int check_needs_server(const struct dev_view *v, const struct record *rec, struct fail *f)
{
	if (v->state && !strcmp(v->state, "live") && rec_server_alive(rec))
		return fail_set(f, EBUSY, "device %d is live, served by process %d", v->id,
				(int)rec->pid);
	if (rec->cfg.recovery == RECOVERY_OFF)
		return fail_set(
			f, EINVAL,
			"device %d cannot be recovered: it was added without --recovery ('ublkctl %s %d' %s)",
			v->id, v->has_disk ? "del" : "start", v->id,
			v->has_disk ? "removes it" : "gives it a new disk");
	if (v->state && !strcmp(v->state, "dead"))
		return fail_set(f, EINVAL, "device %d has no disk: 'ublkctl start %d' brings it back",
				v->id, v->id);
	return 0;
}

static int prepare(const struct recover_cfg *cfg, int id, struct record *ret, struct fail *f)
{
	int64_t deadline = fs_now_ms() + (int64_t)cfg->wait_s * 1000;
	struct dev_view v;
	struct ctrl c;
	int r = dev_open_ctrl(&c, (int)cfg->timeout_s * 1000, f);

	if (r < 0)
		return r;
	r = dev_look_known(&c, id, &v, f);
	if (!r)
		r = revive_load(&v, cfg->timeout_s, ret, f);
	if (!r)
		r = check_needs_server(&v, ret, f);
	if (!r)
		r = revive_wait(&c, &v, deadline, f);
	ctrl_close(&c);
	return r;
}

static int recover_one(int id, const void *arg, struct fail *f)
{
	const struct recover_cfg *cfg = arg;
	struct record rec;
	int r = prepare(cfg, id, &rec, f);

	if (!r)
		r = revive_serve(&rec, SERVE_RECOVER, cfg->foreground, f);
	return r < 0 || cfg->foreground ? r : cmd_print_path(id, f);
}

/* It waits for a server, or just lost it, and has our record. */
static bool is_lost(const struct dev_view *v)
{
	return v->has_record && v->has_disk && v->flags & UBLK_F_USER_RECOVERY && v->state &&
	       (strcmp(v->state, "live") || !rec_server_alive(&v->rec));
}

static int recover_run(const struct cmd_args *a, struct fail *f)
{
	const struct recover_cfg *cfg = a->cfg;
	_cleanup_free_ int *ids = NULL;
	size_t n = 0;
	int r;

	r = cmd_ids_or_all(a, cfg->all, &ids, &n, f);
	if (!r && cfg->foreground && (cfg->all || n > 1))
		r = fail_set(f, FAIL_USAGE, "--foreground: only with one id");
	if (!r && cfg->all)
		r = cmd_keep(ids, &n, is_lost, cfg->timeout_s, f);
	return r < 0 ? r : cmd_each(ids, n, recover_one, cfg, f);
}

const struct cmd cmd_recover = {
	.name = "recover",
	.summary = "give devices that lost their server a new one",
	.operands = "ID|/dev/ublkbN... | --all",
	.max_operands = CMD_OPERANDS_ANY,
	.operand_hint = HINT_DEVICE,
	.options = recover_options,
	.cfg_size = sizeof(struct recover_cfg),
	.cfg_defaults = &recover_defaults,
	.run = recover_run,
};
