/* SPDX-License-Identifier: MIT */
/*
 * The engine's end: stopped, by itself, with a thread that fails while it serves.
 * UNIT: tests/unit/vg_wait.o tests/unit/engine_fake.o
 */
#include "unit.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "engine_fake.h"

static bool is_done(struct eng *e, int timeout_ms)
{
	struct pollfd p = { .fd = eng_done_fd(e), .events = POLLIN };

	return poll(&p, 1, timeout_ms) == 1;
}

static void test_stop(void **state)
{
	struct fail f = { 0 };
	struct eng *e;

	(void)state;
	plan_set(NEVER, 0, 0);
	assert_int_equal(start(2, 4, true, &e, &f), 0);
	assert_false(is_done(e, 0));
	eng_stop(e);
	assert_true(is_done(e, -1));
	f.err = 99;
	eng_finish(e, &f);
	assert_int_equal(f.err, 0);
}

/* All threads see the end of the device and leave: done without a reason. */
static void test_end(void **state)
{
	struct fail f = { .err = 99 };
	struct eng *e;

	(void)state;
	plan_set(END, 0, 0);
	assert_int_equal(start(3, 5, true, &e, &f), 0);
	assert_true(is_done(e, -1));
	eng_finish(e, &f);
	assert_int_equal(f.err, 0);
}

/* Done is when the last thread has gone, not the first. */
static void test_end_of_one(void **state)
{
	int tasks = count_entries("/proc/self/task");
	struct fail f = { 0 };
	struct eng *e;

	(void)state;
	plan_set(END_ONE, 1, 1);
	assert_int_equal(start(3, 3, true, &e, &f), 0);
	while (count_entries("/proc/self/task") != tasks + 2)
		sched_yield();
	assert_false(is_done(e, 0));
	eng_finish(e, &f);
	assert_int_equal(f.err, 0);
}

/* One thread that fails takes all along, and its reason is the one that is told. */
static void test_failure_while_serving(void **state)
{
	(void)state;
	for (unsigned int failing = 0; failing < 4; failing++) {
		struct fail f = { 0 };
		struct eng *e;
		char name[32];

		plan_set(RUN, failing, ENOLINK);
		assert_int_equal(start(2, 4, true, &e, &f), 0);
		assert_true(is_done(e, -1));
		eng_finish(e, &f);
		assert_int_equal(f.err, ENOLINK);
		snprintf(name, sizeof(name), "I/O thread %u: on purpose", failing);
		assert_ptr_equal(strstr(f.text, name), f.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stop),
		cmocka_unit_test(test_end),
		cmocka_unit_test(test_end_of_one),
		cmocka_unit_test(test_failure_while_serving),
	};

	if (!engine_fake_init())
		return 1;
	alarm(WATCHDOG);
	return cmocka_run_group_tests_name("engine_end", tests, NULL, NULL);
}
