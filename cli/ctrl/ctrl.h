/* SPDX-License-Identifier: MIT */
/*
 * The ublk driver's control plane: one typed function per command.
 *
 * Every function returns 0 or -errno as the driver gave it, -ETIME when the deadline passed
 * first, and prints nothing. Meaning of the commands: Documentation/block/ublk.rst.
 */
#ifndef CTRL_CTRL_H
#define CTRL_CTRL_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "abi/ublk_abi.h"

/* What is sent in one command; filled by ctrl.c, carried by a transport. */
struct ctrl_cmd {
	uint32_t op; /* UBLK_U_CMD_… */
	struct ublksrv_ctrl_cmd hdr;
};

/* Carrier of commands: the ring on /dev/ublk-control, or a test's own. */
struct ctrl_transport {
	/* result of the command, or -ETIME after timeout_ms */
	int (*submit)(void *priv, const struct ctrl_cmd *cmd, int timeout_ms);
	void (*close)(void *priv);
};

struct ctrl {
	const struct ctrl_transport *ops;
	void *priv;
	int timeout_ms; /* of each command; the owner may change it */
	/* for devices with UBLK_F_UNPRIVILEGED_DEV: each command shows that the caller may use the node */
	bool unprivileged;
};

/*
 * Opens /dev/ublk-control and a ring. -ENOENT or -ENODEV: no driver; -EACCES or -EPERM at stage
 * "open": no permission; any error at stage "io_uring": the kernel does not give a ring.
 */
int ctrl_open(struct ctrl *c, int timeout_ms, const char **ret_stage);
void ctrl_close(struct ctrl *c);

int ctrl_get_features(struct ctrl *c, uint64_t *ret);
/* info: wishes in, grants out; dev_id -1 lets the driver choose. -EEXIST: the id is taken. */
int ctrl_add_dev(struct ctrl *c, struct ublksrv_ctrl_dev_info *info);
int ctrl_set_params(struct ctrl *c, uint32_t id, const struct ublk_params *p);
int ctrl_get_params(struct ctrl *c, uint32_t id, struct ublk_params *ret);
/* Returns when every queue was armed and the disk exists. */
int ctrl_start_dev(struct ctrl *c, uint32_t id, int32_t pid);
/* -EBUSY: the last server is not gone yet; -EINVAL: the device was added without recovery. */
int ctrl_start_recovery(struct ctrl *c, uint32_t id);
/* As ctrl_start_dev(), for a device whose disk is there. */
int ctrl_end_recovery(struct ctrl *c, uint32_t id, int32_t pid);
/*
 * New requests wait, the server gets ABORT and ends; state QUIESCED follows when it has. -EBUSY: a
 * queue had all its requests in the server for timeout_ms; requests wait all the same from then on.
 * -EOPNOTSUPP: added without UBLK_F_QUIESCE (Linux 6.16).
 */
int ctrl_quiesce_dev(struct ctrl *c, uint32_t id, unsigned int timeout_ms);
/* Of the disk; -ENODEV: it has none; -EOPNOTSUPP before Linux 6.16. */
int ctrl_update_size(struct ctrl *c, uint32_t id, uint64_t bytes);
int ctrl_stop_dev(struct ctrl *c, uint32_t id);
/* -EBUSY: the disk has an opener; -EOPNOTSUPP before Linux 7.0; -ENODEV: it has no disk. */
int ctrl_try_stop_dev(struct ctrl *c, uint32_t id);
/* Returns when the id is free again: it waits for all that have /dev/ublkcN open. */
int ctrl_del_dev(struct ctrl *c, uint32_t id);
int ctrl_del_dev_async(struct ctrl *c, uint32_t id);
/* Works for the owner of an unprivileged device too. -ENODEV: no such device. */
int ctrl_get_dev_info(struct ctrl *c, uint32_t id, struct ublksrv_ctrl_dev_info *ret);
/* CPUs that the block layer maps to the queue. */
int ctrl_get_queue_affinity(struct ctrl *c, uint32_t id, uint16_t queue, cpu_set_t *ret);

#endif
