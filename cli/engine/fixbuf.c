/* SPDX-License-Identifier: MIT */
/*
 * Server buffers in a ring's buffer table: the kernel need not look up their pages for each I/O.
 * A buffer gets in as far as it was ever used, so that what is not used is not pinned. In huge pages too,
 * where any length is one entry of the kernel's list: a request of 4 KiB takes 130 to 250 instructions more
 * with an entry that is longer (Linux 7.3).
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/queue.h"
#include "engine/tgt_ops.h"
#include "util/num.h"

/* A table for server buffers; without one (too many tags) plain buffers do. */
int fixbuf_init(struct q_thr *t)
{
	unsigned int tags = t->nr_qs * t->qs[0].depth;

	if (!t->qs[0].buf || !t->fixed_bufs || tags > IOBUF_SLOTS_MAX ||
	    io_uring_register_buffers_sparse(&t->ring, tags) < 0)
		return 0;
	for (unsigned int i = 0; i < t->nr_qs; i++) {
		t->qs[i].fixed_len = calloc(t->qs[i].depth, sizeof(uint32_t));
		if (!t->qs[i].fixed_len)
			return -ENOMEM;
	}
	return 0;
}

bool fixbuf_more(struct q *q, uint16_t tag, uint32_t bytes)
{
	struct iovec iov = { .iov_base = q_buf(q, tag), .iov_len = num_pow2_ceil(bytes) };
	__u64 no_tag = 0;

	if (iov.iov_len < 4096)
		iov.iov_len = 4096;
	if (iov.iov_len > q->buf_size)
		iov.iov_len = q->buf_size;
	if (io_uring_register_buffers_update_tag(&q->thr->ring, q_buf_index(q, tag), &iov, &no_tag,
						 1) < 0) {
		/* no memory to lock, for example: plain buffers from here on */
		free(q->fixed_len);
		q->fixed_len = NULL;
		return false;
	}
	q->fixed_len[tag] = (uint32_t)iov.iov_len;
	return true;
}

void fixbuf_fini(struct q_thr *t)
{
	for (unsigned int i = 0; i < t->nr_qs; i++)
		free(t->qs[i].fixed_len);
}
