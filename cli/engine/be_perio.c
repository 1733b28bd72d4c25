/* SPDX-License-Identifier: MIT */
/*
 * Per-I/O path: one FETCH_REQ per tag at start, then a COMMIT_AND_FETCH_REQ per request, which
 * gives the result and waits for the tag's next request in one command.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/queue.h"

/* aux of the user_data: a NEED_GET_DATA, whose request is counted in busy */
#define AUX_GET_DATA 1

struct perio_q {
	/* by tag, ready but for the result: COMMIT_AND_FETCH_REQ */
	struct io_uring_sqe *results;
};

static void perio_need(const struct q_thr *t, unsigned int *ret_sq, unsigned int *ret_cq)
{
	unsigned int tags = 0;

	for (unsigned int i = 0; i < t->nr_qs; i++)
		tags += t->qs[i].depth;
	*ret_sq = tags;
	*ret_cq = tags;
}

static void prep_command(const struct q *q, struct io_uring_sqe *sqe, uint32_t op, uint32_t aux,
			 uint16_t tag, bool with_addr)
{
	struct ublksrv_io_cmd *cmd = q_cmd_area(sqe);
	uint64_t auto_reg = 0;

	if (q->mode->auto_reg)
		auto_reg = q_buf_index(q, tag) |
			   (q->mode->fallback ? UBLK_AUTO_BUF_REG_FALLBACK : 0) << 16;
	q_prep_cdev(sqe, op, auto_reg, ud_pack(UD_BACKEND, aux, q->slot, tag));
	*cmd = (struct ublksrv_io_cmd){
		.q_id = q->id, .tag = tag, .addr = with_addr ? (uintptr_t)q_buf(q, tag) : 0
	};
}

static int perio_init(struct q_thr *t)
{
	for (unsigned int i = 0; i < t->nr_qs; i++) {
		struct q *q = &t->qs[i];
		struct perio_q *p = calloc(1, sizeof(*p));

		if (!p)
			return -ENOMEM;
		q->be = p;
		p->results = aligned_alloc(sizeof(*p->results), q->depth * sizeof(*p->results));
		if (!p->results)
			return -ENOMEM;
		for (unsigned int tag = 0; tag < q->depth; tag++)
			prep_command(q, &p->results[tag], UBLK_U_IO_COMMIT_AND_FETCH_REQ, 0,
				     (uint16_t)tag, q->mode->commit_addr);
	}
	return 0;
}

static void perio_fini(struct q_thr *t)
{
	t->live = 0;
	for (unsigned int i = 0; i < t->nr_qs; i++) {
		struct perio_q *p = t->qs[i].be;

		if (p)
			free(p->results);
		free(p);
		t->qs[i].be = NULL;
	}
}

/* Puts one command for a tag on the ring; false when there is no room for it. */
static bool put_command(struct q *q, uint32_t op, uint32_t aux, uint16_t tag, bool with_addr)
{
	struct io_uring_sqe *sqe = q_sqe(q->thr);

	if (!sqe)
		return false;
	prep_command(q, sqe, op, aux, tag, with_addr);
	return true;
}

/* A command that failed has its completion at once; requests cannot come before START_DEV. */
static int first_failure(struct q_thr *t)
{
	struct io_uring_cqe *cqe;
	unsigned int head;

	io_uring_for_each_cqe(&t->ring, head, cqe)
		if (cqe->res < 0)
			return cqe->res;
	return 0;
}

static int perio_prepare(struct q_thr *t)
{
	int r;

	for (unsigned int i = 0; i < t->nr_qs; i++)
		for (unsigned int tag = 0; tag < t->qs[i].depth; tag++) {
			if (!put_command(&t->qs[i], UBLK_U_IO_FETCH_REQ, 0, (uint16_t)tag,
					 t->qs[i].mode->fetch_addr))
				return -EBUSY;
			t->live++;
		}
	r = io_uring_submit(&t->ring);
	return r < 0 ? r : first_failure(t);
}

/* FETCH_REQ prepared and armed the tags in one: what is left is to look for late refusals. */
static int perio_arm(struct q_thr *t)
{
	return first_failure(t);
}

/* The data of a write can be had now: the request comes again with it, and is ours meanwhile. */
static void get_data(struct q *q, uint16_t tag)
{
	q->thr->busy++;
	if (!put_command(q, UBLK_U_IO_NEED_GET_DATA, AUX_GET_DATA, tag, true))
		q_thr_fail(q->thr, -EBUSY, "no room to get the data of a write");
}

/* A completion that brings no request, or none with its data. */
Q_RARE static void no_request(struct q_thr *t, struct q *q, const struct io_uring_cqe *cqe)
{
	t->busy -= ud_aux(cqe->user_data);
	if (cqe->res == UBLK_IO_RES_NEED_GET_DATA && q->mode->get_data) {
		get_data(q, ud_tag(cqe->user_data));
		return;
	}
	/*
	 * ABORT: the device is stopped, or taken from this server (QUIESCE_DEV). Then a tag whose result
	 * is given back after the driver looked gets none: q_thr.ending says how that ends.
	 */
	t->ending = true;
	if (t->live)
		t->live--;
	/* anything else costs a tag for good, so all of it */
	if (cqe->res != UBLK_IO_RES_ABORT)
		q_thr_fail(t, cqe->res < 0 ? cqe->res : -EPROTO, "the driver refused a result");
}

static void perio_on_cqe(struct q_thr *t, const struct io_uring_cqe *cqe)
{
	struct q *q = &t->qs[ud_slot(cqe->user_data)];

	if (__builtin_expect(cqe->res == UBLK_IO_RES_OK, 1)) {
		/* aux: it was counted already */
		t->busy += 1 - ud_aux(cqe->user_data);
		q_deliver(q, ud_tag(cqe->user_data));
	} else {
		no_request(t, q, cqe);
	}
}

static inline void prep_result(const struct q *q, struct io_uring_sqe *sqe, uint16_t tag, int32_t res)
{
	const struct perio_q *p = q->be;
	struct ublksrv_io_cmd *cmd = q_cmd_area(sqe);

	*sqe = p->results[tag];
	cmd->result = res;
}

Q_RARE static void complete_full(struct q *q, uint16_t tag, int32_t res)
{
	struct io_uring_sqe *sqe = q_sqe(q->thr);

	if (sqe)
		prep_result(q, sqe, tag, res);
	else
		q_thr_fail(q->thr, -EBUSY, "no room to give a result back");
}

static void perio_complete(struct q *q, uint16_t tag, int32_t res)
{
	struct io_uring_sqe *sqe = q_sqe_free(q->thr);

	q->thr->busy--;
	if (__builtin_expect(!!sqe, 1))
		prep_result(q, sqe, tag, res);
	else
		complete_full(q, tag, res);
}

/* Each result is on the ring already. */
static void perio_turn_end(struct q_thr *t)
{
	(void)t;
}

const struct q_backend be_perio = {
	.name = "per-io",
	.need = perio_need,
	.init = perio_init,
	.fini = perio_fini,
	.prepare = perio_prepare,
	.arm = perio_arm,
	.on_cqe = perio_on_cqe,
	.complete = perio_complete,
	.turn_end = perio_turn_end,
};
