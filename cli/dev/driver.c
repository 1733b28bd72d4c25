/* SPDX-License-Identifier: MIT */
/*
 * What the driver is asked on behalf of a user: each failure gets a text that says what to do about it.
 */
#include <errno.h>
#include <string.h>

#include "abi/feature.h"
#include "dev/dev.h"
#include "util/fs.h"

#define POLL_MS 5

static int no_driver(struct fail *f)
{
	char path[FS_PATH_MAX];

	if (fs_exists(fs_path(path, "/sys/module/ublk_drv")))
		return fail_set(
			f, FAIL_UNSUPPORTED,
			"the ublk_drv module is loaded, but /dev/ublk-control is missing: is /dev complete?");
	return fail_set(
		f, FAIL_UNSUPPORTED,
		"no ublk driver: /dev/ublk-control is missing; load it with 'modprobe ublk_drv' (Linux 6.5 or later with CONFIG_BLK_DEV_UBLK)");
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

int dev_open_ctrl(struct ctrl *c, int timeout_ms, struct fail *f)
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
		return fail_set(
			f, -r,
			"no permission to open /dev/ublk-control (%s): this needs root, or udev rules for users",
			strerror(-r));
	return fail_errno(f, -r, "cannot open /dev/ublk-control");
}

int dev_get_features(struct ctrl *c, uint64_t *ret, struct fail *f)
{
	int r = ctrl_get_features(c, ret);

	if (r == -EOPNOTSUPP || r == -EINVAL)
		return fail_set(f, FAIL_UNSUPPORTED,
				"the driver does not tell its features: Linux 6.5 or later is needed");
	return r < 0 ? fail_errno(f, -r, "cannot get the driver's features") : 0;
}

int dev_need_features(uint64_t wanted, uint64_t mask, struct fail *f)
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

int dev_look(struct ctrl *c, int id, struct dev_view *ret, struct fail *f)
{
	int r = dev_probe(c, id, ret);

	if (r == -ENODEV)
		return fail_set(f, ENODEV, "no device %d", id);
	return r < 0 ? fail_errno(f, -r, "cannot look at device %d", id) : 0;
}

int dev_look_known(struct ctrl *c, int id, struct dev_view *ret, struct fail *f)
{
	struct ublksrv_ctrl_dev_info info;
	int r = dev_look(c, id, ret, f);

	if (r < 0 || ret->has_flags)
		return r;
	r = ctrl_get_dev_info(c, (uint32_t)id, &info);
	return r < 0 ? fail_errno(f, -r, "cannot look at device %d", id) : dev_look(c, id, ret, f);
}

static bool node_is_right(int id, uint64_t size)
{
	char path[FS_PATH_MAX];
	uint64_t sectors;

	if (!dev_node_there(id))
		return false;
	/* from sysfs: opening the disk here would make it busy for whoever comes next */
	return fs_read_u64(fs_path(path, "/sys/block/ublkb%d/size", id), &sectors) == 0 &&
	       sectors * 512 == size;
}

int dev_wait_node(int id, uint64_t size, unsigned int timeout_s, struct fail *f)
{
	int64_t deadline = fs_now_ms() + (int64_t)timeout_s * 1000;

	while (!node_is_right(id, size)) {
		if (fs_now_ms() > deadline)
			return fail_set(f, ETIME,
					"/dev/ublkb%d did not appear as a block device of %llu bytes",
					id, (unsigned long long)size);
		fs_sleep_ms(POLL_MS);
	}
	return 0;
}
