/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "abi/feature.h"
#include "cmd.h"
#include "daemon.h"
#include "dev/dev.h"
#include "serve.h"
#include "util/cleanup.h"
#include "util/fs.h"

static int no_driver(struct fail *f)
{
	char path[FS_PATH_MAX];

	if (fs_exists(fs_path(path, "/sys/module/ublk_drv")))
		return fail_set(
			f, FAIL_UNSUPPORTED,
			"the ublk_drv module is loaded, but /dev/ublk-control is missing: is /dev complete?");
	return fail_set(
		f, FAIL_UNSUPPORTED,
		"no ublk driver: /dev/ublk-control is missing; load it with 'modprobe ublk_drv' (Linux 6.0 or later with CONFIG_BLK_DEV_UBLK)");
}

/* io_uring is there in every kernel with ublk: something forbids it. */
static int no_io_uring(int err, struct fail *f)
{
	char path[FS_PATH_MAX];
	uint64_t disabled = 0;

	if (fs_read_u64(fs_path(path, "/proc/sys/kernel/io_uring_disabled"), &disabled) == 0 &&
	    disabled)
		return fail_set(f, FAIL_UNSUPPORTED,
				"io_uring is forbidden: sysctl kernel.io_uring_disabled is %llu",
				(unsigned long long)disabled);
	if (err == EPERM || err == ENOSYS || err == EACCES)
		return fail_set(
			f, FAIL_UNSUPPORTED,
			"io_uring is forbidden (%s): a container's seccomp filter or a kernel without it",
			strerror(err));
	return fail_errno(f, err, "cannot set up a control ring");
}

int cmd_open_ctrl(struct ctrl *c, int timeout_ms, struct fail *f)
{
	const char *stage;
	int r = ctrl_open(c, timeout_ms, &stage);

	if (!r)
		return 0;
	if (!strcmp(stage, "io_uring"))
		return no_io_uring(-r, f);
	if (r == -ENOENT || r == -ENODEV || r == -ENXIO)
		return no_driver(f);
	if (r == -EACCES || r == -EPERM)
		return fail_set(f, -r, "no permission to open /dev/ublk-control (%s): this needs root",
				strerror(-r));
	return fail_errno(f, -r, "cannot open /dev/ublk-control");
}

int cmd_get_features(struct ctrl *c, uint64_t *ret, struct fail *f)
{
	int r = ctrl_get_features(c, ret);

	if (r == -EOPNOTSUPP || r == -EINVAL)
		return fail_set(f, FAIL_UNSUPPORTED,
				"the driver does not tell its features: Linux 6.5 or later is needed");
	return r < 0 ? fail_errno(f, -r, "cannot get the driver's features") : 0;
}

int cmd_need_features(uint64_t wanted, uint64_t mask, struct fail *f)
{
	uint64_t missing = wanted & ~mask;
	const struct abi_feature *feat;

	if (!missing)
		return 0;
	feat = abi_feature_by_bit((unsigned int)__builtin_ctzll(missing));
	return fail_set(f, FAIL_UNSUPPORTED, "%s needs %s, Linux %s or later; this driver has %#llx",
			feat->option ? feat->option : "this", feat->name, feat->since,
			(unsigned long long)mask);
}

int cmd_probe(struct ctrl *c, int id, struct dev_view *ret, struct fail *f)
{
	int r = dev_probe(c, id, ret);

	if (r == -ENODEV)
		return fail_set(f, ENODEV, "no device %d", id);
	return r < 0 ? fail_errno(f, -r, "cannot look at device %d", id) : 0;
}

static bool node_is_right(int id, uint64_t size)
{
	char path[FS_PATH_MAX];
	unsigned int maj, min;
	uint64_t sectors;
	struct stat st;

	if (stat(fs_path(path, "/dev/ublkb%d", id), &st) < 0 || !S_ISBLK(st.st_mode) ||
	    dev_disk_devt(id, &maj, &min) < 0 || st.st_rdev != makedev(maj, min))
		return false;
	/* from sysfs: opening the disk here would make it busy for whoever comes next */
	return fs_read_u64(fs_path(path, "/sys/block/ublkb%d/size", id), &sectors) == 0 &&
	       sectors * 512 == size;
}

int cmd_wait_node(int id, uint64_t size, unsigned int timeout_s, struct fail *f)
{
	int64_t deadline = fs_now_ms() + (int64_t)timeout_s * 1000;

	while (!node_is_right(id, size)) {
		if (fs_now_ms() > deadline)
			return fail_set(f, ETIME,
					"/dev/ublkb%d did not appear as a block device of %llu bytes",
					id, (unsigned long long)size);
		fs_sleep_ms(SERVE_POLL_MS);
	}
	return 0;
}

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
	int r = cmd_open_ctrl(&c, (int)timeout_s * 1000, f);

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
	int r = cmd_open_ctrl(&c, 1000, f);

	if (r < 0)
		return r;
	r = dev_probe(&c, id, &v);
	ctrl_close(&c);
	if (r < 0)
		return fail_errno(f, -r, "cannot look at device %d", id);
	o.cols = col_device(&o.nr_cols);
	return out_print(&o, &opts, f);
}
