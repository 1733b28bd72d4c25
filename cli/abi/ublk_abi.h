/* SPDX-License-Identifier: MIT */
/*
 * The part of the ublk driver's ABI that is used, and the few io_uring numbers that are
 * younger than liburing 2.3. Facts from the kernel's uapi headers ublk_cmd.h and io_uring.h
 * (Linux 7.3); tests/docs checks each name and offset against a packaged header.
 */
#ifndef ABI_UBLK_ABI_H
#define ABI_UBLK_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

/* ---- control commands: SQE of 128 bytes on /dev/ublk-control -------------------------- */

struct ublksrv_ctrl_cmd {
	uint32_t dev_id;
	uint16_t queue_id; /* 0xffff: not for a queue */
	uint16_t len;	   /* bytes at addr, the path in front included */
	uint64_t addr;
	uint64_t data[1];
	uint16_t dev_path_len; /* path of /dev/ublkcN in front of the buffer, NUL included */
	uint16_t pad;
	uint32_t reserved;
};

#define UBLK_U_CMD_GET_QUEUE_AFFINITY _IOR('u', 0x01, struct ublksrv_ctrl_cmd)
#define UBLK_U_CMD_GET_DEV_INFO _IOR('u', 0x02, struct ublksrv_ctrl_cmd)
#define UBLK_U_CMD_ADD_DEV _IOWR('u', 0x04, struct ublksrv_ctrl_cmd)
#define UBLK_U_CMD_DEL_DEV _IOWR('u', 0x05, struct ublksrv_ctrl_cmd)
#define UBLK_U_CMD_START_DEV _IOWR('u', 0x06, struct ublksrv_ctrl_cmd)
#define UBLK_U_CMD_STOP_DEV _IOWR('u', 0x07, struct ublksrv_ctrl_cmd)
#define UBLK_U_CMD_SET_PARAMS _IOWR('u', 0x08, struct ublksrv_ctrl_cmd)
#define UBLK_U_CMD_GET_PARAMS _IOR('u', 0x09, struct ublksrv_ctrl_cmd)
#define UBLK_U_CMD_START_USER_RECOVERY _IOWR('u', 0x10, struct ublksrv_ctrl_cmd)
#define UBLK_U_CMD_END_USER_RECOVERY _IOWR('u', 0x11, struct ublksrv_ctrl_cmd)
#define UBLK_U_CMD_GET_DEV_INFO2 _IOR('u', 0x12, struct ublksrv_ctrl_cmd)
#define UBLK_U_CMD_GET_FEATURES _IOR('u', 0x13, struct ublksrv_ctrl_cmd)
#define UBLK_U_CMD_DEL_DEV_ASYNC _IOR('u', 0x14, struct ublksrv_ctrl_cmd)
#define UBLK_U_CMD_UPDATE_SIZE _IOWR('u', 0x15, struct ublksrv_ctrl_cmd)
#define UBLK_U_CMD_QUIESCE_DEV _IOWR('u', 0x16, struct ublksrv_ctrl_cmd)
#define UBLK_U_CMD_TRY_STOP_DEV _IOWR('u', 0x17, struct ublksrv_ctrl_cmd)

#define UBLK_FEATURES_LEN 8

/* ---- feature flags -------------------------------------------------------------------- */

#define UBLK_F_SUPPORT_ZERO_COPY (1ULL << 0)
#define UBLK_F_URING_CMD_COMP_IN_TASK (1ULL << 1)
#define UBLK_F_NEED_GET_DATA (1ULL << 2)
#define UBLK_F_USER_RECOVERY (1ULL << 3)
#define UBLK_F_USER_RECOVERY_REISSUE (1ULL << 4)
#define UBLK_F_UNPRIVILEGED_DEV (1ULL << 5)
#define UBLK_F_CMD_IOCTL_ENCODE (1ULL << 6)
#define UBLK_F_USER_COPY (1ULL << 7)
#define UBLK_F_ZONED (1ULL << 8)
#define UBLK_F_USER_RECOVERY_FAIL_IO (1ULL << 9)
#define UBLK_F_UPDATE_SIZE (1ULL << 10)
#define UBLK_F_AUTO_BUF_REG (1ULL << 11)
#define UBLK_F_QUIESCE (1ULL << 12)
#define UBLK_F_PER_IO_DAEMON (1ULL << 13)
#define UBLK_F_BUF_REG_OFF_DAEMON (1ULL << 14)
#define UBLK_F_BATCH_IO (1ULL << 15)
#define UBLK_F_INTEGRITY (1ULL << 16)
#define UBLK_F_SAFE_STOP_DEV (1ULL << 17)
#define UBLK_F_NO_AUTO_PART_SCAN (1ULL << 18)
#define UBLK_F_SHMEM_ZC (1ULL << 19)
#define UBLK_F_IO_DESC_SIZE (1ULL << 20)

/* ---- device information and parameters ------------------------------------------------ */

#define UBLK_S_DEV_DEAD 0
#define UBLK_S_DEV_LIVE 1
#define UBLK_S_DEV_QUIESCED 2
#define UBLK_S_DEV_FAIL_IO 3

#define UBLK_MAX_QUEUE_DEPTH 4096
#define UBLK_MAX_NR_QUEUES 4096
/* largest buffer of one I/O: 25 bits of byte offset in a user-copy position */
#define UBLK_MAX_IO_BUF_BYTES (1U << 25)

struct ublksrv_ctrl_dev_info {
	uint16_t nr_hw_queues;
	uint16_t queue_depth;
	uint16_t state;
	uint16_t io_desc_size;
	uint32_t max_io_buf_bytes;
	uint32_t dev_id;
	int32_t ublksrv_pid;
	uint32_t pad1;
	uint64_t flags;
	uint64_t ublksrv_flags; /* the server's own, not looked at by the driver */
	uint32_t owner_uid;
	uint32_t owner_gid;
	uint64_t reserved1;
	uint64_t reserved2;
};

#define UBLK_ATTR_READ_ONLY (1U << 0)
#define UBLK_ATTR_ROTATIONAL (1U << 1)
#define UBLK_ATTR_VOLATILE_CACHE (1U << 2)
#define UBLK_ATTR_FUA (1U << 3)

struct ublk_param_basic {
	uint32_t attrs;
	uint8_t logical_bs_shift;
	uint8_t physical_bs_shift;
	uint8_t io_opt_shift;
	uint8_t io_min_shift;
	uint32_t max_sectors;
	uint32_t chunk_sectors;
	uint64_t dev_sectors; /* of 512 bytes */
	uint64_t virt_boundary_mask;
};

struct ublk_param_discard {
	uint32_t discard_alignment;
	uint32_t discard_granularity;
	uint32_t max_discard_sectors;
	uint32_t max_write_zeroes_sectors;
	uint16_t max_discard_segments;
	uint16_t reserved0;
};

struct ublk_param_devt {
	uint32_t char_major;
	uint32_t char_minor;
	uint32_t disk_major;
	uint32_t disk_minor;
};

struct ublk_param_zoned {
	uint32_t max_open_zones;
	uint32_t max_active_zones;
	uint32_t max_zone_append_sectors;
	uint8_t reserved[20];
};

struct ublk_param_dma_align {
	uint32_t alignment; /* a mask: 511 for 512-byte alignment */
	uint8_t pad[4];
};

struct ublk_param_segment {
	uint64_t seg_boundary_mask;
	uint32_t max_segment_size;
	uint16_t max_segments;
	uint8_t pad[2];
};

#define UBLK_PARAM_TYPE_BASIC (1U << 0)
#define UBLK_PARAM_TYPE_DISCARD (1U << 1)
#define UBLK_PARAM_TYPE_DEVT (1U << 2)
#define UBLK_PARAM_TYPE_ZONED (1U << 3)
#define UBLK_PARAM_TYPE_DMA_ALIGN (1U << 4)
#define UBLK_PARAM_TYPE_SEGMENT (1U << 5)

/* Newer drivers know more members behind these; len tells them how much is here. */
struct ublk_params {
	uint32_t len;
	uint32_t types;
	struct ublk_param_basic basic;
	struct ublk_param_discard discard;
	struct ublk_param_devt devt;
	struct ublk_param_zoned zoned;
	struct ublk_param_dma_align dma;
	struct ublk_param_segment seg;
};

/* ---- I/O commands: uring_cmd on /dev/ublkcN --------------------------------------------- */

struct ublksrv_io_cmd {
	uint16_t q_id;
	uint16_t tag;
	int32_t result; /* bytes or -errno, with a commit */
	uint64_t addr;
};

struct ublksrv_io_desc {
	uint32_t op_flags; /* operation in bits 0-7, UBLK_IO_F_ above */
	uint32_t nr_sectors;
	uint64_t start_sector;
	uint64_t addr;
};

/* one element of a batch command; in copy mode an 8-byte buffer address follows it */
struct ublk_elem_header {
	uint16_t tag;
	uint16_t buf_index;
	int32_t result;
};

struct ublk_batch_io {
	uint16_t q_id;
	uint16_t flags;
	uint16_t nr_elem;
	uint8_t elem_bytes;
	uint8_t reserved;
	uint64_t reserved2;
};

#define UBLK_U_IO_FETCH_REQ _IOWR('u', 0x20, struct ublksrv_io_cmd)
#define UBLK_U_IO_COMMIT_AND_FETCH_REQ _IOWR('u', 0x21, struct ublksrv_io_cmd)
#define UBLK_U_IO_NEED_GET_DATA _IOWR('u', 0x22, struct ublksrv_io_cmd)
#define UBLK_U_IO_REGISTER_IO_BUF _IOWR('u', 0x23, struct ublksrv_io_cmd)
#define UBLK_U_IO_UNREGISTER_IO_BUF _IOWR('u', 0x24, struct ublksrv_io_cmd)
#define UBLK_U_IO_PREP_IO_CMDS _IOWR('u', 0x25, struct ublk_batch_io)
#define UBLK_U_IO_COMMIT_IO_CMDS _IOWR('u', 0x26, struct ublk_batch_io)
#define UBLK_U_IO_FETCH_IO_CMDS _IOWR('u', 0x27, struct ublk_batch_io)

#define UBLK_BATCH_F_HAS_BUF_ADDR (1U << 1)
#define UBLK_BATCH_F_AUTO_BUF_REG_FALLBACK (1U << 2)

/* auto buffer registration of the per-I/O path: in sqe->addr, above the 16 bits of the index */
#define UBLK_AUTO_BUF_REG_FALLBACK (1U << 0)

#define UBLK_IO_RES_OK 0
#define UBLK_IO_RES_NEED_GET_DATA 1
#define UBLK_IO_RES_ABORT (-19) /* -ENODEV */

#define UBLKSRV_CMD_BUF_OFFSET 0
/* position of a request's data in /dev/ublkcN (user copy): this + queue, tag and byte offset */
#define UBLKSRV_IO_BUF_OFFSET 0x80000000ULL
#define UBLK_TAG_OFF 25
#define UBLK_QID_OFF 41

#define UBLK_IO_OP_READ 0
#define UBLK_IO_OP_WRITE 1
#define UBLK_IO_OP_FLUSH 2
#define UBLK_IO_OP_DISCARD 3
#define UBLK_IO_OP_WRITE_ZEROES 5

#define UBLK_IO_F_FUA (1U << 13)
#define UBLK_IO_F_NOUNMAP (1U << 15)
#define UBLK_IO_F_NEED_REG_BUF (1U << 17)

/* ---- io_uring, younger than liburing 2.3 ------------------------------------------------ */

#define ABI_IOU_PBUF_RING_INC 2U	    /* flag of a buffer ring, Linux 6.12 */
#define ABI_IORING_CQE_F_BUF_MORE (1U << 4) /* the buffer has room left, Linux 6.12 */
#define ABI_URING_CMD_MULTISHOT (1U << 1)   /* in uring_cmd_flags, Linux 6.18 */

/* struct io_uring_buf_reg, whose flags have no name in liburing 2.3 */
struct abi_buf_reg {
	uint64_t ring_addr;
	uint32_t ring_entries;
	uint16_t bgid;
	uint16_t flags;
	uint64_t resv[3];
};

/* ---- layout --------------------------------------------------------------------------- */

#define ABI_ASSERT(cond) _Static_assert(cond, #cond)

ABI_ASSERT(sizeof(struct ublksrv_ctrl_cmd) == 32);
ABI_ASSERT(offsetof(struct ublksrv_ctrl_cmd, addr) == 8);
ABI_ASSERT(offsetof(struct ublksrv_ctrl_cmd, dev_path_len) == 24);
ABI_ASSERT(sizeof(struct ublksrv_ctrl_dev_info) == 64);
ABI_ASSERT(offsetof(struct ublksrv_ctrl_dev_info, flags) == 24);
ABI_ASSERT(offsetof(struct ublksrv_ctrl_dev_info, owner_uid) == 40);
ABI_ASSERT(sizeof(struct ublk_param_basic) == 32);
ABI_ASSERT(sizeof(struct ublk_param_discard) == 20);
ABI_ASSERT(sizeof(struct ublk_param_devt) == 16);
ABI_ASSERT(sizeof(struct ublk_param_zoned) == 32);
ABI_ASSERT(sizeof(struct ublk_param_dma_align) == 8);
ABI_ASSERT(sizeof(struct ublk_param_segment) == 16);
ABI_ASSERT(offsetof(struct ublk_params, basic) == 8);
ABI_ASSERT(offsetof(struct ublk_params, discard) == 40);
ABI_ASSERT(offsetof(struct ublk_params, devt) == 60);
ABI_ASSERT(offsetof(struct ublk_params, zoned) == 76);
ABI_ASSERT(offsetof(struct ublk_params, dma) == 108);
ABI_ASSERT(offsetof(struct ublk_params, seg) == 120);
ABI_ASSERT(sizeof(struct ublk_params) == 136);
ABI_ASSERT(sizeof(struct ublksrv_io_cmd) == 16);
ABI_ASSERT(sizeof(struct ublksrv_io_desc) == 24);
ABI_ASSERT(sizeof(struct ublk_elem_header) == 8);
ABI_ASSERT(sizeof(struct ublk_batch_io) == 16);
ABI_ASSERT(sizeof(struct abi_buf_reg) == 40);

#endif
