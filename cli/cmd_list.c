/* SPDX-License-Identifier: MIT */
/*
 * list: all devices, whoever made them, as far as the caller may see.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "dev/dev.h"
#include "util/cleanup.h"
#include "util/fs.h"

/* the driver answers at once; a stuck one must not make `list` wait */
#define LIST_TIMEOUT_MS 2000

struct list_cfg {
	struct cmd_common common;
	struct out_opts out;
	bool list_columns;
	const char *state;
};

static const char *state_word(unsigned int n)
{
	static const char *const words[] = { "live", "dead", "quiesced", "fail-io" };

	return n < ARRAY_SIZE(words) ? words[n] : NULL;
}

#define AT(member) offsetof(struct list_cfg, member)

/* clang-format off: one option, one entry */
static const struct opt list_options[] = {
	CMD_OPTS_TABLE(AT(out)),
	{ .name = "state",
	  .type = OPT_WORD,
	  .arg = "STATE",
	  .word = state_word,
	  .offset = AT(state),
	  .help = "only devices in this state: live, dead, quiesced, fail-io" },
	{ .name = "list-columns",
	  .type = OPT_FLAG,
	  .offset = AT(list_columns),
	  .help = "print the columns and what they mean" },
	OPT_END
};
/* clang-format on */

static const struct list_cfg list_defaults;

static int collect_ids(const struct cmd_args *a, int **ret_ids, size_t *ret_count, struct fail *f)
{
	int r;

	if (a->nr_operands)
		return cmd_ids(a, ret_ids, ret_count, f);
	r = dev_scan(ret_ids, ret_count);
	if (r == -ENODEV)
		return fail_set(f, FAIL_UNSUPPORTED,
				"no ublk driver: load it with 'modprobe ublk_drv'");
	return r < 0 ? fail_errno(f, -r, "cannot read /sys/class/ublk-char") : 0;
}

/* What to do about a device that nobody serves: the state alone does not say it. */
static void hint_next(const struct dev_view *v)
{
	const bool again = v->has_record;

	if (!v->state)
		return;
	/* with a server it is only on its way out */
	if (!strcmp(v->state, "dead") && v->pid < 0 && v->has_record && v->rec.stopped)
		msg_hint("device %d is stopped: 'ublkctl start %d' brings its disk back", v->id,
			 v->id);
	else if (!strcmp(v->state, "dead") && v->pid < 0 && again)
		msg_hint("device %d is DEAD: its server has gone; 'ublkctl start %d' serves it again, 'ublkctl del %d' removes it",
			 v->id, v->id, v->id);
	else if (!strcmp(v->state, "dead") && v->pid < 0)
		msg_hint("device %d is DEAD: its server has gone; 'ublkctl del %d' removes it",
			 v->id, v->id);
	else if (!strcmp(v->state, "quiesced") || !strcmp(v->state, "fail-io"))
		msg_hint("device %d is without a server, its I/O %s: 'ublkctl %s %d' %s", v->id,
			 *v->state == 'q' ? "waits" : "fails", again ? "recover" : "del", v->id,
			 again ? "gives it a new one" : "removes it");
}

/* Views of the ids; a device that went meanwhile is left out, one that was asked for is missed. */
static int probe_all(struct ctrl *c, const struct list_cfg *cfg, const int *ids, size_t n,
		     bool asked, struct dev_view *views, size_t *ret_count)
{
	size_t k = 0;
	int first = 0;

	for (size_t i = 0; i < n; i++) {
		int r = dev_probe(c, ids[i], &views[k]);

		if (r < 0 && asked) {
			msg_error("no device %d", ids[i]);
			first = first ? first : r;
		}
		if (r < 0 || (cfg->state && (!views[k].state || strcmp(cfg->state, views[k].state))))
			continue;
		k++;
	}
	*ret_count = k;
	return first;
}

static int list_run(const struct cmd_args *a, struct fail *f)
{
	struct list_cfg *cfg = a->cfg;
	_cleanup_free_ struct dev_view *views = NULL;
	_cleanup_free_ int *ids = NULL;
	struct out o = { .json_array = "devices", .row_size = sizeof(*views) };
	size_t index[OUT_COLS_MAX], n;
	struct ctrl c = { 0 };
	struct fail why;
	bool has_ctrl;
	int r, missing;

	o.cols = col_device(&o.nr_cols);
	if (cfg->list_columns) {
		col_list(o.cols, o.nr_cols);
		return 0;
	}
	r = col_select(&o, cfg->out.columns, index, &n, f);
	if (!r)
		r = collect_ids(a, &ids, &n, f);
	if (r < 0)
		return r;
	views = calloc(n + 1, sizeof(*views));
	if (!views)
		return fail_errno(f, ENOMEM, "cannot list devices");
	/* the driver of this machine knows nothing of a recorded tree */
	fail_set(&why, 0, "the tree is a recorded one");
	has_ctrl = n && fs_root_is_real() && dev_open_ctrl(&c, LIST_TIMEOUT_MS, &why) == 0;
	missing = probe_all(has_ctrl ? &c : NULL, cfg, ids, n, a->nr_operands > 0, views, &o.nr_rows);
	if (has_ctrl)
		ctrl_close(&c);
	o.rows = views;
	r = out_print(&o, &cfg->out, f);
	if (n && !has_ctrl)
		msg_hint("only what sysfs tells: %s", why.text);
	for (size_t i = 0; i < o.nr_rows; i++)
		hint_next(&views[i]);
	return r < 0 ? r : missing;
}

const struct cmd cmd_list = {
	.name = "list",
	.summary = "list devices",
	.operands = "[ID|/dev/ublkbN]...",
	.max_operands = CMD_OPERANDS_ANY,
	.operand_hint = HINT_DEVICE,
	.options = list_options,
	.cfg_size = sizeof(struct list_cfg),
	.cfg_defaults = &list_defaults,
	.columns = col_device,
	.run = list_run,
};
