/* SPDX-License-Identifier: MIT */
/*
 * One I/O thread with queues and a real ring, played by a test: the test is loop, target and
 * driver in one. What a back end puts on the ring is taken off again before the kernel sees it;
 * what it submits by itself (prepare, arm) is noted and answered by the test.
 */
#ifndef UNIT_RIG_H
#define UNIT_RIG_H

#include "unit.h"

#include <stdbool.h>

#include "engine/queue.h"

#define RIG_QS 8
#define RIG_LOG 8192
#define RIG_SQ 64

/* A request that reached the target. */
struct rig_delivery {
	const struct q *q;
	uint16_t tag;
	const struct ublksrv_io_desc *desc;
};

struct rig {
	struct q_thr thr; /* first: found from it */
	struct q qs[RIG_QS];
	struct ublksrv_io_desc *desc;
	uint64_t *since;
	uint8_t *bufs;
	/* deliveries since the test last set count to 0 */
	struct rig_delivery got[RIG_LOG];
	unsigned int nr_got;
};

/*
 * A thread with nr_qs queues of a depth; queue i has the id 10 + i, so that nobody takes a slot
 * for an id. buf_size 0: no server buffers. Fails the test without a ring.
 */
struct rig *rig_new(const struct q_backend *be, unsigned int nr_qs, unsigned int depth,
		    size_t buf_size);
/* The caller calls be->init() if it wants to; fini() is called here. */
void rig_free(struct rig *r);

/* Entries that are on the ring, in order, taken off it; at most max (else the test fails). */
unsigned int rig_take(struct rig *r, struct io_uring_sqe *ret, unsigned int max);

/* ---- what a back end submits by itself --------------------------------------------------- */

/* All of it since rig_submitted_reset(). */
struct rig_submitted {
	struct io_uring_sqe sqe[RIG_LOG];
	unsigned int count;
};
extern struct rig_submitted rig_submitted;
void rig_submitted_reset(void);

/*
 * The driver's answer to a submitted entry: true and the result of its completion, or false
 * when there is no completion yet. NULL: PREP_IO_CMDS gets 0, everything else waits.
 */
typedef bool rig_answer_fn(const struct io_uring_sqe *sqe, int32_t *ret_res);
extern rig_answer_fn *rig_answer;

/* ---- provided buffers as the kernel uses them -------------------------------------------- */

/*
 * Puts tags into the buffer group of a queue as the kernel does with incremental use: as many as
 * fit into the buffer at hand. *ret_flags gets the buffer's part of the completion's flags.
 * Returns how many; 0: no buffer is left.
 */
unsigned int rig_put_tags(struct rig *r, unsigned int slot, const uint16_t *tags, unsigned int n,
			  uint32_t *ret_flags);
/* Buffers that the kernel has of the group, the begun one too. */
unsigned int rig_buffers(struct rig *r, unsigned int slot);

/* One completion for the back end. */
void rig_cqe(struct rig *r, uint64_t user_data, int32_t res, uint32_t flags);

/* rig_put_tags() and its completion, more to come. Returns how many. */
unsigned int rig_deliver(struct rig *r, unsigned int slot, uint64_t fetch_ud, const uint16_t *tags,
			 unsigned int n);

#endif
