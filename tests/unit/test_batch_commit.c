/* SPDX-License-Identifier: MIT */
/*
 * Batch back end: results on their way to the driver. One COMMIT per queue and turn at most, what
 * the driver left is sent again, the lone result goes without a completion.
 * UNIT: tests/unit/rig.o
 */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>

#include "rig_batch.h"

/* The tags from first on, one after the other, are delivered to queue slot. */
static void deliver_run(struct rig *r, unsigned int slot, unsigned int first, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		deliver(r, slot, (uint16_t)(first + i));
}

static void complete_run(struct rig *r, unsigned int slot, unsigned int first, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		q_complete(&r->qs[slot], (uint16_t)(first + i), (int32_t)(1000 + first + i));
}

/* The entry commits exactly these tags with the results of complete_run(). */
static void check_run(const struct rig *r, const struct io_uring_sqe *sqe, unsigned int slot,
		      uint8_t flags, unsigned int first, unsigned int n)
{
	check_entry(sqe, OP_COMMIT, slot, flags, n, r->bufs);
	for (unsigned int i = 0; i < n; i++)
		check_elem(r, sqe, i, slot, (uint16_t)(first + i), (int32_t)(1000 + first + i));
}

static void committed(struct rig *r, const struct io_uring_sqe *sqe, unsigned int n)
{
	rig_cqe(r, sqe->user_data, (int32_t)(n * cmd_of(sqe)->elem_bytes), 0);
}

static void one_case(size_t buf)
{
	struct rig *r = armed(1, 8, buf);

	for (unsigned int round = 0; round < 20; round++) {
		deliver_run(r, 0, round % 8, 1);
		end_turn(r, 0); /* nothing before there is a result */
		assert_int_equal(r->thr.busy, 1);
		complete_run(r, 0, round % 8, 1);
		check_run(r, end_turn(r, 1), 0, IOSQE_CQE_SKIP_SUCCESS, round % 8, 1);
		/* nobody tells of its success: done as soon as it is on the ring */
		assert_int_equal(r->thr.busy, 0);
		end_turn(r, 0);
	}
	rig_free(r);
}

static void test_single_result(void **state)
{
	(void)state;
	one_case(BUF);
	one_case(0);
}

static void many_case(size_t buf)
{
	struct rig *r = armed(1, 64, buf);

	for (unsigned int n = 2; n <= 64; n++) {
		const struct io_uring_sqe *sqe;

		deliver_run(r, 0, 0, n);
		complete_run(r, 0, 0, n);
		sqe = end_turn(r, 1);
		check_run(r, sqe, 0, 0, 0, n);
		assert_int_equal(r->thr.busy, n);
		end_turn(r, 0); /* not sent again while it is with the kernel */
		committed(r, sqe, n);
		assert_int_equal(r->thr.busy, 0);
		end_turn(r, 0);
	}
	rig_free(r);
}

static void test_many_results(void **state)
{
	(void)state;
	many_case(BUF);
	many_case(0);
}

/* Results of requests that are answered later, out of order, with errors. */
static void test_late_results(void **state)
{
	struct rig *r = armed(1, 8, BUF);
	const struct io_uring_sqe *sqe;

	(void)state;
	deliver_run(r, 0, 0, 5);
	q_complete(&r->qs[0], 3, -EIO);
	q_complete(&r->qs[0], 0, 4096);
	sqe = end_turn(r, 1);
	check_entry(sqe, OP_COMMIT, 0, 0, 2, true);
	check_elem(r, sqe, 0, 0, 3, -EIO);
	check_elem(r, sqe, 1, 0, 0, 4096);
	committed(r, sqe, 2);
	assert_int_equal(r->thr.busy, 3);
	q_complete(&r->qs[0], 4, 0);
	sqe = end_turn(r, 1);
	check_entry(sqe, OP_COMMIT, 0, IOSQE_CQE_SKIP_SUCCESS, 1, true);
	check_elem(r, sqe, 0, 0, 4, 0);
	assert_int_equal(r->thr.busy, 2);
	rig_free(r);
}

/* What comes while a COMMIT is under way waits for its completion, and goes out in one. */
static void test_one_at_a_time(void **state)
{
	struct rig *r = armed(1, 16, BUF);
	const struct io_uring_sqe *sqe;
	struct io_uring_sqe first;

	(void)state;
	deliver_run(r, 0, 0, 16);
	complete_run(r, 0, 0, 3);
	first = *end_turn(r, 1);
	complete_run(r, 0, 3, 1);
	end_turn(r, 0);
	complete_run(r, 0, 4, 4);
	end_turn(r, 0);
	/* its elements are the kernel's until then */
	check_run(r, &first, 0, 0, 0, 3);
	committed(r, &first, 3);
	assert_int_equal(r->thr.busy, 13);
	sqe = end_turn(r, 1);
	check_run(r, sqe, 0, 0, 3, 5);
	committed(r, sqe, 5);
	assert_int_equal(r->thr.busy, 8);
	end_turn(r, 0);
	rig_free(r);
}

/* A single one that has waited for another COMMIT needs no completion either. */
static void test_single_after_many(void **state)
{
	struct rig *r = armed(1, 8, BUF);
	struct io_uring_sqe first;

	(void)state;
	deliver_run(r, 0, 0, 3);
	complete_run(r, 0, 0, 2);
	first = *end_turn(r, 1);
	complete_run(r, 0, 2, 1);
	end_turn(r, 0);
	committed(r, &first, 2);
	check_run(r, end_turn(r, 1), 0, IOSQE_CQE_SKIP_SUCCESS, 2, 1);
	assert_int_equal(r->thr.busy, 0);
	rig_free(r);
}

static void test_partial(void **state)
{
	struct rig *r = armed(1, 16, BUF);
	const struct io_uring_sqe *sqe;

	(void)state;
	deliver_run(r, 0, 0, 10);
	complete_run(r, 0, 0, 10);
	sqe = end_turn(r, 1);
	check_run(r, sqe, 0, 0, 0, 10);
	committed(r, sqe, 4);
	assert_int_equal(r->thr.busy, 6);
	sqe = end_turn(r, 1);
	check_run(r, sqe, 0, 0, 4, 6); /* goes on behind what was taken */
	committed(r, sqe, 1);
	sqe = end_turn(r, 1);
	check_run(r, sqe, 0, 0, 5, 5);
	committed(r, sqe, 4);
	assert_int_equal(r->thr.busy, 1);
	/* the last one alone */
	check_run(r, end_turn(r, 1), 0, IOSQE_CQE_SKIP_SUCCESS, 9, 1);
	assert_int_equal(r->thr.busy, 0);
	end_turn(r, 0);
	rig_free(r);
}

/* The rest of the last COMMIT goes first; while results wait, somebody must tell of its end. */
static void test_partial_with_others_waiting(void **state)
{
	struct rig *r = armed(1, 16, BUF);
	const struct io_uring_sqe *sqe;

	(void)state;
	deliver_run(r, 0, 0, 8);
	complete_run(r, 0, 0, 3);
	sqe = end_turn(r, 1);
	complete_run(r, 0, 3, 2);
	committed(r, sqe, 2);
	sqe = end_turn(r, 1);
	check_run(r, sqe, 0, 0, 2, 1); /* a single one, but others wait: no skip */
	assert_int_equal(r->thr.busy, 6);
	complete_run(r, 0, 5, 3);
	end_turn(r, 0);
	committed(r, sqe, 1);
	sqe = end_turn(r, 1);
	check_run(r, sqe, 0, 0, 3, 5);
	committed(r, sqe, 5);
	assert_int_equal(r->thr.busy, 0);
	rig_free(r);
}

/* Every depth's worth of results may wait at once. */
static void test_all_results_wait(void **state)
{
	struct rig *r = armed(1, 4096, 0);
	const struct io_uring_sqe *sqe;

	(void)state;
	deliver_run(r, 0, 0, 4096);
	complete_run(r, 0, 0, 2);
	sqe = end_turn(r, 1);
	complete_run(r, 0, 2, 4094);
	end_turn(r, 0);
	committed(r, sqe, 2);
	sqe = end_turn(r, 1);
	check_run(r, sqe, 0, 0, 2, 4094);
	committed(r, sqe, 4094);
	assert_int_equal(r->thr.busy, 0);
	assert_false(r->thr.stop);
	rig_free(r);
}

static void test_refused(void **state)
{
	static const struct {
		int32_t res;
		int err;
	} cases[] = {
		{ -EBUSY, EBUSY },   { -EINVAL, EINVAL },
		{ -ENODEV, ENODEV }, { 0, EPROTO }, /* nothing taken and no reason: never ends */
		{ 8, EPROTO },			    /* half an element */
		{ 4 * 16, EPROTO },		    /* more than was given */
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct rig *r = armed(1, 8, BUF);
		const struct io_uring_sqe *sqe;

		deliver_run(r, 0, 0, 3);
		complete_run(r, 0, 0, 3);
		sqe = end_turn(r, 1);
		rig_cqe(r, sqe->user_data, cases[i].res, 0);
		unit_case("COMMIT of 3 completed with %d", cases[i].res);
		unit_check(r->thr.fail.err == cases[i].err);
		unit_check(r->thr.stop);
		unit_check(r->thr.busy == 3);
		rig_free(r);
	}
}

/* The single result has a completion only when it is refused: always the end. */
static void test_single_refused(void **state)
{
	static const int32_t results[] = { -EINVAL, -EBUSY, 0, 16 };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(results); i++) {
		struct rig *r = armed(1, 8, BUF);
		int want = results[i] < 0 ? -results[i] : EPROTO;

		deliver_run(r, 0, 4, 1);
		complete_run(r, 0, 4, 1);
		rig_cqe(r, end_turn(r, 1)->user_data, results[i], 0);
		unit_case("COMMIT of one completed with %d", results[i]);
		unit_check(r->thr.fail.err == want);
		unit_check(r->thr.stop);
		unit_check(r->thr.busy == 0);
		rig_free(r);
	}
}

static void test_several_queues(void **state)
{
	struct rig *r = armed(4, 8, BUF);
	const struct io_uring_sqe *sqe;
	struct io_uring_sqe kept[3];

	(void)state;
	deliver_run(r, 3, 0, 2);
	deliver_run(r, 0, 5, 1);
	deliver_run(r, 2, 1, 4);
	assert_int_equal(r->thr.busy, 7);
	complete_run(r, 2, 1, 4);
	complete_run(r, 3, 0, 2);
	complete_run(r, 0, 5, 1);
	rig_cqe(r, fetch_ud[1], -ENOBUFS, 0);
	sqe = end_turn(r, 4);
	memcpy(kept, sqe + 1, sizeof(kept));
	check_run(r, &sqe[0], 0, IOSQE_CQE_SKIP_SUCCESS, 5, 1);
	check_entry(&sqe[1], OP_FETCH, 1, 0, 0, true);
	check_run(r, &sqe[2], 2, 0, 1, 4);
	check_run(r, &sqe[3], 3, 0, 0, 2);
	assert_int_equal(r->thr.busy, 6);
	/* one queue's wait is not the other's */
	deliver_run(r, 0, 6, 1);
	complete_run(r, 0, 6, 1);
	deliver_run(r, 2, 7, 1);
	complete_run(r, 2, 7, 1);
	committed(r, &kept[2], 2);
	check_run(r, end_turn(r, 1), 0, IOSQE_CQE_SKIP_SUCCESS, 6, 1);
	committed(r, &kept[1], 4);
	check_run(r, end_turn(r, 1), 2, IOSQE_CQE_SKIP_SUCCESS, 7, 1);
	assert_int_equal(r->thr.busy, 0);
	rig_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_single_result),
		cmocka_unit_test(test_many_results),
		cmocka_unit_test(test_late_results),
		cmocka_unit_test(test_one_at_a_time),
		cmocka_unit_test(test_single_after_many),
		cmocka_unit_test(test_partial),
		cmocka_unit_test(test_partial_with_others_waiting),
		cmocka_unit_test(test_all_results_wait),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_single_refused),
		cmocka_unit_test(test_several_queues),
	};

	return cmocka_run_group_tests_name("batch_commit", tests, NULL, NULL);
}
