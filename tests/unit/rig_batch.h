/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the batch back end share: its entries taken apart, a thread that is armed.
 */
#ifndef UNIT_RIG_BATCH_H
#define UNIT_RIG_BATCH_H

#include <string.h>

#include "rig.h"

#define BUF 4096
#define OP_PREP UBLK_U_IO_PREP_IO_CMDS
#define OP_FETCH UBLK_U_IO_FETCH_IO_CMDS
#define OP_COMMIT UBLK_U_IO_COMMIT_IO_CMDS

struct elem16 {
	struct ublk_elem_header hdr;
	uint64_t addr;
};

static inline const struct ublk_batch_io *cmd_of(const struct io_uring_sqe *sqe)
{
	return (const struct ublk_batch_io *)(const void *)sqe->cmd;
}

/* The i-th element of a PREP or COMMIT. */
static inline const struct ublk_elem_header *elem_of(const struct io_uring_sqe *sqe, unsigned int i)
{
	return (const void *)(uintptr_t)(sqe->addr + (uint64_t)i * cmd_of(sqe)->elem_bytes);
}

static inline uint64_t addr_of(const struct io_uring_sqe *sqe, unsigned int i)
{
	return ((const struct elem16 *)(const void *)elem_of(sqe, i))->addr;
}

/* Everything of an entry but user_data, addr and the elements behind it. */
static inline void check_entry(const struct io_uring_sqe *got, uint32_t op, unsigned int slot,
			       uint8_t flags, unsigned int nr_elem, bool has_buf)
{
	struct ublk_batch_io cmd = { .q_id = (uint16_t)(10 + slot) };
	struct io_uring_sqe want;

	memset(&want, 0, sizeof(want));
	want.opcode = IORING_OP_URING_CMD;
	want.flags = IOSQE_FIXED_FILE | flags;
	want.cmd_op = op;
	want.user_data = got->user_data;
	if (op == OP_FETCH) {
		want.flags |= IOSQE_BUFFER_SELECT;
		want.buf_group = (uint16_t)slot;
		want.rw_flags = ABI_URING_CMD_MULTISHOT;
		cmd.elem_bytes = 2; /* a tag; the flags of the command stay 0 */
	} else {
		want.addr = got->addr;
		cmd.nr_elem = (uint16_t)nr_elem;
		cmd.elem_bytes = has_buf ? 16 : 8;
		cmd.flags = has_buf ? UBLK_BATCH_F_HAS_BUF_ADDR : 0;
	}
	memcpy(want.cmd, &cmd, sizeof(cmd));
	unit_case("op %#x of queue %u, %u elements", op, slot, nr_elem);
	unit_check(!memcmp(got, &want, sizeof(want)));
	unit_check(ud_kind(got->user_data) == UD_BACKEND);
	unit_check(ud_slot(got->user_data) == slot);
}

static inline void check_elem(const struct rig *r, const struct io_uring_sqe *sqe, unsigned int i,
			      unsigned int slot, uint16_t tag, int32_t res)
{
	const struct ublk_elem_header *e = elem_of(sqe, i);

	unit_case("element %u of queue %u, tag %u", i, slot, tag);
	unit_check(e->tag == tag && e->result == res && e->buf_index == 0);
	unit_check(!r->bufs || addr_of(sqe, i) == (uintptr_t)r->qs[slot].buf + (uint64_t)tag * BUF);
}

static uint64_t fetch_ud[RIG_QS]; /* user_data of the newest FETCH of each queue */

/* A thread whose queues are prepared and fetched from. */
static inline struct rig *armed(unsigned int nr_qs, unsigned int depth, size_t buf)
{
	struct rig *r = rig_new(&be_batch, nr_qs, depth, buf);

	assert_int_equal(be_batch.init(&r->thr), 0);
	assert_int_equal(be_batch.prepare(&r->thr), 0);
	rig_submitted_reset();
	assert_int_equal(be_batch.arm(&r->thr), 0);
	assert_int_equal(rig_submitted.count, nr_qs);
	for (unsigned int i = 0; i < nr_qs; i++)
		fetch_ud[i] = rig_submitted.sqe[i].user_data;
	return r;
}

static inline void deliver(struct rig *r, unsigned int slot, uint16_t tag)
{
	assert_int_equal(rig_deliver(r, slot, fetch_ud[slot], &tag, 1), 1);
}

/* Ends the turn; returns what is on the ring, which is n entries. */
static inline const struct io_uring_sqe *end_turn(struct rig *r, unsigned int n)
{
	static struct io_uring_sqe sqes[RIG_SQ];

	be_batch.turn_end(&r->thr);
	assert_int_equal(rig_take(r, sqes, RIG_SQ), n);
	return sqes;
}

#endif
