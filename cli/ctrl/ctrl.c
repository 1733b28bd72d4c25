/* SPDX-License-Identifier: MIT */
#include "ctrl/ctrl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE_NONE 0xffff
#define PATH_BYTES 32 /* of "/dev/ublkcN"; a multiple of 8: what follows stays aligned */

/* Where a device is its owner's and not root's, the path of its node comes in front of the buffer. */
static int submit_path(struct ctrl *c, struct ctrl_cmd *cmd)
{
	size_t len = cmd->hdr.len;
	void *theirs = (void *)(uintptr_t)cmd->hdr.addr;
	uint8_t *buf = calloc(1, PATH_BYTES + len);
	int r;

	if (!buf)
		return -ENOMEM;
	snprintf((char *)buf, PATH_BYTES, "/dev/ublkc%u", cmd->hdr.dev_id);
	if (len)
		memcpy(buf + PATH_BYTES, theirs, len);
	cmd->hdr.addr = (uintptr_t)buf;
	cmd->hdr.len = (uint16_t)(PATH_BYTES + len);
	cmd->hdr.dev_path_len = PATH_BYTES;
	r = c->ops->submit(c->priv, cmd, c->timeout_ms);
	if (r >= 0 && len)
		memcpy(theirs, buf + PATH_BYTES, len);
	free(buf);
	return r;
}

static int submit(struct ctrl *c, uint32_t op, uint32_t id, void *buf, size_t len, uint64_t data)
{
	struct ctrl_cmd cmd = {
		.op = op,
		.hdr = {
			.dev_id = id,
			.queue_id = QUEUE_NONE,
			.addr = (uintptr_t)buf,
			.len = (uint16_t)len,
			.data = { data },
		},
	};

	if (c->unprivileged && op != UBLK_U_CMD_GET_FEATURES && op != UBLK_U_CMD_ADD_DEV)
		return submit_path(c, &cmd);
	return c->ops->submit(c->priv, &cmd, c->timeout_ms);
}

void ctrl_close(struct ctrl *c)
{
	if (c->ops)
		c->ops->close(c->priv);
	c->ops = NULL;
}

int ctrl_get_features(struct ctrl *c, uint64_t *ret)
{
	uint64_t mask = 0;
	int r = submit(c, UBLK_U_CMD_GET_FEATURES, 0, &mask, UBLK_FEATURES_LEN, 0);

	if (r < 0)
		return r;
	*ret = mask;
	return 0;
}

int ctrl_add_dev(struct ctrl *c, struct ublksrv_ctrl_dev_info *info)
{
	struct ublksrv_ctrl_dev_info io = *info;
	/* from Linux 6.17 on the id must be the same in both places */
	int r = submit(c, UBLK_U_CMD_ADD_DEV, io.dev_id, &io, sizeof(io), 0);

	if (r < 0)
		return r;
	*info = io;
	return 0;
}

int ctrl_set_params(struct ctrl *c, uint32_t id, const struct ublk_params *p)
{
	struct ublk_params copy = *p;

	copy.len = sizeof(copy);
	return submit(c, UBLK_U_CMD_SET_PARAMS, id, &copy, sizeof(copy), 0);
}

int ctrl_get_params(struct ctrl *c, uint32_t id, struct ublk_params *ret)
{
	struct ublk_params p = { .len = sizeof(p) };
	int r = submit(c, UBLK_U_CMD_GET_PARAMS, id, &p, sizeof(p), 0);

	if (r < 0)
		return r;
	*ret = p;
	return 0;
}

int ctrl_start_dev(struct ctrl *c, uint32_t id, int32_t pid)
{
	return submit(c, UBLK_U_CMD_START_DEV, id, NULL, 0, (uint64_t)pid);
}

int ctrl_start_recovery(struct ctrl *c, uint32_t id)
{
	return submit(c, UBLK_U_CMD_START_USER_RECOVERY, id, NULL, 0, 0);
}

int ctrl_end_recovery(struct ctrl *c, uint32_t id, int32_t pid)
{
	return submit(c, UBLK_U_CMD_END_USER_RECOVERY, id, NULL, 0, (uint64_t)pid);
}

int ctrl_quiesce_dev(struct ctrl *c, uint32_t id, unsigned int timeout_ms)
{
	return submit(c, UBLK_U_CMD_QUIESCE_DEV, id, NULL, 0, timeout_ms);
}

int ctrl_update_size(struct ctrl *c, uint32_t id, uint64_t bytes)
{
	return submit(c, UBLK_U_CMD_UPDATE_SIZE, id, NULL, 0, bytes >> 9);
}

int ctrl_stop_dev(struct ctrl *c, uint32_t id)
{
	return submit(c, UBLK_U_CMD_STOP_DEV, id, NULL, 0, 0);
}

int ctrl_try_stop_dev(struct ctrl *c, uint32_t id)
{
	return submit(c, UBLK_U_CMD_TRY_STOP_DEV, id, NULL, 0, 0);
}

int ctrl_del_dev(struct ctrl *c, uint32_t id)
{
	return submit(c, UBLK_U_CMD_DEL_DEV, id, NULL, 0, 0);
}

int ctrl_del_dev_async(struct ctrl *c, uint32_t id)
{
	return submit(c, UBLK_U_CMD_DEL_DEV_ASYNC, id, NULL, 0, 0);
}

int ctrl_get_dev_info(struct ctrl *c, uint32_t id, struct ublksrv_ctrl_dev_info *ret)
{
	struct ublksrv_ctrl_dev_info info;
	struct ctrl_cmd cmd = {
		.op = UBLK_U_CMD_GET_DEV_INFO2,
		.hdr = {
			.dev_id = id,
			.queue_id = QUEUE_NONE,
			.addr = (uintptr_t)&info,
			.len = sizeof(info),
		},
	};
	int r = submit_path(c, &cmd), again;

	/* where the node is missing (no devtmpfs), the command without a path works for root */
	if (r < 0 && r != -ENODEV && r != -ETIME) {
		again = submit(c, UBLK_U_CMD_GET_DEV_INFO, id, &info, sizeof(info), 0);
		if (again >= 0 || again == -ENODEV)
			r = again;
	}
	if (r < 0)
		return r;
	*ret = info;
	return 0;
}

int ctrl_get_queue_affinity(struct ctrl *c, uint32_t id, uint16_t queue, cpu_set_t *ret)
{
	cpu_set_t set;
	int r;

	CPU_ZERO(&set);
	r = submit(c, UBLK_U_CMD_GET_QUEUE_AFFINITY, id, &set, sizeof(set), queue);
	if (r < 0)
		return r;
	*ret = set;
	return 0;
}
