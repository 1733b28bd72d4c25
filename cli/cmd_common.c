/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "daemon.h"
#include "dev/dev.h"
#include "util/cleanup.h"

static bool has_id(const int *ids, size_t n, int id)
{
	for (size_t i = 0; i < n; i++)
		if (ids[i] == id)
			return true;
	return false;
}

int cmd_ids(const struct cmd_args *a, int **ret_ids, size_t *ret_count, struct fail *f)
{
	_cleanup_free_ int *ids = calloc((size_t)a->nr_operands + 1, sizeof(*ids));
	size_t n = 0;

	if (!ids)
		return fail_errno(f, ENOMEM, "cannot read the ids");
	/* all are read before the first is touched: a typing error changes nothing */
	for (int i = 0; i < a->nr_operands; i++) {
		int id, r = dev_parse_operand(a->operands[i], &id, f);

		if (r < 0)
			return r;
		if (!has_id(ids, n, id))
			ids[n++] = id;
	}
	*ret_ids = steal_ptr(&ids);
	*ret_count = n;
	return 0;
}

int cmd_ids_or_all(const struct cmd_args *a, bool all, int **ret_ids, size_t *ret_count,
		   struct fail *f)
{
	int r;

	if (all && a->nr_operands)
		return fail_set(f, FAIL_USAGE, "--all and ids exclude each other");
	if (!all && !a->nr_operands)
		return fail_set(f, FAIL_USAGE, "which device? (ids, or --all)");
	if (!all)
		return cmd_ids(a, ret_ids, ret_count, f);
	r = dev_scan(ret_ids, ret_count);
	if (r != -ENODEV)
		return r < 0 ? fail_errno(f, -r, "cannot read /sys/class/ublk-char") : 0;
	/* without a driver the control device says so in more words */
	*ret_ids = NULL;
	*ret_count = 0;
	return 0;
}

int cmd_keep(int *ids, size_t *count, bool (*want)(const struct dev_view *v),
	     unsigned int timeout_s, struct fail *f)
{
	struct ctrl c;
	size_t n = 0;
	int r = dev_open_ctrl(&c, (int)timeout_s * 1000, f);

	if (r < 0)
		return r;
	for (size_t i = 0; i < *count; i++) {
		struct dev_view v;

		if (dev_probe(&c, ids[i], &v) == 0 && want(&v))
			ids[n++] = ids[i];
	}
	ctrl_close(&c);
	*count = n;
	return 0;
}

int cmd_in_helper(int (*fn)(void *arg, struct fail *f), void *arg, unsigned int timeout_s,
		  struct fail *f)
{
	struct daemon_call call;
	int r = daemon_call_start(&call, fn, arg, (int)timeout_s * 1000, f);

	if (!r)
		r = daemon_call_wait(&call, f);
	return r == -ETIME ?
		       fail_set(f, ETIME, "timed out after %u s waiting for the driver", timeout_s) :
		       r;
}

int cmd_each(const int *ids, size_t n, int (*fn)(int id, const void *arg, struct fail *f),
	     const void *arg, struct fail *f)
{
	int first = 0;

	for (size_t i = 0; i < n; i++) {
		int r;

		f->text[0] = '\0';
		r = fn(ids[i], arg, f);
		if (r < 0 && *f->text)
			msg_error("%s", f->text);
		first = first ? first : r;
	}
	f->text[0] = '\0';
	return first;
}

int cmd_print_path(int id, struct fail *f)
{
	if (printf("/dev/ublkb%d\n", id) < 0 || fflush(stdout))
		return fail_errno(f, errno, "cannot write to standard output");
	return 0;
}

int cmd_print_device(int id, struct fail *f)
{
	static struct dev_view v; /* columns point into it until it is printed */
	struct ctrl c;
	struct out o = { .json_array = "devices", .rows = &v, .row_size = sizeof(v), .nr_rows = 1 };
	const struct out_opts opts = { .json = true };
	int r = dev_open_ctrl(&c, 1000, f);

	if (r < 0)
		return r;
	r = dev_probe(&c, id, &v);
	ctrl_close(&c);
	if (r < 0)
		return fail_errno(f, -r, "cannot look at device %d", id);
	o.cols = col_device(&o.nr_cols);
	return out_print(&o, &opts, f);
}
