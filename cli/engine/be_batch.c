/* SPDX-License-Identifier: MIT */
/*
 * Batch path (Linux 7.0): PREP_IO_CMDS once per queue, a multishot FETCH_IO_CMDS per thread and
 * queue that delivers tags into provided buffers, results by one COMMIT_IO_CMDS per queue and
 * turn at most. Several threads may fetch from one queue; each commits what it fetched.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/queue.h"

#define TAG_BUF_LEN 4096 /* bytes of one provided buffer: 2,048 tags */
#define TAG_BYTES sizeof(uint16_t)

/* aux of the user_data */
enum { AUX_PREP, AUX_FETCH, AUX_COMMIT, AUX_COMMIT_ONE };

/* As in driver's copy mode; without a buffer address the element is the header alone. */
struct elem {
	struct ublk_elem_header hdr;
	uint64_t addr;
};

_Static_assert(sizeof(struct elem) == 16, "element with UBLK_BATCH_F_HAS_BUF_ADDR");

/* Results on their way: the kernel may handle fewer than it was given. */
struct commit {
	uint8_t *elems;
	unsigned int count; /* elements in it */
	unsigned int done;  /* of them taken by the driver */
};

struct batch_q {
	/* tags come in here */
	struct io_uring_buf_ring *ring;
	struct bufmem mem;
	uint8_t *bufs;	      /* its start */
	unsigned int nr_bufs; /* a power of two */
	unsigned int pos[8];  /* bytes of each buffer already used */
	bool refetch;	      /* the FETCH ended for want of buffers */
	/* results go out here: one is filled while the other is with the kernel */
	struct commit commit[2];
	unsigned int fill;
	bool sent; /* commit[!fill] is with the kernel */
	/* element by tag: stays valid until the tag comes again, whenever it is read */
	uint8_t *tag_elems;
	uint16_t flags;
	uint8_t elem_bytes;
	bool auto_reg;
	bool aborted;
};

static void batch_need(const struct q_thr *t, unsigned int *ret_sq, unsigned int *ret_cq)
{
	unsigned int tags = 0;

	for (unsigned int i = 0; i < t->nr_qs; i++)
		tags += t->qs[i].depth;
	*ret_sq = 3 * t->nr_qs; /* PREP or COMMIT, FETCH, one to spare */
	*ret_cq = tags + 2 * t->nr_qs;
}

static void *elem_at(const struct batch_q *b, uint8_t *base, unsigned int i)
{
	return base + (size_t)i * b->elem_bytes;
}

/* Element of a tag, with everything but a result. */
static void init_elem(const struct q *q, void *elem, uint16_t tag)
{
	const struct batch_q *b = q->be;
	struct elem *e = elem;

	e->hdr = (struct ublk_elem_header){ .tag = tag,
					    .buf_index = b->auto_reg ? q_buf_index(q, tag) : 0 };
	if (b->flags & UBLK_BATCH_F_HAS_BUF_ADDR)
		e->addr = (uintptr_t)q_buf(q, tag);
}

static void provide(struct batch_q *b, unsigned int bid)
{
	b->pos[bid] = 0;
	io_uring_buf_ring_add(b->ring, b->bufs + (size_t)bid * TAG_BUF_LEN, TAG_BUF_LEN,
			      (unsigned short)bid, io_uring_buf_ring_mask(b->nr_bufs), 0);
	io_uring_buf_ring_advance(b->ring, 1);
}

/* Provided buffers that hold the tags of the whole queue, and one more. */
static int init_tag_bufs(struct q_thr *t, struct q *q, struct batch_q *b)
{
	struct abi_buf_reg reg = { .bgid = q->slot, .flags = ABI_IOU_PBUF_RING_INC };
	int r;

	b->nr_bufs = 2;
	while (b->nr_bufs * TAG_BUF_LEN < q->depth * TAG_BYTES + TAG_BUF_LEN)
		b->nr_bufs *= 2;
	r = bufmem_map((size_t)b->nr_bufs * TAG_BUF_LEN, &b->mem);
	if (r < 0)
		return r;
	b->bufs = b->mem.p;
	b->ring = aligned_alloc(4096, 4096);
	if (!b->ring)
		return -ENOMEM;
	io_uring_buf_ring_init(b->ring);
	reg.ring_addr = (uintptr_t)b->ring;
	reg.ring_entries = b->nr_bufs;
	/* incremental: one buffer takes the tags of many completions */
	r = io_uring_register_buf_ring(&t->ring, (struct io_uring_buf_reg *)&reg, 0);
	if (r < 0)
		return r;
	for (unsigned int i = 0; i < b->nr_bufs; i++)
		provide(b, i);
	return 0;
}

static int init_queue(struct q_thr *t, struct q *q)
{
	struct batch_q *b = calloc(1, sizeof(*b));
	size_t bytes;

	if (!b)
		return -ENOMEM;
	q->be = b;
	/* an address where the driver does not copy is refused, and the device never starts */
	b->flags = (q->mode->commit_addr ? UBLK_BATCH_F_HAS_BUF_ADDR : 0) |
		   (q->mode->fallback ? UBLK_BATCH_F_AUTO_BUF_REG_FALLBACK : 0);
	b->auto_reg = q->mode->auto_reg;
	b->elem_bytes = q->mode->commit_addr ? sizeof(struct elem) : sizeof(struct ublk_elem_header);
	bytes = (size_t)q->depth * b->elem_bytes;
	b->commit[0].elems = calloc(1, bytes);
	b->commit[1].elems = calloc(1, bytes);
	b->tag_elems = calloc(1, bytes);
	if (!b->commit[0].elems || !b->commit[1].elems || !b->tag_elems)
		return -ENOMEM;
	for (unsigned int tag = 0; tag < q->depth; tag++)
		init_elem(q, elem_at(b, b->tag_elems, tag), (uint16_t)tag);
	return init_tag_bufs(t, q, b);
}

static int batch_init(struct q_thr *t)
{
	for (unsigned int i = 0; i < t->nr_qs; i++) {
		int r = init_queue(t, &t->qs[i]);

		if (r < 0)
			return r;
	}
	return 0;
}

static void batch_fini(struct q_thr *t)
{
	for (unsigned int i = 0; i < t->nr_qs; i++) {
		struct batch_q *b = t->qs[i].be;

		if (!b)
			continue;
		free(b->commit[0].elems);
		free(b->commit[1].elems);
		free(b->tag_elems);
		bufmem_free(&b->mem);
		free(b->ring);
		free(b);
		t->qs[i].be = NULL;
	}
}

static void put_elems(struct q *q, struct io_uring_sqe *sqe, uint32_t op, uint32_t aux,
		      const void *elems, unsigned int count)
{
	const struct batch_q *b = q->be;
	struct ublk_batch_io *cmd;

	q_prep_cdev(sqe, op, (uintptr_t)elems, ud_pack(UD_BACKEND, aux, q->slot, 0));
	cmd = q_cmd_area(sqe);
	*cmd = (struct ublk_batch_io){
		.q_id = q->id,
		.flags = b->flags,
		.nr_elem = (uint16_t)count,
		.elem_bytes = b->elem_bytes,
	};
}

static int put_fetch(struct q *q)
{
	struct batch_q *b = q->be;
	struct io_uring_sqe *sqe = q_sqe(q->thr);
	struct ublk_batch_io *cmd;

	if (!sqe)
		return -EBUSY;
	q_prep_cdev(sqe, UBLK_U_IO_FETCH_IO_CMDS, 0, ud_pack(UD_BACKEND, AUX_FETCH, q->slot, 0));
	sqe->flags |= IOSQE_BUFFER_SELECT;
	sqe->buf_group = q->slot;
	sqe->rw_flags = ABI_URING_CMD_MULTISHOT;
	cmd = q_cmd_area(sqe);
	*cmd = (struct ublk_batch_io){ .q_id = q->id, .elem_bytes = TAG_BYTES };
	b->refetch = false;
	q->thr->live++;
	return 0;
}

/* PREP_IO_CMDS copies the elements before it returns. */
static int prepare_queue(struct q_thr *t, struct q *q)
{
	struct batch_q *b = q->be;
	struct io_uring_sqe *sqe = q_sqe(t);
	struct io_uring_cqe *cqe;
	int r;

	if (!sqe)
		return -EBUSY;
	put_elems(q, sqe, UBLK_U_IO_PREP_IO_CMDS, AUX_PREP, b->tag_elems, q->depth);
	do
		r = io_uring_submit_and_wait(&t->ring, 1);
	while (r == -EINTR);
	if (r < 0)
		return r;
	r = io_uring_peek_cqe(&t->ring, &cqe);
	if (r < 0)
		return r;
	r = ud_kind(cqe->user_data) == UD_BACKEND ? cqe->res : -ECANCELED;
	io_uring_cqe_seen(&t->ring, cqe);
	return r;
}

static int batch_prepare(struct q_thr *t)
{
	for (unsigned int i = 0; i < t->nr_qs; i++) {
		int r = t->qs[i].prepares ? prepare_queue(t, &t->qs[i]) : 0;

		if (r < 0)
			return r;
	}
	return 0;
}

static int batch_arm(struct q_thr *t)
{
	struct io_uring_cqe *cqe;
	unsigned int head;
	int r;

	for (unsigned int i = 0; i < t->nr_qs; i++) {
		r = put_fetch(&t->qs[i]);
		if (r < 0)
			return r;
	}
	r = io_uring_submit(&t->ring);
	if (r < 0)
		return r;
	/* a FETCH that the driver does not take has its completion at once */
	io_uring_for_each_cqe(&t->ring, head, cqe)
		if (cqe->res < 0)
			return cqe->res;
	return 0;
}

/* The tags of one completion lie behind those of the one before in the same buffer. */
static void take_tags(struct q *q, const struct io_uring_cqe *cqe)
{
	struct batch_q *b = q->be;
	unsigned int bid = cqe->flags >> IORING_CQE_BUFFER_SHIFT;
	unsigned int n = (unsigned int)cqe->res / TAG_BYTES;
	const uint16_t *tags;

	if (bid >= b->nr_bufs || b->pos[bid] + (unsigned int)cqe->res > TAG_BUF_LEN) {
		q_thr_fail(q->thr, -EPROTO, "the driver delivered tags outside of their buffer");
		return;
	}
	tags = (const uint16_t *)(const void *)(b->bufs + (size_t)bid * TAG_BUF_LEN + b->pos[bid]);
	q->thr->busy += n;
	q->st->fetched[st_size(n)]++;
	for (unsigned int i = 0; i < n; i++)
		q_deliver(q, tags[i]);
	b->pos[bid] += (unsigned int)cqe->res;
	if (!(cqe->flags & ABI_IORING_CQE_F_BUF_MORE))
		provide(b, bid);
}

static void fetch_done(struct q *q, const struct io_uring_cqe *cqe)
{
	struct batch_q *b = q->be;

	if (cqe->res >= 0 && cqe->flags & IORING_CQE_F_BUFFER)
		take_tags(q, cqe);
	if (cqe->flags & IORING_CQE_F_MORE)
		return;
	if (q->thr->live) /* 0: the thread is leaving anyway */
		q->thr->live--;
	if (cqe->res == UBLK_IO_RES_ABORT)
		b->aborted = true;
	else if (cqe->res == -ENOBUFS || cqe->res >= 0)
		b->refetch = true;
	else
		q_thr_fail(q->thr, cqe->res, "fetching requests");
}

/* A COMMIT that took part of its elements goes on behind them. */
static void commit_done(struct q *q, int32_t res)
{
	struct batch_q *b = q->be;
	struct commit *c = &b->commit[!b->fill];
	unsigned int n = res > 0 ? (unsigned int)res / b->elem_bytes : 0;

	b->sent = false;
	if (!n || n > c->count - c->done) {
		q_thr_fail(q->thr, res < 0 ? res : -EPROTO, "the driver refused a result");
		return;
	}
	c->done += n;
	q->thr->busy -= n;
	if (c->done == c->count)
		c->done = c->count = 0;
}

static void batch_on_cqe(struct q_thr *t, const struct io_uring_cqe *cqe)
{
	struct q *q = &t->qs[ud_slot(cqe->user_data)];

	switch (ud_aux(cqe->user_data)) {
	case AUX_FETCH:
		fetch_done(q, cqe);
		return;
	case AUX_COMMIT:
		commit_done(q, cqe->res);
		return;
	default:
		/* a single result completes in silence: this one was refused */
		q_thr_fail(t, cqe->res < 0 ? cqe->res : -EPROTO, "the driver refused a result");
	}
}

static void batch_complete(struct q *q, uint16_t tag, int32_t res)
{
	struct batch_q *b = q->be;
	struct commit *c = &b->commit[b->fill];
	struct ublk_elem_header *e;

	if (b->elem_bytes == sizeof(struct elem)) {
		struct elem *to = (struct elem *)(void *)c->elems + c->count++;

		*to = ((const struct elem *)(const void *)b->tag_elems)[tag];
		e = &to->hdr;
	} else {
		e = (struct ublk_elem_header *)(void *)c->elems + c->count++;
		*e = ((const struct ublk_elem_header *)(const void *)b->tag_elems)[tag];
	}
	e->result = res;
}

/*
 * One result alone needs no completion: with a single element the driver takes all or nothing,
 * so success says nothing new, and a failure still posts one.
 */
static void commit_one(struct q *q, struct io_uring_sqe *sqe, struct commit *c)
{
	struct batch_q *b = q->be;
	struct ublk_elem_header *from = elem_at(b, c->elems, c->done), *e;

	e = elem_at(b, b->tag_elems, from->tag);
	e->result = from->result;
	put_elems(q, sqe, UBLK_U_IO_COMMIT_IO_CMDS, AUX_COMMIT_ONE, e, 1);
	sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
	q->thr->busy--;
	q->st->committed[0]++;
	c->done = c->count = 0;
}

static void commit_many(struct q *q, struct io_uring_sqe *sqe, struct commit *c)
{
	struct batch_q *b = q->be;

	put_elems(q, sqe, UBLK_U_IO_COMMIT_IO_CMDS, AUX_COMMIT, elem_at(b, c->elems, c->done),
		  c->count - c->done);
	q->st->committed[st_size(c->count - c->done)]++;
	b->sent = true;
}

/* What was left of the last COMMIT goes first, then what this turn brought. */
static void commit_queue(struct q *q)
{
	struct batch_q *b = q->be;
	struct commit *c = &b->commit[!b->fill];
	struct io_uring_sqe *sqe;

	if (b->sent)
		return; /* its completion starts the next turn */
	if (!c->count) {
		if (!b->commit[b->fill].count)
			return;
		b->fill = !b->fill;
		c = &b->commit[!b->fill];
	}
	sqe = q_sqe(q->thr);
	if (!sqe)
		q_thr_fail(q->thr, -EBUSY, "no room to give results back");
	else if (c->count - c->done == 1 && !b->commit[b->fill].count)
		commit_one(q, sqe, c); /* nothing waits for its completion */
	else
		commit_many(q, sqe, c);
}

static void batch_turn_end(struct q_thr *t)
{
	for (unsigned int i = 0; i < t->nr_qs; i++) {
		struct batch_q *b = t->qs[i].be;

		commit_queue(&t->qs[i]);
		if (b->refetch && !b->aborted && put_fetch(&t->qs[i]) < 0)
			q_thr_fail(t, -EBUSY, "no room to fetch requests");
	}
}

const struct q_backend be_batch = {
	.name = "batch",
	.need = batch_need,
	.init = batch_init,
	.fini = batch_fini,
	.prepare = batch_prepare,
	.arm = batch_arm,
	.on_cqe = batch_on_cqe,
	.complete = batch_complete,
	.turn_end = batch_turn_end,
};
