/* SPDX-License-Identifier: MIT */
/*
 * Null target: writes vanish, reads return zeros, nothing is stored.
 */
#include <errno.h>
#include <string.h>

#include "engine/queue.h"
#include "opt.h"
#include "target/target.h"

#define NULL_SIZE_DEFAULT (250ULL << 30)

static const struct opt null_options[] = { OPT_END };

/* Bytes at the start of a tag's buffer that a write has left there. */
struct null_tag {
	uint32_t dirty;
};

static int null_check(struct dev_cfg *cfg, struct fail *f)
{
	if (!cfg->size)
		cfg->size = NULL_SIZE_DEFAULT;
	if (cfg->size % cfg->block_size)
		return fail_set(f, FAIL_USAGE,
				"--size: %llu bytes are not a multiple of the block size %llu",
				(unsigned long long)cfg->size, (unsigned long long)cfg->block_size);
	return 0;
}

static void null_params(const struct dev_cfg *cfg, struct ublk_params *p)
{
	(void)cfg;
	p->types |= UBLK_PARAM_TYPE_DISCARD;
	p->discard = (struct ublk_param_discard){
		.discard_granularity = 1U << p->basic.logical_bs_shift,
		.max_discard_sectors = UINT32_MAX >> 9,
		.max_write_zeroes_sectors = UINT32_MAX >> 9,
		.max_discard_segments = 1,
	};
}

/*
 * The driver copies the data of a write into the tag's buffer and that of a read out of it. A
 * buffer is zero until a write has used it; what a write left is cleared for the next read.
 */
static void null_queue_io(struct q *q, uint16_t tag, const struct ublksrv_io_desc *desc)
{
	struct null_tag *nt = (struct null_tag *)q->tag_priv + tag;
	uint32_t bytes = desc->nr_sectors << 9;

	switch (desc->op_flags & 0xff) {
	case UBLK_IO_OP_READ:
		if (nt->dirty) {
			memset(q_buf(q, tag), 0, nt->dirty);
			nt->dirty = 0;
		}
		q_complete(q, tag, (int32_t)bytes);
		return;
	case UBLK_IO_OP_WRITE:
		if (nt->dirty < bytes)
			nt->dirty = bytes;
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

/* Never called: the null target puts nothing on the ring. */
static void null_io_done(struct q *q, uint16_t tag, uint32_t aux, int32_t res)
{
	(void)aux;
	q_complete(q, tag, res);
}

const struct tgt_ops tgt_null = {
	.name = "null",
	.summary = "writes vanish, reads return zeros",
	.options = null_options,
	.tag_size = sizeof(struct null_tag),
	.check = null_check,
	.params = null_params,
	.queue_io = null_queue_io,
	.io_done = null_io_done,
};
