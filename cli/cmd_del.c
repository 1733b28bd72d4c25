/* SPDX-License-Identifier: MIT */
/*
 * del: devices go for good. stop: their disks go, for the time being.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cmd.h"
#include "dev/dev.h"
#include "teardown.h"
#include "util/cleanup.h"

struct del_cfg {
	struct cmd_common common;
	bool all, dead, dry_run;
	struct teardown_how how;
};

#define AT(member) offsetof(struct del_cfg, member)

/* clang-format off: one option, one entry */
#define FORCE_OPTION                                                                               \
	{                                                                                          \
		.name = "force", .letter = 'f', .type = OPT_FLAG, .offset = AT(how.force),         \
		.help = "also while it is in use: its users get I/O errors"                        \
	}
static const struct opt del_options[] = {
	{ .name = "all",
	  .letter = 'a',
	  .type = OPT_FLAG,
	  .offset = AT(all),
	  .help = "every ublk device of this machine" },
	{ .name = "dead",
	  .type = OPT_FLAG,
	  .offset = AT(dead),
	  .help = "every device of ublkctl whose server is gone, except stopped ones" },
	{ .name = "dry-run",
	  .type = OPT_FLAG,
	  .offset = AT(dry_run),
	  .help = "print the devices that would be deleted, delete none" },
	FORCE_OPTION,
	{ .name = "ignore-missing",
	  .type = OPT_FLAG,
	  .offset = AT(how.ignore_missing),
	  .help = "a device that does not exist is no failure" },
	CMD_OPT_WAIT(AT(how.wait_s), "wait so long for users to go (default: 0)"),
	{ .name = "no-wait",
	  .type = OPT_FLAG,
	  .offset = AT(how.no_wait),
	  .help = "return before the id is free again" },
	CMD_OPT_TIMEOUT(AT(how.timeout_s), "deadline (default: 30)"),
	OPT_END
};

static const struct opt stop_options[] = {
	{ .name = "safe",
	  .type = OPT_FLAG,
	  .offset = AT(how.safe_only),
	  .help = "only if the driver itself keeps a disk in use (Linux 7.0)" },
	FORCE_OPTION,
	CMD_OPT_WAIT(AT(how.wait_s), "wait so long for users to go (default: 0)"),
	CMD_OPT_TIMEOUT(AT(how.timeout_s), "deadline (default: 30)"),
	OPT_END
};
/* clang-format on */

static const struct del_cfg del_defaults = { .how.timeout_s = CMD_TIMEOUT_DEFAULT };

/*
 * What lost its server and has no disk: nothing can use it, nothing serves it, nobody wants it back. By
 * its record: a device without one can be another tool's that is just being made, and another user's
 * record cannot be seen.
 */
static bool is_dead(const struct dev_view *v)
{
	return v->state && !strcmp(v->state, "dead") && v->pid < 0 && !v->has_disk &&
	       v->has_record && !v->rec.stopped && !rec_server_alive(&v->rec);
}

static int print_one(int id, const void *arg, struct fail *f)
{
	(void)arg;
	return cmd_print_path(id, f);
}

static int del_run(const struct cmd_args *a, struct fail *f)
{
	struct del_cfg *cfg = a->cfg;
	_cleanup_free_ int *ids = NULL;
	size_t n = 0;
	int r;

	if (cfg->dead && (cfg->all || a->nr_operands))
		return fail_set(f, FAIL_USAGE, "--dead excludes --all and ids");
	if (cfg->dry_run && !cfg->dead && !cfg->all)
		return fail_set(f, FAIL_USAGE, "--dry-run: only with --dead or --all");
	cfg->how.ignore_missing |= cfg->all || cfg->dead;
	r = cmd_ids_or_all(a, cfg->all || cfg->dead, &ids, &n, f);
	if (!r && cfg->dead)
		r = cmd_keep(ids, &n, is_dead, cfg->how.timeout_s, f);
	if (r < 0)
		return r;
	return cfg->dry_run ? cmd_each(ids, n, print_one, NULL, f) : teardown(&cfg->how, ids, n, f);
}

static int stop_run(const struct cmd_args *a, struct fail *f)
{
	struct del_cfg *cfg = a->cfg;
	_cleanup_free_ int *ids = NULL;
	size_t n = 0;
	int r;

	if (cfg->how.safe_only && cfg->how.force)
		return fail_set(f, FAIL_USAGE, "--safe and --force exclude each other");
	cfg->how.keep = true;
	r = cmd_ids_or_all(a, false, &ids, &n, f);
	return r < 0 ? r : teardown(&cfg->how, ids, n, f);
}

const struct cmd cmd_del = {
	.name = "del",
	.summary = "stop and delete devices",
	.operands = "ID|/dev/ublkbN... | --all | --dead",
	.max_operands = CMD_OPERANDS_ANY,
	.operand_hint = HINT_DEVICE,
	.options = del_options,
	.cfg_size = sizeof(struct del_cfg),
	.cfg_defaults = &del_defaults,
	.run = del_run,
};

const struct cmd cmd_stop = {
	.name = "stop",
	.summary = "take the disks of devices away, ids and records stay",
	.operands = "ID|/dev/ublkbN...",
	.min_operands = 1,
	.max_operands = CMD_OPERANDS_ANY,
	.operand_hint = HINT_DEVICE,
	.options = stop_options,
	.cfg_size = sizeof(struct del_cfg),
	.cfg_defaults = &del_defaults,
	.run = stop_run,
};
