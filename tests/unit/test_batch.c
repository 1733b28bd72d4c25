/* SPDX-License-Identifier: MIT */
/*
 * Batch back end, step by step: PREP and FETCH, tags out of provided buffers, COMMIT, the ends.
 * UNIT: tests/unit/rig.o
 */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rig_batch.h"

/* ---- start ------------------------------------------------------------------------------ */

static void prepare_case(unsigned int nr_qs, unsigned int depth, size_t buf)
{
	struct rig *r = rig_new(&be_batch, nr_qs, depth, buf);
	unsigned int sq = 0, cq = 0;

	be_batch.need(&r->thr, &sq, &cq);
	assert_true(sq >= 2 * nr_qs); /* a COMMIT and a FETCH per queue */
	assert_true(cq >= depth * nr_qs);
	assert_int_equal(be_batch.init(&r->thr), 0);
	assert_int_equal(rig_submitted.count, 0);
	assert_int_equal(be_batch.prepare(&r->thr), 0);
	assert_int_equal(rig_submitted.count, nr_qs);
	assert_int_equal(io_uring_cq_ready(&r->thr.ring), 0);
	for (unsigned int i = 0; i < nr_qs; i++) {
		const struct io_uring_sqe *sqe = &rig_submitted.sqe[i];

		check_entry(sqe, OP_PREP, i, 0, depth, buf);
		for (unsigned int tag = 0; tag < depth; tag++)
			check_elem(r, sqe, tag, i, (uint16_t)tag, 0);
	}
	assert_int_equal(r->thr.live + r->thr.busy, 0);
	rig_free(r);
}

static void test_prepare(void **state)
{
	(void)state;
	prepare_case(1, 1, BUF);
	prepare_case(1, 1, 0);
	prepare_case(3, 128, BUF);
	prepare_case(3, 128, 0);
	prepare_case(1, 4096, BUF);
	prepare_case(2, 4096, 0);
}

/* Another thread may be the one that prepares a queue. */
static void test_prepares_only_its_own(void **state)
{
	struct rig *r = rig_new(&be_batch, 3, 8, BUF);

	(void)state;
	r->qs[0].prepares = r->qs[2].prepares = false;
	assert_int_equal(be_batch.init(&r->thr), 0);
	assert_int_equal(be_batch.prepare(&r->thr), 0);
	assert_int_equal(rig_submitted.count, 1);
	check_entry(&rig_submitted.sqe[0], OP_PREP, 1, 0, 8, true);
	rig_submitted_reset();
	assert_int_equal(be_batch.arm(&r->thr), 0);
	assert_int_equal(rig_submitted.count, 3); /* but it fetches from all */
	rig_free(r);
}

static int32_t refusal;
static unsigned int refused_slot;

static bool refuse_one(const struct io_uring_sqe *sqe, int32_t *ret_res)
{
	bool refused = ud_slot(sqe->user_data) == refused_slot;

	*ret_res = refused ? refusal : 0;
	return refused || sqe->cmd_op == OP_PREP;
}

static void test_prepare_refused(void **state)
{
	(void)state;
	for (refused_slot = 0; refused_slot < 3; refused_slot++) {
		struct rig *r = rig_new(&be_batch, 3, 8, BUF);

		refusal = -EINVAL;
		rig_answer = refuse_one;
		assert_int_equal(be_batch.init(&r->thr), 0);
		assert_int_equal(be_batch.prepare(&r->thr), -EINVAL);
		assert_int_equal(rig_submitted.count, refused_slot + 1);
		rig_free(r);
	}
}

static void test_arm(void **state)
{
	struct rig *r = armed(3, 8, BUF);

	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		check_entry(&rig_submitted.sqe[i], OP_FETCH, i, 0, 0, true);
		/* room for every tag that there is, and to spare */
		assert_true(rig_buffers(r, i) >= 2);
	}
	assert_int_equal(r->thr.live, 3);
	end_turn(r, 0); /* nothing to do, nothing said */
	rig_free(r);
	r = armed(1, 4096, 0);
	assert_true(rig_buffers(r, 0) * 4096 >= 4096 * sizeof(uint16_t) + 4096);
	rig_free(r);
}

static void test_arm_refused(void **state)
{
	(void)state;
	for (refused_slot = 0; refused_slot < 2; refused_slot++) {
		struct rig *r = rig_new(&be_batch, 2, 8, BUF);

		refusal = -ENOMEM;
		assert_int_equal(be_batch.init(&r->thr), 0);
		assert_int_equal(be_batch.prepare(&r->thr), 0);
		rig_answer = refuse_one;
		assert_int_equal(be_batch.arm(&r->thr), -ENOMEM);
		rig_free(r);
	}
}

/* ---- tags ------------------------------------------------------------------------------- */

/* Delivers n tags and gives all results at once; nothing may be lost, mixed up or doubled. */
static unsigned int round_trip(struct rig *r, const uint16_t *tags, unsigned int n)
{
	const struct io_uring_sqe *sqe;
	unsigned int done = 0;

	r->nr_got = 0;
	while (done < n) {
		unsigned int k = rig_deliver(r, 0, fetch_ud[0], tags + done, n - done);

		if (!k)
			return done;
		done += k;
	}
	assert_int_equal(r->nr_got, n);
	assert_int_equal(r->thr.busy, n);
	for (unsigned int i = 0; i < n; i++) {
		assert_ptr_equal(r->got[i].q, &r->qs[0]);
		assert_int_equal(r->got[i].tag, tags[i]);
		assert_ptr_equal(r->got[i].desc, &r->qs[0].desc[tags[i]]);
		q_complete(&r->qs[0], tags[i], tags[i] * 2);
	}
	sqe = end_turn(r, 1);
	check_entry(sqe, OP_COMMIT, 0, n == 1 ? IOSQE_CQE_SKIP_SUCCESS : 0, n, r->bufs);
	for (unsigned int i = 0; i < n; i++)
		check_elem(r, sqe, i, 0, tags[i], tags[i] * 2);
	if (n > 1)
		rig_cqe(r, sqe->user_data, (int32_t)(n * cmd_of(sqe)->elem_bytes), 0);
	assert_int_equal(r->thr.busy, 0);
	return n;
}

/* Many completions over the same buffers: each buffer is given back when it is used up. */
static void tags_case(unsigned int depth, size_t buf)
{
	struct rig *r = armed(1, depth, buf);
	unsigned int buffers = rig_buffers(r, 0), total = 0, lowest = buffers;
	uint16_t tags[4096];

	srand(depth);
	while (total < 100000) {
		unsigned int n = 1 + (unsigned int)rand() % (depth < 300 ? depth : 300);
		unsigned int from = (unsigned int)rand() % depth;

		for (unsigned int i = 0; i < n; i++)
			tags[i] = (uint16_t)((from + i * 1) % depth);
		assert_int_equal(round_trip(r, tags, n), n);
		total += n;
		if (rig_buffers(r, 0) < lowest)
			lowest = rig_buffers(r, 0);
	}
	assert_int_equal(lowest, buffers); /* none is missing after any completion */
	assert_false(r->thr.stop);
	assert_int_equal(r->thr.live, 1);
	rig_free(r);
}

static void test_tags(void **state)
{
	(void)state;
	tags_case(1, BUF);
	tags_case(128, BUF);
	tags_case(4096, 0);
}

/* All tags of the deepest queue at once, in pieces as the driver makes them, nobody reading. */
static void test_all_tags_at_once(void **state)
{
	struct rig *r = armed(1, 4096, 0);
	uint16_t tags[4096];

	(void)state;
	for (unsigned int i = 0; i < 4096; i++)
		tags[i] = (uint16_t)(4095 - i);
	assert_int_equal(round_trip(r, tags, 4096), 4096);
	rig_free(r);
}

/* Completions that do not fit what was provided: the thread ends, nothing is read there. */
static void test_tags_outside(void **state)
{
	static const struct {
		int32_t res;
		unsigned int bid;
	} cases[] = { { 2, 2 }, { 2, 200 }, { 2, 0xffff }, { 4098, 0 }, { 1 << 30, 1 } };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct rig *r = armed(1, 8, BUF);

		unit_case("%d bytes in buffer %u", cases[i].res, cases[i].bid);
		rig_cqe(r, fetch_ud[0], cases[i].res,
			IORING_CQE_F_MORE | IORING_CQE_F_BUFFER |
				cases[i].bid << IORING_CQE_BUFFER_SHIFT);
		unit_check(r->nr_got == 0 && r->thr.busy == 0);
		unit_check(r->thr.fail.err == EPROTO && r->thr.stop);
		rig_free(r);
	}
}

/* The driver posts an empty completion when all requests of a batch went back to the queue. */
static void test_no_tags(void **state)
{
	struct rig *r = armed(1, 8, BUF);

	(void)state;
	rig_cqe(r, fetch_ud[0], 0,
		IORING_CQE_F_MORE | IORING_CQE_F_BUFFER | ABI_IORING_CQE_F_BUF_MORE);
	assert_int_equal(r->nr_got, 0);
	assert_int_equal(r->thr.live, 1);
	end_turn(r, 0);
	deliver(r, 0, 5);
	assert_int_equal(r->nr_got, 1);
	assert_int_equal(r->got[0].tag, 5);
	rig_free(r);
}

/* ---- the end of a FETCH ------------------------------------------------------------------ */

static void test_no_buffers(void **state)
{
	struct rig *r = armed(2, 8, BUF);
	const struct io_uring_sqe *sqe;

	(void)state;
	rig_cqe(r, fetch_ud[1], -ENOBUFS, 0);
	assert_int_equal(r->thr.live, 1);
	sqe = end_turn(r, 1);
	check_entry(sqe, OP_FETCH, 1, 0, 0, true);
	fetch_ud[1] = sqe->user_data;
	assert_int_equal(r->thr.live, 2);
	end_turn(r, 0); /* once */
	deliver(r, 1, 3);
	assert_int_equal(r->nr_got, 1);
	assert_false(r->thr.stop);
	rig_free(r);
}

/* A last completion with tags: they count, and the FETCH is armed again. */
static void test_last_one_with_tags(void **state)
{
	struct rig *r = armed(1, 8, BUF);
	uint16_t tags[2] = { 6, 1 };
	const struct io_uring_sqe *sqe;
	uint32_t flags = 0;

	(void)state;
	assert_int_equal(rig_put_tags(r, 0, tags, 2, &flags), 2);
	rig_cqe(r, fetch_ud[0], 4, flags);
	assert_int_equal(r->nr_got, 2);
	assert_int_equal(r->got[1].tag, 1);
	assert_int_equal(r->thr.live, 0);
	assert_int_equal(r->thr.busy, 2);
	q_complete(&r->qs[0], 1, 0);
	sqe = end_turn(r, 2);
	check_entry(&sqe[0], OP_COMMIT, 0, IOSQE_CQE_SKIP_SUCCESS, 1, true);
	check_entry(&sqe[1], OP_FETCH, 0, 0, 0, true);
	assert_int_equal(r->thr.live, 1);
	assert_int_equal(r->thr.busy, 1);
	rig_free(r);
}

static void test_abort(void **state)
{
	struct rig *r = armed(2, 8, BUF);
	const struct io_uring_sqe *sqe;

	(void)state;
	deliver(r, 0, 2);
	deliver(r, 0, 3);
	rig_cqe(r, fetch_ud[0], UBLK_IO_RES_ABORT, 0);
	assert_int_equal(r->thr.live, 1);
	end_turn(r, 0); /* not armed again */
	rig_cqe(r, fetch_ud[1], UBLK_IO_RES_ABORT, 0);
	assert_int_equal(r->thr.live, 0);
	/* two requests are still with the target: the thread stays for their results */
	assert_int_equal(r->thr.busy, 2);
	q_complete(&r->qs[0], 2, 512);
	q_complete(&r->qs[0], 3, 1024);
	sqe = end_turn(r, 1);
	check_entry(sqe, OP_COMMIT, 0, 0, 2, true);
	rig_cqe(r, sqe->user_data, 32, 0);
	assert_int_equal(r->thr.live + r->thr.busy, 0); /* the end of serve_queues() */
	end_turn(r, 0);
	assert_int_equal(r->thr.fail.err, 0);
	assert_false(r->thr.stop);
	rig_free(r);
}

static void test_fetch_fails(void **state)
{
	static const int errs[] = { EINVAL, ENOMEM, EBUSY, EFAULT };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(errs); i++) {
		struct rig *r = armed(1, 8, BUF);

		rig_cqe(r, fetch_ud[0], -errs[i], 0);
		assert_int_equal(r->thr.fail.err, errs[i]);
		assert_true(r->thr.stop);
		assert_int_equal(r->thr.live, 0);
		end_turn(r, 0);
		rig_free(r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_prepare),
		cmocka_unit_test(test_prepares_only_its_own),
		cmocka_unit_test(test_prepare_refused),
		cmocka_unit_test(test_arm),
		cmocka_unit_test(test_arm_refused),
		cmocka_unit_test(test_tags),
		cmocka_unit_test(test_all_tags_at_once),
		cmocka_unit_test(test_tags_outside),
		cmocka_unit_test(test_no_tags),
		cmocka_unit_test(test_no_buffers),
		cmocka_unit_test(test_last_one_with_tags),
		cmocka_unit_test(test_abort),
		cmocka_unit_test(test_fetch_fails),
	};

	return cmocka_run_group_tests_name("batch", tests, NULL, NULL);
}
