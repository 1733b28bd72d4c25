/* SPDX-License-Identifier: MIT */
/*
 * File target, I/O half: requests become ring entries on the backing.
 */
#include <errno.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <string.h>

#include "engine/queue.h"
#include "target/tgt_file.h"
#include "util/fs.h"

/* BLOCK_URING_CMD_DISCARD of linux/blkdev.h, Linux 6.12: start in addr, length in addr3 */
#define DISCARD_CMD _IO(0x12, 0)
/* one message about failing I/O in this time */
#define LOG_PAUSE_MS 5000

/* aux of the user_data */
enum { AUX_FIRST, AUX_SECOND_WAY };

struct file_tag {
	uint32_t done; /* bytes of the request that are behind us */
};

static uint32_t op_of(const struct ublksrv_io_desc *d)
{
	return d->op_flags & 0xff;
}

static uint32_t bytes_of(const struct ublksrv_io_desc *d)
{
	return d->nr_sectors << 9;
}

static uint64_t pos_of(const struct q *q, const struct ublksrv_io_desc *d)
{
	return ((const struct backing *)q->tgt_priv)->offset + (d->start_sector << 9);
}

static struct file_tag *tag_of(const struct q *q, uint16_t tag)
{
	return (struct file_tag *)q->tag_priv + tag;
}

static const char *op_name(uint32_t op)
{
	static const char *const names[] = {
		[UBLK_IO_OP_READ] = "read",
		[UBLK_IO_OP_WRITE] = "write",
		[UBLK_IO_OP_FLUSH] = "flush",
		[UBLK_IO_OP_DISCARD] = "discard",
		[UBLK_IO_OP_WRITE_ZEROES] = "write-zeroes",
	};

	return op < sizeof(names) / sizeof(names[0]) && names[op] ? names[op] : "request";
}

/* The client gets the error; the log gets one line for a series of them. */
static void log_error(const struct q *q, uint16_t tag, int err)
{
	struct backing *b = q->tgt_priv;
	const struct ublksrv_io_desc *d = q_desc(q, tag);
	int64_t now = fs_now_ms(), last = __atomic_load_n(&b->last_log_ms, __ATOMIC_RELAXED);

	if (last && now - last < LOG_PAUSE_MS)
		return;
	__atomic_store_n(&b->last_log_ms, now, __ATOMIC_RELAXED);
	msg_error("%s of %u bytes at offset %llu of %s failed: %s", op_name(op_of(d)), bytes_of(d),
		  (unsigned long long)pos_of(q, d), b->path, strerror(-err));
}

static inline void finish(struct q *q, uint16_t tag, int32_t res)
{
	if (__builtin_expect(res < 0, 0))
		log_error(q, tag, res);
	q_complete(q, tag, res);
}

static inline void prep(const struct q *q, uint16_t tag, struct io_uring_sqe *sqe, uint8_t opcode,
			uint64_t off, uint64_t addr)
{
	q_prep_fixed_file(sqe, opcode, Q_FILE_TARGET, off, addr, ud_pack(UD_TARGET, 0, q->slot, tag));
	sqe->addr3 = 0;
	sqe->__pad2[0] = 0;
}

static struct io_uring_sqe *file_sqe(struct q *q, uint16_t tag, uint8_t opcode)
{
	struct io_uring_sqe *sqe = q_sqe(q->thr);

	if (!sqe)
		return NULL;
	prep(q, tag, sqe, opcode, 0, 0);
	return sqe;
}

/* fixed: the data is in the ring's buffer table */
static inline void prep_rw(struct q *q, uint16_t tag, const struct ublksrv_io_desc *d,
			   struct io_uring_sqe *sqe, uint32_t done, bool fixed)
{
	bool is_write = op_of(d) == UBLK_IO_OP_WRITE;

	/* request pages start at address 0 of their slot */
	prep(q, tag, sqe, is_write ? IORING_OP_WRITE : IORING_OP_READ, pos_of(q, d) + done,
	     (q->buf ? (uintptr_t)q_buf(q, tag) : 0) + done);
	sqe->len = bytes_of(d) - done;
	if (fixed) {
		sqe->opcode = is_write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED;
		sqe->buf_index = q_buf_index(q, tag);
	}
	/* durable before it completes */
	if (is_write && d->op_flags & UBLK_IO_F_FUA)
		sqe->rw_flags = RWF_DSYNC;
}

/* Reads or writes what is left of a request. */
Q_RARE static void put_rest(struct q *q, uint16_t tag, const struct ublksrv_io_desc *d, uint32_t done)
{
	bool fixed = q_fix_buf(q, tag, bytes_of(d));
	struct io_uring_sqe *sqe = q_sqe(q->thr);

	if (!sqe) {
		finish(q, tag, q_end_data(q, tag, -EBUSY));
		return;
	}
	prep_rw(q, tag, d, sqe, done, fixed);
	if (((const struct backing *)q->tgt_priv)->must_wait)
		sqe->flags |= IOSQE_ASYNC;
}

/* The same of a whole one, quickly where the ring and its buffer table are ready for it. */
static void put_whole(struct q *q, uint16_t tag, const struct ublksrv_io_desc *d)
{
	struct io_uring_sqe *sqe = NULL;

	tag_of(q, tag)->done = 0;
	if (__builtin_expect(q_buf_fixed(q, tag, bytes_of(d)), 1))
		sqe = q_sqe_free(q->thr);
	if (__builtin_expect(!!sqe, 1))
		prep_rw(q, tag, d, sqe, 0, true);
	else
		put_rest(q, tag, d, 0);
}

static void begin_rw(struct q *q, uint16_t tag, const struct ublksrv_io_desc *d)
{
	int r = q_begin_data(q, tag);

	if (r < 0)
		finish(q, tag, r);
	else
		put_whole(q, tag, d);
}

static void put_flush(struct q *q, uint16_t tag)
{
	struct io_uring_sqe *sqe = file_sqe(q, tag, IORING_OP_FSYNC);

	if (sqe)
		sqe->fsync_flags = IORING_FSYNC_DATASYNC;
	else
		finish(q, tag, -EBUSY);
}

static void put_fallocate(struct q *q, uint16_t tag, const struct ublksrv_io_desc *d, int mode,
			  uint32_t aux)
{
	struct io_uring_sqe *sqe = file_sqe(q, tag, IORING_OP_FALLOCATE);

	if (!sqe) {
		finish(q, tag, -EBUSY);
		return;
	}
	sqe->off = pos_of(q, d);
	sqe->len = (uint32_t)mode | FALLOC_FL_KEEP_SIZE;
	sqe->addr = (uint64_t)d->nr_sectors << 9;
	sqe->user_data = ud_pack(UD_TARGET, aux, q->slot, tag);
}

static void put_discard(struct q *q, uint16_t tag, const struct ublksrv_io_desc *d)
{
	const struct backing *b = q->tgt_priv;
	struct io_uring_sqe *sqe;

	if (!b->is_bdev) {
		put_fallocate(q, tag, d, FALLOC_FL_PUNCH_HOLE, AUX_FIRST);
		return;
	}
	sqe = file_sqe(q, tag, IORING_OP_URING_CMD);
	if (!sqe) {
		finish(q, tag, -EBUSY);
		return;
	}
	/*
	 * Copied and run by a worker from the start. Otherwise the kernel may try without waiting
	 * first, and read the entry again when it is another request's already (seen on 6.12).
	 */
	sqe->flags |= IOSQE_ASYNC;
	sqe->cmd_op = DISCARD_CMD;
	sqe->addr = pos_of(q, d);
	sqe->addr3 = (uint64_t)d->nr_sectors << 9;
}

static inline bool is_rw(const struct ublksrv_io_desc *d)
{
	return op_of(d) == UBLK_IO_OP_READ || op_of(d) == UBLK_IO_OP_WRITE;
}

__attribute__((noinline)) static void
queue_other(struct q *q, uint16_t tag, const struct ublksrv_io_desc *d)
{
	switch (op_of(d)) {
	case UBLK_IO_OP_FLUSH:
		put_flush(q, tag);
		return;
	case UBLK_IO_OP_DISCARD:
		put_discard(q, tag, d);
		return;
	case UBLK_IO_OP_WRITE_ZEROES:
		/* NOUNMAP: the range stays allocated */
		put_fallocate(q, tag, d,
			      d->op_flags & UBLK_IO_F_NOUNMAP ? FALLOC_FL_ZERO_RANGE :
								FALLOC_FL_PUNCH_HOLE,
			      AUX_FIRST);
		return;
	default:
		finish(q, tag, -EOPNOTSUPP);
	}
}

static void file_queue_io(struct q *q, uint16_t tag, const struct ublksrv_io_desc *d)
{
	if (!is_rw(d))
		queue_other(q, tag, d);
	else if (q->mode->passive)
		put_whole(q, tag, d);
	else
		begin_rw(q, tag, d);
}

/* Short results are continued; one of 0 is the end of a backing that has shrunk. */
static void rw_done(struct q *q, uint16_t tag, const struct ublksrv_io_desc *d, int32_t res)
{
	struct file_tag *ft = tag_of(q, tag);

	if (res > 0)
		ft->done += (uint32_t)res;
	if (res == -EINTR || res == -EAGAIN || (res > 0 && ft->done < bytes_of(d))) {
		put_rest(q, tag, d, ft->done);
		return;
	}
	if (res == 0)
		res = -EIO;
	finish(q, tag, q_end_data(q, tag, res < 0 ? res : (int32_t)bytes_of(d)));
}

/*
 * A block device may find out in use that it cannot do what it announced, and announces it no
 * more. Then zeros are written by the kernel, and a discard, which is only a hint, is no error.
 */
static void other_done(struct q *q, uint16_t tag, const struct ublksrv_io_desc *d, uint32_t aux,
		       int32_t res)
{
	if (res == -EOPNOTSUPP && op_of(d) == UBLK_IO_OP_WRITE_ZEROES && aux == AUX_FIRST) {
		put_fallocate(q, tag, d, FALLOC_FL_ZERO_RANGE, AUX_SECOND_WAY);
		return;
	}
	if (res == -EOPNOTSUPP && op_of(d) == UBLK_IO_OP_DISCARD)
		res = 0;
	finish(q, tag, res < 0 ? res : 0);
}

__attribute__((noinline)) static void
rw_or_other_done(struct q *q, uint16_t tag, uint32_t aux, int32_t res)
{
	const struct ublksrv_io_desc *d = q_desc(q, tag);

	if (is_rw(d))
		rw_done(q, tag, d, res);
	else
		other_done(q, tag, d, aux, res);
}

/* Apart from all others: a whole request at once, with nothing to do about its data. */
static void file_io_done(struct q *q, uint16_t tag, uint32_t aux, int32_t res)
{
	const struct ublksrv_io_desc *d = q_desc(q, tag);

	if (q->mode->passive && is_rw(d) && !tag_of(q, tag)->done && res == (int32_t)bytes_of(d))
		q_complete(q, tag, res);
	else
		rw_or_other_done(q, tag, aux, res);
}

const struct tgt_ops tgt_file = {
	.name = "file",
	.alias = "loop",
	.summary = "a regular file or a block device",
	.options = file_options,
	.tag_size = sizeof(struct file_tag),
	.fixed_bufs = true,
	.check = file_check,
	.same = file_same,
	.resize = file_resize,
	.open = file_open,
	.close = file_close,
	.params = file_params,
	.queue_io = file_queue_io,
	.io_done = file_io_done,
};
