/* SPDX-License-Identifier: MIT */
/*
 * Null target: writes vanish, reads return zeros, nothing is stored.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "engine/queue.h"
#include "opt.h"
#include "target/target.h"

#define NULL_SIZE_DEFAULT (250ULL << 30)

/* clang-format off: one option, one entry */
static const struct opt null_options[] = {
	{ .name = "null-data",
	  .type = OPT_WORD,
	  .arg = "WHAT",
	  .word = cfg_null_data_name,
	  .offset = offsetof(struct dev_cfg, null_data),
	  .help = "what reads return: zeros, or none (zero-copy modes, to measure)" },
	OPT_END
};
/* clang-format on */

struct null_tag {
	uint32_t dirty; /* bytes at the start of the tag's buffer that a write has left there */
	uint32_t done;	/* bytes of the request's pages that are filled */
};

static int null_check(struct dev_cfg *cfg, struct fail *f)
{
	if (!cfg->size)
		cfg->size = NULL_SIZE_DEFAULT;
	if (!cfg->block_size)
		cfg->block_size = 512;
	if (!cfg->phys_block_size)
		cfg->phys_block_size = 4096;
	if (cfg->size % cfg->block_size)
		return fail_set(f, FAIL_USAGE,
				"--size: %llu bytes are not a multiple of the block size %llu",
				(unsigned long long)cfg->size, (unsigned long long)cfg->block_size);
	if (!cfg->null_data)
		cfg->null_data = "zeros";
	if (strcmp(cfg->null_data, "none") == 0 && !iobuf_mode(cfg->mode)->request_buf)
		return fail_set(f, FAIL_USAGE, "--null-data none: only in the zero-copy modes");
	return 0;
}

static int null_same(const struct dev_cfg *cfg, struct fail *f)
{
	(void)cfg;
	(void)f;
	return 0; /* nothing is behind it */
}

static int null_resize(const struct dev_cfg *cfg, uint64_t size, struct fail *f)
{
	(void)cfg;
	(void)size;
	(void)f;
	return 0;
}

/* The pages of a request can only be filled by an operation: a read of /dev/zero. */
static int null_open(struct dev_cfg *cfg, struct tgt_dev *ret, struct fail *f)
{
	*ret = (struct tgt_dev){ .priv = cfg };
	if (!iobuf_mode(cfg->mode)->request_buf || strcmp(cfg->null_data, "none") == 0)
		return 0;
	ret->fds[0] = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	if (ret->fds[0] < 0)
		return fail_errno(f, errno, "cannot open /dev/zero");
	ret->nr_fds = 1;
	return 0;
}

static void null_close(struct tgt_dev *dev, bool undo)
{
	(void)undo;
	if (dev->nr_fds)
		close(dev->fds[0]);
}

static void null_params(const struct tgt_dev *dev, const struct dev_cfg *cfg, struct ublk_params *p)
{
	(void)dev;
	(void)cfg;
	p->types |= UBLK_PARAM_TYPE_DISCARD;
	p->discard = (struct ublk_param_discard){
		.discard_granularity = 1U << p->basic.logical_bs_shift,
		.max_discard_sectors = UINT32_MAX >> 9,
		.max_write_zeroes_sectors = UINT32_MAX >> 9,
		.max_discard_segments = 1,
	};
}

static struct null_tag *tag_of(const struct q *q, uint16_t tag)
{
	return (struct null_tag *)q->tag_priv + tag;
}

/* Fills what is missing of the request's pages. */
static void fill_pages(struct q *q, uint16_t tag)
{
	struct null_tag *nt = tag_of(q, tag);
	struct io_uring_sqe *sqe = q_sqe(q->thr);

	if (!sqe) {
		q_complete(q, tag, q_end_data(q, tag, -EBUSY));
		return;
	}
	io_uring_prep_read_fixed(sqe, Q_FILE_TARGET, (void *)(uintptr_t)nt->done,
				 (q_desc(q, tag)->nr_sectors << 9) - nt->done, 0, q_buf_index(q, tag));
	sqe->flags |= IOSQE_FIXED_FILE;
	sqe->user_data = ud_pack(UD_TARGET, 0, q->slot, tag);
}

static void null_io_done(struct q *q, uint16_t tag, uint32_t aux, int32_t res)
{
	struct null_tag *nt = tag_of(q, tag);
	uint32_t bytes = q_desc(q, tag)->nr_sectors << 9;

	(void)aux;
	if (res > 0)
		nt->done += (uint32_t)res;
	if (res > 0 && nt->done < bytes)
		fill_pages(q, tag);
	else
		q_complete(q, tag,
			   q_end_data(q, tag,
				      res > 0 ? (int32_t)bytes :
				      res < 0 ? res :
						-EIO));
}

static void read_pages(struct q *q, uint16_t tag, uint32_t bytes)
{
	const struct dev_cfg *cfg = q->tgt_priv;
	int r;

	if (cfg->null_data[0] == 'n') {
		/* nobody touches the pages: nobody needs them */
		q_complete(q, tag, (int32_t)bytes);
		return;
	}
	r = q_begin_data(q, tag);
	if (r < 0) {
		q_complete(q, tag, r);
		return;
	}
	tag_of(q, tag)->done = 0;
	fill_pages(q, tag);
}

/*
 * Where the server has buffers, a read's data is copied out of the tag's. A buffer is zero until
 * a write has used it; what a write left is cleared for the next read.
 */
static void read_buffer(struct q *q, uint16_t tag, uint32_t bytes)
{
	struct null_tag *nt = tag_of(q, tag);

	if (nt->dirty) {
		memset(q_buf(q, tag), 0, nt->dirty);
		nt->dirty = 0;
	}
	q_complete(q, tag, q_end_data(q, tag, (int32_t)bytes));
}

__attribute__((noinline)) static void
read_or_other(struct q *q, uint16_t tag, const struct ublksrv_io_desc *desc)
{
	uint32_t bytes = desc->nr_sectors << 9;

	switch (desc->op_flags & 0xff) {
	case UBLK_IO_OP_READ:
		if (q->buf)
			read_buffer(q, tag, bytes);
		else
			read_pages(q, tag, bytes);
		return;
	case UBLK_IO_OP_WRITE:
		/* the driver has copied the data; in the other modes nobody fetches it */
		if (q->mode->commit_addr && tag_of(q, tag)->dirty < bytes)
			tag_of(q, tag)->dirty = bytes;
		q_complete(q, tag, (int32_t)bytes);
		return;
	case UBLK_IO_OP_FLUSH:
	case UBLK_IO_OP_DISCARD:
	case UBLK_IO_OP_WRITE_ZEROES:
		q_complete(q, tag, 0);
		return;
	default:
		q_complete(q, tag, -EOPNOTSUPP);
	}
}

/* Apart from all others: a read for which there is nothing to do, the driver copies the zeros. */
static void null_queue_io(struct q *q, uint16_t tag, const struct ublksrv_io_desc *desc)
{
	uint32_t bytes = desc->nr_sectors << 9;

	if ((desc->op_flags & 0xff) == UBLK_IO_OP_READ && q->mode->commit_addr &&
	    !tag_of(q, tag)->dirty)
		q_complete(q, tag, (int32_t)bytes);
	else
		read_or_other(q, tag, desc);
}

const struct tgt_ops tgt_null = {
	.name = "null",
	.summary = "writes vanish, reads return zeros",
	.options = null_options,
	.tag_size = sizeof(struct null_tag),
	.check = null_check,
	.same = null_same,
	.resize = null_resize,
	.open = null_open,
	.close = null_close,
	.params = null_params,
	.queue_io = null_queue_io,
	.io_done = null_io_done,
};
