/* SPDX-License-Identifier: MIT */
/*
 * Emptying slots of the buffer table: each that is done once, no full one, in few calls.
 * UNIT: tests/unit/rig.o
 */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"

#define SLOTS 600

/* ---- the kernel's table ------------------------------------------------------------------- */

static struct {
	bool full[SLOTS];
	unsigned int calls, commands;
	int refusal;
} table;

int io_uring_register_buffers_update_tag(struct io_uring *ring, unsigned int off,
					 const struct iovec *iovecs, const __u64 *tags, unsigned int nr)
{
	(void)ring;
	assert_null(tags);
	assert_true(nr > 1 && off + nr <= SLOTS);
	if (table.refusal)
		return table.refusal;
	for (unsigned int i = 0; i < nr; i++) {
		assert_true(!iovecs[i].iov_base && !iovecs[i].iov_len);
		table.full[off + i] = false;
	}
	table.calls++;
	return (int)nr;
}

/* Commands that were put on the ring, as the driver carries them out. */
static void carry_out(const struct io_uring_sqe *sqe)
{
	struct ublksrv_io_cmd cmd;

	memcpy(&cmd, sqe->cmd, sizeof(cmd));
	assert_true(sqe->flags & IOSQE_CQE_SKIP_SUCCESS);
	assert_true(cmd.addr < SLOTS);
	if (sqe->cmd_op == UBLK_U_IO_REGISTER_IO_BUF) {
		assert_false(table.full[cmd.addr]);
		table.full[cmd.addr] = true;
	} else {
		assert_int_equal(sqe->cmd_op, UBLK_U_IO_UNREGISTER_IO_BUF);
		table.full[cmd.addr] = false;
		table.commands++;
	}
}

static bool take_submitted(const struct io_uring_sqe *sqe, int32_t *ret_res)
{
	(void)ret_res;
	carry_out(sqe);
	return false;
}

static void take_ring(struct rig *r)
{
	struct io_uring_sqe sqe[RIG_SQ];
	unsigned int n = rig_take(r, sqe, RIG_SQ);

	for (unsigned int i = 0; i < n; i++)
		carry_out(&sqe[i]);
}

/* ---- a thread ----------------------------------------------------------------------------- */

static struct rig *start(void)
{
	struct rig *r = rig_new(&be_perio, 2, SLOTS / 2, 0);

	memset(&table, 0, sizeof(table));
	for (unsigned int i = 0; i < 2; i++) {
		r->qs[i].mode = iobuf_mode(DATA_ZERO_COPY);
		r->qs[i].buf_base = (uint16_t)(i * SLOTS / 2);
	}
	assert_int_equal(slots_init(&r->thr), 0);
	rig_answer = take_submitted;
	return r;
}

static void end(struct rig *r)
{
	slots_fini(&r->thr);
	rig_free(r);
}

static struct q *queue_of(struct rig *r, unsigned int slot, uint16_t *ret_tag)
{
	*ret_tag = (uint16_t)(slot % (SLOTS / 2));
	return &r->qs[slot / (SLOTS / 2)];
}

static void begin(struct rig *r, unsigned int slot)
{
	uint16_t tag;
	struct q *q = queue_of(r, slot, &tag);

	assert_int_equal(q_begin_data(q, tag), 0);
}

static void done(struct rig *r, unsigned int slot)
{
	uint16_t tag;
	struct q *q = queue_of(r, slot, &tag);

	assert_int_equal(q_end_data(q, tag, 4096), 4096);
}

static void turn_end(struct rig *r)
{
	r->thr.slots.turn++;
	assert_int_equal(slots_empty_done(&r->thr), 0);
	take_ring(r);
	assert_int_equal(r->thr.slots.nr_done, 0);
}

static const struct {
	const char *full, *done; /* slots from 62 on: a letter each, x: yes */
	unsigned int calls, commands;
} cases[] = {
	{ "x", "x", 0, 1 },
	{ "xx", "xx", 1, 0 },
	{ "xxxxxxxx", "xxxxxxxx", 1, 0 },
	{ "xxxxx", "xx xx", 2, 0 },   /* a full one between them */
	{ "xxx", "x x", 0, 2 },	      /* the same, commands */
	{ "xx  xx", "xx  xx", 1, 0 }, /* empty ones may be emptied again */
	{ "x   x", "x   x", 1, 0 },
	{ "x      x", "x      x", 0, 2 }, /* but not many of them */
	{ "x xxxxxxx", "x xxx xx ", 2, 0 },
};

static void test_ranges(void **state)
{
	(void)state;
	for (size_t c = 0; c < COUNT_OF(cases); c++) {
		struct rig *r = start();
		size_t n = strlen(cases[c].full);

		unit_case("full '%s', done '%s'", cases[c].full, cases[c].done);
		for (unsigned int i = 0; i < n; i++)
			if (cases[c].full[i] == 'x')
				begin(r, 62 + i);
		turn_end(r);
		/* in any order */
		for (unsigned int i = 0; i < n; i++)
			if (cases[c].done[n - 1 - i] == 'x')
				done(r, 62 + (unsigned int)n - 1 - i);
		turn_end(r);
		for (unsigned int i = 0; i < n; i++)
			unit_check(table.full[62 + i] ==
				   (cases[c].full[i] == 'x' && cases[c].done[i] != 'x'));
		unit_check(table.calls == cases[c].calls);
		unit_check(table.commands == cases[c].commands);
		end(r);
	}
}

/* The whole table, which is more than one call takes. */
static void test_all(void **state)
{
	struct rig *r = start();

	(void)state;
	for (unsigned int i = 0; i < SLOTS; i++)
		begin(r, i);
	turn_end(r);
	for (unsigned int i = 0; i < SLOTS; i++) {
		assert_true(table.full[i]);
		done(r, i);
	}
	turn_end(r);
	for (unsigned int i = 0; i < SLOTS; i++)
		assert_false(table.full[i]);
	assert_true(table.calls <= 3);
	end(r);
}

/* Filled and done before the kernel has seen the command: it must not be filled for ever. */
static void test_same_turn(void **state)
{
	struct rig *r = start();

	(void)state;
	for (unsigned int i = 10; i < 14; i++) {
		begin(r, i);
		done(r, i);
	}
	turn_end(r);
	for (unsigned int i = 10; i < 14; i++)
		assert_false(table.full[i]);
	end(r);
}

static void test_random(void **state)
{
	struct rig *r = start();
	bool out[SLOTS] = { false };
	unsigned int touched[SLOTS] = { 0 }; /* a tag comes again when its result is out */

	(void)state;
	srand(1);
	for (unsigned int turn = 0; turn < 2000; turn++) {
		for (unsigned int n = (unsigned int)rand() % 60; n; n--) {
			unsigned int i = (unsigned int)rand() % (turn % 2 ? SLOTS : 80);

			if (touched[i] == turn + 1)
				continue;
			if (out[i])
				done(r, i);
			else
				begin(r, i);
			out[i] = !out[i];
			touched[i] = turn + 1;
		}
		turn_end(r);
		for (unsigned int i = 0; i < SLOTS; i++)
			assert_int_equal(table.full[i], out[i]);
	}
	end(r);
}

/* Slots that the driver fills and empties are left alone, whatever is done around them. */
static void test_the_drivers(void **state)
{
	struct rig *r = start();

	(void)state;
	slots_fini(&r->thr);
	r->qs[0].mode = iobuf_mode(DATA_AUTO_ZC_FALLBACK);
	assert_int_equal(slots_init(&r->thr), 0);
	for (unsigned int i = 0; i < 12; i++)
		if (i % 4 != 2)
			r->desc[i].op_flags = UBLK_IO_F_NEED_REG_BUF;
		else
			table.full[i] = true;
	for (unsigned int i = 0; i < 12; i++)
		begin(r, i);
	turn_end(r);
	for (unsigned int i = 0; i < 12; i++) {
		assert_true(table.full[i]);
		done(r, i);
	}
	turn_end(r);
	for (unsigned int i = 0; i < 12; i++)
		assert_int_equal(table.full[i], i % 4 == 2);
	end(r);
}

static void test_refused(void **state)
{
	struct rig *r = start();

	(void)state;
	begin(r, 1);
	begin(r, 2);
	turn_end(r);
	done(r, 1);
	done(r, 2);
	table.refusal = -ENOMEM;
	assert_int_equal(slots_empty_done(&r->thr), -ENOMEM);
	end(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranges),	    cmocka_unit_test(test_all),
		cmocka_unit_test(test_same_turn),   cmocka_unit_test(test_random),
		cmocka_unit_test(test_the_drivers), cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests_name("slots", tests, NULL, NULL);
}
