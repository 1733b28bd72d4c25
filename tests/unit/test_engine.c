/* SPDX-License-Identifier: MIT */
/*
 * The engine's start: who serves what, and a failure in every phase.
 * UNIT: tests/unit/vg_wait.o tests/unit/engine_fake.o
 */
#include "unit.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "engine_fake.h"

static void check_queue(unsigned int t, unsigned int k, const struct q *first)
{
	const struct q *q = &plan.thr[t].qs[k];

	unit_check(q->slot == k);
	unit_check(q->depth == DEPTH);
	unit_check(q->buf && q->buf_size == MAX_IO);
	unit_check(q->tag_priv);
	/* threads that share a queue share its descriptors, buffers and target state */
	unit_check(!first || (first->desc == q->desc && first->buf == q->buf &&
			      first->tag_priv == q->tag_priv));
}

static void check_map(unsigned int queues, unsigned int threads)
{
	unsigned int servers[MAX] = { 0 }, preparers[MAX] = { 0 };
	const struct q *first[MAX] = { NULL };

	for (unsigned int t = 0; t < threads; t++) {
		const struct seen *s = &plan.thr[t];

		unit_check(s->here && s->prepared == 1 && s->armed == 1 && s->finished == 1);
		unit_check(s->nr_qs >= 1);
		/* each has as many as the others, or one more */
		unit_check(queues <= threads ? s->nr_qs == 1 : s->nr_qs - queues / threads <= 1);
		for (unsigned int k = 0; k < s->nr_qs; k++) {
			unsigned int id = s->qs[k].id;

			unit_check(id < queues);
			check_queue(t, k, first[id]);
			first[id] = first[id] ? first[id] : &s->qs[k];
			servers[id]++;
			preparers[id] += s->qs[k].prepares;
		}
	}
	for (unsigned int q = 0; q < queues; q++) {
		unit_check(preparers[q] == 1);
		unit_check(threads <= queues ? servers[q] == 1 : servers[q] - threads / queues <= 1);
		unit_check(servers[q] >= 1);
		for (unsigned int other = 0; other < q; other++)
			unit_check(first[q]->buf != first[other]->buf &&
				   first[q]->desc != first[other]->desc &&
				   first[q]->tag_priv != first[other]->tag_priv);
	}
}

/* Queue q's descriptors are those that the driver puts there for it. */
static void check_descriptors(unsigned int queues, unsigned int threads)
{
	for (unsigned int t = 0; t < threads; t++)
		for (unsigned int k = 0; k < plan.thr[t].nr_qs; k++) {
			const struct q *q = &plan.thr[t].qs[k];

			unit_check(q->id < queues);
			for (uint16_t tag = 0; tag < DEPTH; tag++) {
				unit_check(q_desc(q, tag)->start_sector == q->id);
				unit_check(q_desc(q, tag)->addr == tag);
			}
		}
}

/* Mappings of the driver's descriptors in this process. */
static unsigned int count_maps(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	unsigned int n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, "memfd:descriptors") != NULL;
	fclose(f);
	return n;
}

static void test_map(void **state)
{
	(void)state;
	for (unsigned int queues = 1; queues <= MAX; queues++)
		for (unsigned int threads = 1; threads <= MAX; threads++) {
			struct fail f = { .err = 99 };
			struct eng *e = NULL;

			unit_case("%u queues, %u threads", queues, threads);
			plan_set(NEVER, 0, 0);
			unit_check(start(queues, threads, true, &e, &f) == 0);
			unit_check(e);
			check_descriptors(queues, threads);
			unit_check(count_maps() >= 1);
			eng_finish(e, &f);
			unit_check(f.err == 0);
			check_map(queues, threads);
			unit_check(count_maps() == 0);
		}
}

static void test_choice_of_back_end(void **state)
{
	struct fail f;
	struct eng *e;

	(void)state;
	for (int batch = 0; batch < 2; batch++) {
		plan_set(NEVER, 0, 0);
		assert_int_equal(start(2, 2, batch, &e, &f), 0);
		eng_finish(e, &f);
		for (int t = 0; t < 2; t++)
			assert_string_equal(plan.thr[t].be, batch ? "fake batch" : "fake per-io");
	}
}

/* A start that fails gives the error of the thread that failed, and leaves nothing. */
static void failed_start(enum phase phase, unsigned int threads, unsigned int failing)
{
	static const char *const what[] = {
		[RING] = "ring",
		[INIT] = "prepare",
		[PREPARE] = "prepare",
		[ARM] = "fetch",
	};
	int want = phase == RING ? EBADF : EUCLEAN;
	struct fail f = { 0 };
	struct eng *e = NULL;
	char name[32];
	int r;

	unit_case("phase %d, thread %u of %u", (int)phase, failing, threads);
	plan_set(phase, failing, EUCLEAN);
	r = start(3, threads, true, &e, &f);
	unit_case("phase %d, thread %u of %u: %d '%s'", (int)phase, failing, threads, r, f.text);
	unit_check(r == -want && f.err == want);
	unit_check(!e);
	snprintf(name, sizeof(name), "I/O thread %u: ", phase == RING ? 0 : failing);
	unit_check(strstr(f.text, name) == f.text);
	unit_check(strstr(f.text, what[phase]));
	unit_check(strstr(f.text, strerror(want)));
	for (unsigned int t = 0; t < threads; t++) {
		unit_check(plan.thr[t].finished == (phase == RING ? 0 : 1));
		unit_check(phase == ARM || !plan.thr[t].armed);
	}
}

static void test_failed_start(void **state)
{
	static const enum phase phases[] = { RING, INIT, PREPARE, ARM };
	int fds = count_entries("/proc/self/fd"), tasks = count_entries("/proc/self/task");

	(void)state;
	for (size_t p = 0; p < COUNT_OF(phases); p++)
		for (unsigned int threads = 1; threads <= MAX; threads++)
			for (unsigned int failing = 0; failing < threads; failing++)
				failed_start(phases[p], threads, failing);
	assert_int_equal(count_entries("/proc/self/fd"), fds);
	assert_int_equal(count_entries("/proc/self/task"), tasks);
	assert_int_equal(count_maps(), 0);
}

/* A thread that fails to arm is often back before the others left the phase in front of it. */
static void test_failed_arm_races(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 400; i++)
		failed_start(ARM, 4, i % 4);
}

static void test_no_thread(void **state)
{
	int fds = count_entries("/proc/self/fd"), tasks = count_entries("/proc/self/task");

	(void)state;
	if (!creatable_works) {
		print_message("not with clang's thread sanitizer\n");
		skip();
	}
	for (unsigned int threads = 1; threads <= 4; threads++)
		for (int can = 0; can < (int)threads; can++) {
			struct fail f = { 0 };
			struct eng *e = NULL;
			char name[32];
			int r;

			plan_set(NEVER, 0, 0);
			creatable = can;
			r = start(2, threads, true, &e, &f);
			creatable = -1;
			unit_case("%d of %u threads: %d '%s'", can, threads, r, f.text);
			unit_check(r == -EAGAIN && f.err == EAGAIN && !e);
			snprintf(name, sizeof(name), "I/O thread %d: cannot be created", can);
			unit_check(strstr(f.text, name) == f.text);
			for (int t = 0; t < can; t++)
				unit_check(plan.thr[t].finished == 1 && !plan.thr[t].armed);
		}
	assert_int_equal(count_entries("/proc/self/fd"), fds);
	assert_int_equal(count_entries("/proc/self/task"), tasks);
	assert_int_equal(count_maps(), 0);
}

static void test_no_descriptors(void **state)
{
	int fds = count_entries("/proc/self/fd"), saved = memfd;
	struct eng *e = NULL;
	struct fail f = { 0 };

	(void)state;
	plan_set(NEVER, 0, 0);
	memfd = -1;
	assert_int_equal(start(2, 2, true, &e, &f), -EBADF);
	memfd = saved;
	assert_int_equal(f.err, EBADF);
	assert_null(e);
	assert_int_equal(count_entries("/proc/self/fd"), fds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_map),	     cmocka_unit_test(test_choice_of_back_end),
		cmocka_unit_test(test_failed_start), cmocka_unit_test(test_failed_arm_races),
		cmocka_unit_test(test_no_thread),    cmocka_unit_test(test_no_descriptors),
	};

	if (!engine_fake_init())
		return 1;
	alarm(WATCHDOG);
	return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
