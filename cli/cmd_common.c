/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "abi/feature.h"
#include "cmd.h"
#include "dev/dev.h"
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
