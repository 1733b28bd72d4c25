/* SPDX-License-Identifier: MIT */
/*
 * Per-I/O back end: what it puts on the ring and what it makes of each completion.
 * UNIT: tests/unit/rig.o
 */
#include "unit.h"

#include <errno.h>
#include <string.h>

#include "rig.h"

#define BUF 4096

/* An entry with nothing in it but what the driver's documentation asks for. */
static struct io_uring_sqe expected(const struct rig *r, unsigned int slot, uint32_t op,
				    uint16_t tag, int32_t res)
{
	struct ublksrv_io_cmd cmd = {
		.q_id = (uint16_t)(10 + slot),
		.tag = tag,
		.result = res,
		.addr = r->bufs ? (uintptr_t)r->qs[slot].buf + (uint64_t)tag * BUF : 0,
	};
	struct io_uring_sqe sqe;

	memset(&sqe, 0, sizeof(sqe));
	sqe.opcode = IORING_OP_URING_CMD;
	sqe.flags = IOSQE_FIXED_FILE;
	sqe.fd = 0;
	sqe.cmd_op = op;
	sqe.user_data = ud_pack(UD_BACKEND, 0, (uint16_t)slot, tag);
	memcpy(sqe.cmd, &cmd, sizeof(cmd));
	return sqe;
}

static void check_entry(const struct rig *r, const struct io_uring_sqe *got, unsigned int slot,
			uint32_t op, uint16_t tag, int32_t res)
{
	struct io_uring_sqe want = expected(r, slot, op, tag, res);

	unit_case("queue %u tag %u op %#x", slot, tag, op);
	unit_check(!memcmp(got, &want, sizeof(want)));
}

static void check_need(struct rig *r, unsigned int want)
{
	unsigned int sq = 0, cq = 0;

	be_perio.need(&r->thr, &sq, &cq);
	assert_int_equal(sq, want);
	assert_int_equal(cq, want);
}

/* Each tag once, with its buffer; more tags than the ring has room for. */
static void prepare_all(unsigned int nr_qs, unsigned int depth, size_t buf)
{
	struct rig *r = rig_new(&be_perio, nr_qs, depth, buf);
	struct io_uring_sqe left;

	check_need(r, nr_qs * depth);
	assert_int_equal(be_perio.init(&r->thr), 0);
	assert_int_equal(be_perio.prepare(&r->thr), 0);
	assert_int_equal(be_perio.arm(&r->thr), 0);
	assert_int_equal(rig_take(r, &left, 0), 0);
	assert_int_equal(rig_submitted.count, nr_qs * depth);
	assert_int_equal(r->thr.live, nr_qs * depth);
	for (unsigned int i = 0; i < rig_submitted.count; i++)
		check_entry(r, &rig_submitted.sqe[i], i / depth, UBLK_U_IO_FETCH_REQ,
			    (uint16_t)(i % depth), 0);
	assert_false(r->thr.stop);
	rig_free(r);
}

static void test_prepare(void **state)
{
	(void)state;
	prepare_all(1, 1, BUF);
	prepare_all(1, 4, BUF);
	prepare_all(3, 4, BUF);
	prepare_all(2, 100, BUF);
	prepare_all(1, 4096, 0); /* without server buffers the address is 0 */
}

static uint16_t refused_tag;
static int32_t refusal;

static bool refuse(const struct io_uring_sqe *sqe, int32_t *ret_res)
{
	*ret_res = refusal;
	return ud_tag(sqe->user_data) == refused_tag;
}

static void test_prepare_refused(void **state)
{
	(void)state;
	for (refused_tag = 0; refused_tag < 4; refused_tag++) {
		struct rig *r = rig_new(&be_perio, 1, 4, BUF);

		refusal = -EINVAL;
		rig_answer = refuse;
		assert_int_equal(be_perio.init(&r->thr), 0);
		assert_int_equal(be_perio.prepare(&r->thr), -EINVAL);
		rig_free(r);
	}
}

/* A refusal that arrives after prepare() is seen before the device is started. */
static void test_late_refusal(void **state)
{
	struct rig *r = rig_new(&be_perio, 1, 4, BUF);
	struct io_uring_sqe *sqe;

	(void)state;
	assert_int_equal(be_perio.init(&r->thr), 0);
	assert_int_equal(be_perio.prepare(&r->thr), 0);
	refused_tag = 9;
	refusal = -ENOMEM;
	rig_answer = refuse;
	sqe = io_uring_get_sqe(&r->thr.ring);
	if (!sqe) {
		fail_msg("no entry is free");
		return;
	}
	q_prep_cdev(sqe, UBLK_U_IO_FETCH_REQ, 0, ud_pack(UD_BACKEND, 0, 0, 9));
	memset(q_cmd_area(sqe), 0, 16);
	io_uring_submit(&r->thr.ring);
	assert_int_equal(be_perio.arm(&r->thr), -ENOMEM);
	rig_free(r);
}

static struct rig *armed(unsigned int nr_qs, unsigned int depth)
{
	struct rig *r = rig_new(&be_perio, nr_qs, depth, BUF);

	assert_int_equal(be_perio.init(&r->thr), 0);
	assert_int_equal(be_perio.prepare(&r->thr), 0);
	assert_int_equal(be_perio.arm(&r->thr), 0);
	return r;
}

static void test_delivery_and_result(void **state)
{
	static const int32_t results[] = { 4096, 0, -EIO, 1 << 25, -EOPNOTSUPP };
	struct rig *r = armed(2, 8);
	struct io_uring_sqe sqe;

	(void)state;
	for (uint16_t i = 0; i < 40; i++) {
		uint16_t slot = i % 2, tag = (uint16_t)(i * 5 % 8);
		int32_t res = results[i % COUNT_OF(results)];

		r->nr_got = 0;
		rig_cqe(r, ud_pack(UD_BACKEND, 0, slot, tag), UBLK_IO_RES_OK, 0);
		assert_int_equal(r->nr_got, 1);
		assert_ptr_equal(r->got[0].q, &r->qs[slot]);
		assert_int_equal(r->got[0].tag, tag);
		assert_ptr_equal(r->got[0].desc, &r->qs[slot].desc[tag]);
		assert_int_equal(rig_take(r, &sqe, 0), 0);
		q_complete(&r->qs[slot], tag, res);
		be_perio.turn_end(&r->thr);
		assert_int_equal(rig_take(r, &sqe, 1), 1);
		check_entry(r, &sqe, slot, UBLK_U_IO_COMMIT_AND_FETCH_REQ, tag, res);
	}
	assert_int_equal(r->thr.live, 16);
	assert_false(r->thr.stop);
	rig_free(r);
}

/* Results go out in the order in which they came, each once, also when the ring is full. */
static void test_many_results(void **state)
{
	struct rig *r = armed(1, 200);
	struct io_uring_sqe rest[RIG_SQ];
	unsigned int n;

	(void)state;
	rig_submitted_reset();
	for (uint16_t tag = 0; tag < 200; tag++)
		q_complete(&r->qs[0], tag, tag);
	be_perio.turn_end(&r->thr);
	n = rig_take(r, rest, RIG_SQ);
	assert_int_equal(rig_submitted.count + n, 200);
	for (uint16_t tag = 0; tag < 200; tag++)
		check_entry(r,
			    tag < rig_submitted.count ? &rig_submitted.sqe[tag] :
							&rest[tag - rig_submitted.count],
			    0, UBLK_U_IO_COMMIT_AND_FETCH_REQ, tag, tag);
	assert_false(r->thr.stop);
	rig_free(r);
}

/* ABORT: the device is stopped or taken away; the thread has nothing more to wait for. */
static void test_abort(void **state)
{
	struct rig *r = armed(2, 3);
	struct io_uring_sqe sqe;

	(void)state;
	assert_int_equal(r->thr.live, 6);
	for (unsigned int i = 0; i < 6; i++) {
		rig_cqe(r, ud_pack(UD_BACKEND, 0, (uint16_t)(i / 3), (uint16_t)(i % 3)),
			UBLK_IO_RES_ABORT, 0);
		be_perio.turn_end(&r->thr);
		assert_int_equal(rig_take(r, &sqe, 0), 0);
		assert_int_equal(r->thr.live, 5 - i);
		assert_true(r->thr.ending);
	}
	assert_int_equal(r->thr.live + r->thr.busy, 0); /* the end of serve_queues() */
	assert_int_equal(r->nr_got, 0);
	assert_int_equal(r->thr.fail.err, 0);
	assert_false(r->thr.stop);
	rig_free(r);
}

/*
 * QUIESCE_DEV: idle tags get ABORT, those in the server do not: each still gives its result back, and
 * the thread stays until it is told that no more are aborted.
 */
static void test_abort_while_busy(void **state)
{
	struct rig *r = armed(1, 3);
	struct io_uring_sqe sqes[2];

	(void)state;
	rig_cqe(r, ud_pack(UD_BACKEND, 0, 0, 0), UBLK_IO_RES_OK, 0);
	rig_cqe(r, ud_pack(UD_BACKEND, 0, 0, 2), UBLK_IO_RES_OK, 0);
	assert_int_equal(r->nr_got, 2);
	rig_cqe(r, ud_pack(UD_BACKEND, 0, 0, 1), UBLK_IO_RES_ABORT, 0);
	assert_int_equal(r->thr.live, 2);
	assert_int_equal(r->thr.busy, 2);
	q_complete(&r->thr.qs[0], 2, 4096);
	assert_int_equal(r->thr.busy, 1);
	q_complete(&r->thr.qs[0], 0, -EIO);
	assert_int_equal(r->thr.busy, 0);
	assert_int_equal(r->thr.live, 2);
	assert_true(r->thr.ending);
	/* both results are on the ring */
	assert_int_equal(rig_take(r, sqes, 2), 2);
	assert_int_equal(r->thr.fail.err, 0);
	rig_free(r);
}

static void test_other_errors(void **state)
{
	static const struct {
		int32_t res;
		int err;
	} cases[] = {
		{ -EINVAL, EINVAL }, { -EBUSY, EBUSY },
		{ -EIO, EIO },	     { 1, EPROTO }, /* NEED_GET_DATA was never asked for */
		{ 4096, EPROTO },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct rig *r = armed(1, 4);
		struct io_uring_sqe sqe;

		unit_case("result %d", cases[i].res);
		rig_cqe(r, ud_pack(UD_BACKEND, 0, 0, 2), cases[i].res, 0);
		unit_check(r->thr.fail.err == cases[i].err);
		unit_check(r->thr.stop);
		unit_check(r->thr.live == 3);
		unit_check(r->nr_got == 0);
		unit_check(rig_take(r, &sqe, 0) == 0);
		/* the first reason stays */
		rig_cqe(r, ud_pack(UD_BACKEND, 0, 0, 3), -ENXIO, 0);
		unit_check(r->thr.fail.err == cases[i].err);
		rig_free(r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_prepare),		 cmocka_unit_test(test_prepare_refused),
		cmocka_unit_test(test_late_refusal),	 cmocka_unit_test(test_delivery_and_result),
		cmocka_unit_test(test_many_results),	 cmocka_unit_test(test_abort),
		cmocka_unit_test(test_abort_while_busy), cmocka_unit_test(test_other_errors),
	};

	return cmocka_run_group_tests_name("perio", tests, NULL, NULL);
}
