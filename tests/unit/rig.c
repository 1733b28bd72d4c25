/* SPDX-License-Identifier: MIT */
#include "rig.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "need_uring.h"
#include "target/target.h"

struct rig_submitted rig_submitted;
rig_answer_fn *rig_answer;

/* ---- liburing's calls, with the kernel kept out ------------------------------------------ */

typedef int submit_fn(struct io_uring *);
typedef int register_fn(struct io_uring *, struct io_uring_buf_reg *, unsigned int);

static submit_fn *real_submit;
static register_fn *real_register;

__attribute__((constructor)) static void find_real(void)
{
	real_submit = (submit_fn *)dlsym(RTLD_NEXT, "io_uring_submit");
	real_register = (register_fn *)dlsym(RTLD_NEXT, "io_uring_register_buf_ring");
}

/* Entries that were filled in but never shown to the kernel: their slots are free again. */
static unsigned int withdraw(struct io_uring *ring, struct io_uring_sqe *ret)
{
	struct io_uring_sq *sq = &ring->sq;
	unsigned int n = sq->sqe_tail - sq->sqe_head;

	for (unsigned int i = 0; i < n; i++) {
		struct io_uring_sqe *sqe = &sq->sqes[(sq->sqe_head + i) & sq->ring_mask];

		ret[i] = *sqe;
		/* whoever uses the slot next has to set all of it */
		memset(sqe, 0xee, sizeof(*sqe));
	}
	sq->sqe_tail = sq->sqe_head;
	return n;
}

static bool answer_of(const struct io_uring_sqe *sqe, int32_t *ret_res)
{
	if (rig_answer)
		return rig_answer(sqe, ret_res);
	*ret_res = 0;
	return sqe->cmd_op == UBLK_U_IO_PREP_IO_CMDS;
}

/* Completions with results that a no-op cannot have: it posts them, they are changed in place. */
static void post(struct io_uring *ring, const uint64_t *ud, const int32_t *res, unsigned int n)
{
	unsigned int tail = *ring->cq.ktail;

	for (unsigned int i = 0; i < n; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

		assert_non_null(sqe);
		io_uring_prep_nop(sqe);
		sqe->user_data = ud[i];
	}
	assert_int_equal(real_submit(ring), n);
	assert_int_equal(*ring->cq.ktail - tail, n);
	for (unsigned int i = 0; i < n; i++) {
		struct io_uring_cqe *cqe = &ring->cq.cqes[(tail + i) & ring->cq.ring_mask];

		assert_true(cqe->user_data == ud[i]);
		cqe->res = res[i];
	}
}

int io_uring_submit(struct io_uring *ring)
{
	struct io_uring_sqe sqes[RIG_SQ];
	uint64_t ud[RIG_SQ];
	int32_t res[RIG_SQ];
	unsigned int n = withdraw(ring, sqes), answers = 0;

	for (unsigned int i = 0; i < n; i++) {
		assert_true(rig_submitted.count < RIG_LOG);
		rig_submitted.sqe[rig_submitted.count++] = sqes[i];
		if (!answer_of(&sqes[i], &res[answers]))
			continue;
		if (res[answers] >= 0 && sqes[i].flags & IOSQE_CQE_SKIP_SUCCESS)
			continue;
		ud[answers++] = sqes[i].user_data;
	}
	if (answers)
		post(ring, ud, res, answers);
	return (int)n;
}

int io_uring_submit_and_wait(struct io_uring *ring, unsigned int wait_nr)
{
	int r = io_uring_submit(ring);

	/* with nobody else to complete anything, waiting would be for ever */
	assert_true(io_uring_cq_ready(ring) >= wait_nr);
	return r;
}

void rig_submitted_reset(void)
{
	rig_submitted.count = 0;
}

/* ---- provided buffers -------------------------------------------------------------------- */

static struct group {
	const struct io_uring *ring;
	unsigned int id, entries;
	uint16_t head;
	struct io_uring_buf_ring *br;
} groups[RIG_QS * RIG_QS];

static struct group *find_group(const struct io_uring *ring, unsigned int id)
{
	for (size_t i = 0; i < COUNT_OF(groups); i++)
		if (groups[i].ring == ring && groups[i].id == id)
			return &groups[i];
	return NULL;
}

int io_uring_register_buf_ring(struct io_uring *ring, struct io_uring_buf_reg *reg, unsigned int flags)
{
	struct abi_buf_reg *r = (struct abi_buf_reg *)reg;
	struct group *g = find_group(NULL, 0);
	int err = real_register(ring, reg, flags);

	/* a kernel before 6.12 will do: it never uses the buffers here */
	assert_int_equal(r->flags, ABI_IOU_PBUF_RING_INC);
	r->flags = 0;
	if (err == -EINVAL)
		err = real_register(ring, reg, flags);
	if (err < 0)
		return err;
	assert_non_null(g);
	*g = (struct group){ .ring = ring,
			     .id = r->bgid,
			     .entries = r->ring_entries,
			     .br = (struct io_uring_buf_ring *)(uintptr_t)r->ring_addr };
	return 0;
}

unsigned int rig_buffers(struct rig *r, unsigned int slot)
{
	struct group *g = find_group(&r->thr.ring, slot);

	assert_non_null(g);
	return (uint16_t)(g->br->tail - g->head);
}

unsigned int rig_put_tags(struct rig *r, unsigned int slot, const uint16_t *tags, unsigned int n,
			  uint32_t *ret_flags)
{
	struct group *g = find_group(&r->thr.ring, slot);
	unsigned int have = rig_buffers(r, slot), fit;
	struct io_uring_buf *b;

	assert_true(have <= g->entries);
	if (!have)
		return 0;
	b = &g->br->bufs[g->head & (g->entries - 1)];
	fit = b->len / 2 < n ? b->len / 2 : n;
	memcpy((void *)(uintptr_t)b->addr, tags, 2 * fit);
	b->addr += 2 * fit;
	b->len -= 2 * fit;
	*ret_flags = IORING_CQE_F_BUFFER | (uint32_t)b->bid << IORING_CQE_BUFFER_SHIFT;
	if (b->len)
		*ret_flags |= ABI_IORING_CQE_F_BUF_MORE;
	else
		g->head++;
	return fit;
}

void rig_cqe(struct rig *r, uint64_t user_data, int32_t res, uint32_t flags)
{
	struct io_uring_cqe cqe = { .user_data = user_data, .res = res, .flags = flags };

	assert_int_equal(ud_kind(user_data), UD_BACKEND);
	r->thr.be->on_cqe(&r->thr, &cqe);
}

unsigned int rig_deliver(struct rig *r, unsigned int slot, uint64_t fetch_ud, const uint16_t *tags,
			 unsigned int n)
{
	uint32_t flags;

	n = rig_put_tags(r, slot, tags, n, &flags);
	if (n)
		rig_cqe(r, fetch_ud, (int32_t)(2 * n), flags | IORING_CQE_F_MORE);
	return n;
}

/* ---- the thread -------------------------------------------------------------------------- */

static void note_io(struct q *q, uint16_t tag, const struct ublksrv_io_desc *desc)
{
	struct rig *r = (struct rig *)q->thr;

	assert_true(r->nr_got < RIG_LOG);
	r->got[r->nr_got++] = (struct rig_delivery){ .q = q, .tag = tag, .desc = desc };
}

static const struct tgt_ops note_tgt = { .name = "note", .queue_io = note_io };

struct rig *rig_new(const struct q_backend *be, unsigned int nr_qs, unsigned int depth, size_t buf_size)
{
	size_t buf_bytes = depth * buf_size;
	struct io_uring ring;
	static struct st_block blocks[RIG_QS];
	struct rig *r;

	need_uring(&ring, RIG_SQ);
	r = calloc(1, sizeof(*r));
	assert_non_null(r);
	assert_true(nr_qs <= RIG_QS);
	r->desc = calloc((size_t)nr_qs * depth, sizeof(*r->desc));
	r->bufs = buf_size ? calloc(nr_qs, buf_bytes) : NULL;
	r->since = calloc((size_t)nr_qs * depth, sizeof(*r->since));
	memset(blocks, 0, sizeof(blocks));
	assert_true(r->since && r->desc && (r->bufs || !buf_size));
	r->thr = (struct q_thr){ .be = be, .tgt = &note_tgt, .qs = r->qs, .nr_qs = nr_qs };
	for (unsigned int i = 0; i < nr_qs; i++)
		r->qs[i] = (struct q){
			.thr = &r->thr,
			.desc = r->desc + (size_t)i * depth,
			.st = &blocks[i],
			.since = r->since + (size_t)i * depth,
			.buf = r->bufs ? r->bufs + i * buf_bytes : NULL,
			.buf_size = buf_size,
			.mode = iobuf_mode(buf_size ? DATA_COPY : DATA_USER_COPY),
			.id = (uint16_t)(10 + i),
			.slot = (uint16_t)i,
			.depth = (uint16_t)depth,
			.prepares = true,
		};
	r->thr.ring = ring;
	memset(r->thr.ring.sq.sqes, 0xee, RIG_SQ * sizeof(struct io_uring_sqe));
	rig_submitted_reset();
	rig_answer = NULL;
	return r;
}

void rig_free(struct rig *r)
{
	io_uring_queue_exit(&r->thr.ring);
	r->thr.be->fini(&r->thr);
	for (size_t i = 0; i < COUNT_OF(groups); i++)
		if (groups[i].ring == &r->thr.ring)
			memset(&groups[i], 0, sizeof(groups[i]));
	free(r->desc);
	free(r->since);
	free(r->bufs);
	free(r);
}

unsigned int rig_take(struct rig *r, struct io_uring_sqe *ret, unsigned int max)
{
	struct io_uring_sqe all[RIG_SQ];
	unsigned int n = withdraw(&r->thr.ring, all);

	if (n > max)
		fail_msg("%u entries on the ring, %u expected at most", n, max);
	memcpy(ret, all, n * sizeof(*all));
	return n;
}
