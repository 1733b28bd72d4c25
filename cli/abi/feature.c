/* SPDX-License-Identifier: MIT */
#include "abi/feature.h"

#include "abi/ublk_abi.h"

#define BIT_OF(flag) ((unsigned int)__builtin_ctzll(flag))
#define FEATURE(flag, kernel, opt, text)                                                           \
	[BIT_OF(flag)] = { .bit = BIT_OF(flag),                                                    \
			   .name = #flag,                                                          \
			   .since = (kernel),                                                      \
			   .option = (opt),                                                        \
			   .summary = (text) }

static const struct abi_feature features[] = {
	FEATURE(UBLK_F_SUPPORT_ZERO_COPY, "6.15", "--zero-copy",
		"request pages as fixed buffers, registered by the server"),
	FEATURE(UBLK_F_URING_CMD_COMP_IN_TASK, "6.0", NULL,
		"I/O commands complete in the server's own context"),
	FEATURE(UBLK_F_NEED_GET_DATA, "6.0", "--data-mode get-data",
		"write data copied when the server asks for it"),
	FEATURE(UBLK_F_USER_RECOVERY, "6.1", "--recovery", "the device outlives its server"),
	FEATURE(UBLK_F_USER_RECOVERY_REISSUE, "6.1", "--recovery reissue",
		"what a dead server had taken goes to the next one"),
	FEATURE(UBLK_F_UNPRIVILEGED_DEV, "6.3", "--unprivileged",
		"devices of users without privileges"),
	FEATURE(UBLK_F_CMD_IOCTL_ENCODE, "6.4", "always", "ioctl-encoded command numbers"),
	FEATURE(UBLK_F_USER_COPY, "6.5", "--user-copy",
		"data moved by the server with pread and pwrite"),
	FEATURE(UBLK_F_ZONED, "6.6", NULL, "zoned devices"),
	FEATURE(UBLK_F_USER_RECOVERY_FAIL_IO, "6.13", "--recovery fail-io",
		"I/O fails while no server is there"),
	FEATURE(UBLK_F_UPDATE_SIZE, "6.16", "resize", "size change of a live device"),
	FEATURE(UBLK_F_AUTO_BUF_REG, "6.16", "--auto-zc",
		"request pages as fixed buffers, registered by the driver"),
	FEATURE(UBLK_F_QUIESCE, "6.16", "restart", "hand-over of a live device to a new server"),
	FEATURE(UBLK_F_PER_IO_DAEMON, "6.16", NULL, "each I/O can have a server thread of its own"),
	FEATURE(UBLK_F_BUF_REG_OFF_DAEMON, "6.17", NULL, "buffers registered from any thread"),
	FEATURE(UBLK_F_BATCH_IO, "7.0", "--batch", "I/O fetched and committed in batches"),
	FEATURE(UBLK_F_INTEGRITY, "7.0", NULL, "integrity metadata"),
	FEATURE(UBLK_F_SAFE_STOP_DEV, "7.0", "stop --safe", "stop refused by the driver while in use"),
	FEATURE(UBLK_F_NO_AUTO_PART_SCAN, "7.0", "--no-partscan", "no partition scan at start"),
	FEATURE(UBLK_F_SHMEM_ZC, "7.1", NULL, "memory shared with the client"),
	FEATURE(UBLK_F_IO_DESC_SIZE, "7.3", NULL, "larger I/O descriptors"),
};

const struct abi_feature *abi_features(size_t *ret_count)
{
	*ret_count = sizeof(features) / sizeof(features[0]);
	return features;
}

const struct abi_feature *abi_feature_by_bit(unsigned int bit)
{
	return bit < sizeof(features) / sizeof(features[0]) ? &features[bit] : NULL;
}
