/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "dev/dev.h"
#include "dev/qattr.h"
#include "util/cleanup.h"
#include "util/fs.h"

#define SETTLE_MS 500
#define SETTLE_POLL_MS 5

static int64_t sys_num(int id, const char *attr)
{
	char path[FS_PATH_MAX];
	uint64_t v;

	if (fs_read_u64(fs_path(path, "/sys/block/ublkb%d/%s", id, attr), &v) < 0 || v > INT64_MAX)
		return -1;
	return (int64_t)v;
}

int dev_disk_devt(int id, unsigned int *ret_major, unsigned int *ret_minor)
{
	char path[FS_PATH_MAX], buf[32];

	if (fs_read_text(fs_path(path, "/sys/block/ublkb%d/dev", id), buf, sizeof(buf)) < 0 ||
	    sscanf(buf, "%u:%u", ret_major, ret_minor) != 2)
		return -ENODEV;
	return 0;
}

bool dev_node_there(int id)
{
	char path[FS_PATH_MAX];
	unsigned int maj, min;
	struct stat st;

	if (stat(fs_path(path, "/dev/ublkb%d", id), &st) < 0 || dev_disk_devt(id, &maj, &min) < 0)
		return false;
	/* a recorded tree has plain files for nodes */
	return !fs_root_is_real() || (S_ISBLK(st.st_mode) && st.st_rdev == makedev(maj, min));
}

/*
 * Size, limits and read-only state come from sysfs alone: GET_PARAMS waits for a lock of the
 * driver that a stop or start against a stalled server holds, and `list` must not wait for it.
 */
static void from_sysfs(struct dev_view *v)
{
	int64_t sectors, kib;

	v->has_disk = dev_disk_exists(v->id);
	if (!v->has_disk)
		return;
	sectors = sys_num(v->id, "size");
	v->size = sectors < 0 ? -1 : sectors * 512;
	v->read_only = sys_num(v->id, "ro");
	v->block_size = sys_num(v->id, "queue/logical_block_size");
	v->phys_block_size = sys_num(v->id, "queue/physical_block_size");
	qattr_read_scheduler(v->id, v->scheduler, sizeof(v->scheduler));
	kib = sys_num(v->id, "queue/max_hw_sectors_kb");
	v->max_io = kib < 0 ? -1 : kib * 1024;
	v->node_missing = !dev_node_there(v->id);
}

static const char *state_name(unsigned int state)
{
	static const char *const names[] = {
		[UBLK_S_DEV_DEAD] = "dead",
		[UBLK_S_DEV_LIVE] = "live",
		[UBLK_S_DEV_QUIESCED] = "quiesced",
		[UBLK_S_DEV_FAIL_IO] = "fail-io",
	};

	return state < ARRAY_SIZE(names) ? names[state] : NULL;
}

static const char *mode_name(uint64_t flags)
{
	if (flags & UBLK_F_AUTO_BUF_REG)
		return flags & UBLK_F_SUPPORT_ZERO_COPY ? "auto-zc-fallback" : "auto-zc";
	if (flags & UBLK_F_SUPPORT_ZERO_COPY)
		return "zero-copy";
	if (flags & UBLK_F_USER_COPY)
		return "user-copy";
	if (flags & UBLK_F_NEED_GET_DATA)
		return "get-data";
	return "copy";
}

static const char *recovery_name(uint64_t flags)
{
	if (!(flags & UBLK_F_USER_RECOVERY))
		return "off";
	if (flags & UBLK_F_USER_RECOVERY_REISSUE)
		return "reissue";
	if (flags & UBLK_F_USER_RECOVERY_FAIL_IO)
		return "fail-io";
	return "queue";
}

static void from_driver(struct dev_view *v, const struct ublksrv_ctrl_dev_info *info)
{
	v->state = state_name(info->state);
	v->pid = info->ublksrv_pid > 0 ? info->ublksrv_pid : -1;
	/* Linux 6.12 still names the last server of a device that waits for the next one */
	if ((info->state == UBLK_S_DEV_QUIESCED || info->state == UBLK_S_DEV_FAIL_IO) &&
	    !fs_pid_start(info->ublksrv_pid))
		v->pid = -1;
	v->queues = info->nr_hw_queues;
	v->depth = info->queue_depth;
	v->max_io = info->max_io_buf_bytes;
	v->flags = info->flags;
	v->has_flags = true;
	v->cookie = info->ublksrv_flags;
	v->batch = !!(info->flags & UBLK_F_BATCH_IO);
	v->data_mode = mode_name(info->flags);
	v->recovery = recovery_name(info->flags);
	v->uid = info->owner_uid;
	v->gid = info->owner_gid;
}

/*
 * Is the record about this device? With the driver's word the cookie decides; without it (no
 * privileges) only a server that is alive proves it: ids are used again, by other tools too.
 */
static bool record_fits(const struct record *rec, const struct ublksrv_ctrl_dev_info *info)
{
	return info ? rec->cookie && rec->cookie == info->ublksrv_flags : rec_server_alive(rec);
}

static void from_record(struct dev_view *v, const struct ublksrv_ctrl_dev_info *info)
{
	v->target = "unknown";
	if (rec_load(v->id, &v->rec) < 0 || !record_fits(&v->rec, info))
		return;
	v->has_record = true;
	v->target = v->rec.target;
	v->threads = v->rec.cfg.threads;
	if (v->size < 0)
		v->size = (int64_t)v->rec.cfg.size;
	if (v->read_only < 0)
		v->read_only = v->rec.cfg.read_only;
	if (v->block_size < 0)
		v->block_size = (int64_t)v->rec.cfg.block_size;
	if (v->phys_block_size < 0)
		v->phys_block_size = (int64_t)v->rec.cfg.phys_block_size;
	if (info)
		return;
	/* without the driver's word: what the live server was granted */
	v->state = v->has_disk ? "live" : NULL;
	v->pid = v->rec.pid;
	v->batch = v->rec.cfg.batch;
	v->queues = v->rec.cfg.queues;
	v->depth = v->rec.cfg.depth;
	v->data_mode = *v->rec.data_mode ? v->rec.data_mode : NULL;
	v->recovery = *v->rec.recovery ? v->rec.recovery : "off";
}

static void view_init(struct dev_view *v, int id)
{
	memset(v, 0, sizeof(*v));
	v->id = id;
	snprintf(v->name, sizeof(v->name), "ublkb%d", id);
	snprintf(v->device, sizeof(v->device), "/dev/ublkb%d", id);
	snprintf(v->char_device, sizeof(v->char_device), "/dev/ublkc%d", id);
	v->size = v->batch = v->queues = v->depth = v->threads = v->pid = v->read_only = -1;
	v->block_size = v->phys_block_size = v->max_io = v->uid = v->gid = v->node_missing = -1;
}

/*
 * The driver calls a device live for a moment after its server has ended, while the disk goes already. So
 * one without a server is looked at again, until the driver knows. Not for long, for all devices of this
 * process together: a server in another PID namespace cannot be seen from here, and has its device live.
 */
static int get_settled(struct ctrl *c, int id, struct ublksrv_ctrl_dev_info *info)
{
	static int64_t left_ms = SETTLE_MS;
	const int64_t until = fs_now_ms() + left_ms;
	int r;

	while (!(r = ctrl_get_dev_info(c, (uint32_t)id, info)) && info->state == UBLK_S_DEV_LIVE &&
	       !fs_pid_start(info->ublksrv_pid) && fs_now_ms() < until) {
		fs_sleep_ms(SETTLE_POLL_MS);
		left_ms = until - fs_now_ms();
	}
	return r;
}

int dev_probe(struct ctrl *c, int id, struct dev_view *ret)
{
	struct ublksrv_ctrl_dev_info info, *known = NULL;
	int r = -EPERM;

	if (c) {
		r = get_settled(c, id, &info);
		if (r == -ENODEV)
			return r;
	}
	if (r < 0 && !dev_char_exists(id))
		return -ENODEV;
	view_init(ret, id);
	from_sysfs(ret);
	if (r == 0) {
		known = &info;
		from_driver(ret, known);
	} else if (!ret->has_disk) {
		ret->state = "dead";
	}
	from_record(ret, known);
	return 0;
}
