/* SPDX-License-Identifier: MIT */
#include "engine/iobuf.h"

#include <errno.h>
#include <unistd.h>

#include "abi/ublk_abi.h"
#include "engine/queue.h"
#include "util/cleanup.h"

static uint32_t op_of(const struct ublksrv_io_desc *d)
{
	return d->op_flags & 0xff;
}

/* ---- the driver copies: nothing to do ---------------------------------------------------- */

static int copy_begin(struct q *q, uint16_t tag, const struct ublksrv_io_desc *d)
{
	(void)q;
	(void)tag;
	(void)d;
	return 0;
}

static int32_t copy_end(struct q *q, uint16_t tag, const struct ublksrv_io_desc *d, int32_t res)
{
	(void)q;
	(void)tag;
	(void)d;
	return res;
}

/* ---- user copy: pread and pwrite on /dev/ublkcN ------------------------------------------- */

/*
 * System calls of their own: the driver's file has no non-blocking I/O, so the ring would hand
 * each to a worker thread. Either may be short.
 */
static int user_copy(const struct q *q, uint16_t tag, uint32_t bytes, bool to_request)
{
	uint64_t pos = UBLKSRV_IO_BUF_OFFSET + ((uint64_t)q->id << UBLK_QID_OFF) +
		       ((uint64_t)tag << UBLK_TAG_OFF);
	uint8_t *buf = q_buf(q, tag);

	while (bytes) {
		ssize_t n = to_request ? pwrite(q->cdev, buf, bytes, (off_t)pos) :
					 pread(q->cdev, buf, bytes, (off_t)pos);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		buf += n;
		pos += (uint64_t)n;
		bytes -= (uint32_t)n;
	}
	return 0;
}

static int user_begin(struct q *q, uint16_t tag, const struct ublksrv_io_desc *d)
{
	return op_of(d) == UBLK_IO_OP_WRITE ? user_copy(q, tag, d->nr_sectors << 9, false) : 0;
}

static int32_t user_end(struct q *q, uint16_t tag, const struct ublksrv_io_desc *d, int32_t res)
{
	int r = op_of(d) == UBLK_IO_OP_READ && res > 0 ? user_copy(q, tag, (uint32_t)res, true) : 0;

	return r < 0 ? r : res;
}

/* ---- request pages in the buffer table ---------------------------------------------------- */

/*
 * Completes in silence when it works. It is issued where it is submitted, so entries behind it
 * in the ring find the slot filled; no link between them is needed. When it fails, the I/O on the
 * empty slot fails too, and that is what the client sees.
 */
static int reg_begin(struct q *q, uint16_t tag, const struct ublksrv_io_desc *d)
{
	struct io_uring_sqe *sqe = q_sqe(q->thr);
	struct ublksrv_io_cmd *cmd;

	(void)d;
	if (!sqe)
		return -EBUSY;
	q_prep_cdev(sqe, UBLK_U_IO_REGISTER_IO_BUF, 0, ud_pack(UD_IGNORE, 0, q->slot, tag));
	sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
	cmd = q_cmd_area(sqe);
	cmd->q_id = q->id;
	cmd->tag = tag;
	cmd->result = 0;
	cmd->addr = q_buf_index(q, tag);
	slot_fill(&q->thr->slots, q_buf_index(q, tag));
	return 0;
}

/* The loop empties the slot, with those of other requests, before the result goes out. */
static int32_t reg_end(struct q *q, uint16_t tag, const struct ublksrv_io_desc *d, int32_t res)
{
	(void)d;
	slot_done(&q->thr->slots, q_buf_index(q, tag));
	return res;
}

/* The driver could not register this one. */
static bool needs_reg(const struct ublksrv_io_desc *d)
{
	return d->op_flags & UBLK_IO_F_NEED_REG_BUF;
}

static int fallback_begin(struct q *q, uint16_t tag, const struct ublksrv_io_desc *d)
{
	return needs_reg(d) ? reg_begin(q, tag, d) : 0;
}

static int32_t fallback_end(struct q *q, uint16_t tag, const struct ublksrv_io_desc *d, int32_t res)
{
	return needs_reg(d) ? reg_end(q, tag, d, res) : res;
}

/* ------------------------------------------------------------------------------------------- */

static const struct iobuf_mode modes[] = {
	[DATA_COPY] = {
		.name = "copy",
		.server_buf = true,
		.commit_addr = true,
		.fetch_addr = true,
		.passive = true,
		.begin = copy_begin,
		.end = copy_end,
	},
	[DATA_GET_DATA] = {
		.name = "get-data",
		.flags = UBLK_F_NEED_GET_DATA,
		.server_buf = true,
		.commit_addr = true,
		.get_data = true,
		.per_io_only = true,
		.passive = true,
		.begin = copy_begin,
		.end = copy_end,
	},
	[DATA_USER_COPY] = {
		.name = "user-copy",
		.flags = UBLK_F_USER_COPY,
		.server_buf = true,
		.begin = user_begin,
		.end = user_end,
	},
	[DATA_ZERO_COPY] = {
		.name = "zero-copy",
		.flags = UBLK_F_SUPPORT_ZERO_COPY,
		.request_buf = true,
		.begin = reg_begin,
		.end = reg_end,
	},
	[DATA_AUTO_ZC] = {
		.name = "auto-zc",
		.flags = UBLK_F_AUTO_BUF_REG,
		.request_buf = true,
		.auto_reg = true,
		.passive = true,
		.begin = copy_begin,
		.end = copy_end,
	},
	[DATA_AUTO_ZC_FALLBACK] = {
		.name = "auto-zc-fallback",
		.flags = UBLK_F_AUTO_BUF_REG | UBLK_F_SUPPORT_ZERO_COPY,
		.request_buf = true,
		.auto_reg = true,
		.fallback = true,
		.begin = fallback_begin,
		.end = fallback_end,
	},
};

const struct iobuf_mode *iobuf_mode(enum data_mode mode)
{
	return &modes[mode];
}

const char *iobuf_mode_name(unsigned int n)
{
	return n < ARRAY_SIZE(modes) ? modes[n].name : NULL;
}
