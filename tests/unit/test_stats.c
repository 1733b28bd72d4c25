/* SPDX-License-Identifier: MIT */
/*
 * Live counters: classes of times and sizes, percentiles, what the engine counts, and reading them
 * from another process.
 * UNIT: tests/unit/rig.o
 */
#include "unit.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev/stats.h"
#include "rig.h"

/* Every time is in the class that starts at or below it and ends above it. */
static void test_classes(void **state)
{
	(void)state;
	for (unsigned int c = 0; c + 1 < ST_CLASSES; c++) {
		uint64_t from = st_class_ns(c), to = st_class_ns(c + 1);

		unit_case("class %u", c);
		unit_check(from < to);
		unit_check(st_class(from) == c);
		unit_check(st_class(to - 1) == c);
		/* no class is wider than a quarter of where it starts */
		unit_check(from < 4 || to - from <= from / 4);
	}
	assert_int_equal(st_class(0), 0);
	assert_int_equal(st_class(UINT64_MAX), ST_CLASSES - 1);
}

static void test_sizes(void **state)
{
	static const struct {
		unsigned int n, class;
	} cases[] = { { 1, 0 }, { 2, 1 }, { 3, 1 }, { 4, 2 }, { 7, 2 }, { 2048, 11 }, { 4096, 12 } };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++)
		assert_int_equal(st_size(cases[i].n), cases[i].class);
}

static void test_percentiles(void **state)
{
	struct st_block b = { 0 };

	(void)state;
	assert_int_equal(stats_percentile(&b, 500), 0);
	/* 98 of 1000 ns, one of 1 ms, one of 1 s */
	b.latency[st_class(1000)] = 98;
	b.latency[st_class(1000000)] = 1;
	b.latency[st_class(1000000000)] = 1;
	assert_in_range(stats_percentile(&b, 500), 1000, 1250);
	assert_in_range(stats_percentile(&b, 980), 1000, 1250);
	assert_in_range(stats_percentile(&b, 990), 1000000, 1250000);
	assert_in_range(stats_percentile(&b, 999), 1000000000, 1250000000);
}

static void test_sums(void **state)
{
	struct st_block a = { .taken = 5, .done = { 2, 1 }, .committed = { [12] = 7 } }, sum = { 0 };

	(void)state;
	stats_add(&sum, &a);
	stats_add(&sum, &a);
	assert_int_equal(sum.taken, 10);
	assert_int_equal(sum.done[1], 2);
	assert_int_equal(sum.committed[12], 14);
	assert_int_equal(stats_in_flight(&sum), 4);
	stats_sub(&sum, &a);
	assert_memory_equal(&sum.taken, &a.taken, sizeof(a) - offsetof(struct st_block, taken));
	/* torn: more results than requests */
	sum.taken = 1;
	assert_int_equal(stats_in_flight(&sum), 0);
}

static void test_what_is_counted(void **state)
{
	struct rig *r = rig_new(&be_perio, 1, 4, 4096);
	const struct st_block *st = r->qs[0].st;

	(void)state;
	assert_int_equal(be_perio.init(&r->thr), 0);
	r->thr.now = 1000;
	r->desc[0].op_flags = UBLK_IO_OP_READ;
	r->desc[1].op_flags = UBLK_IO_OP_WRITE | UBLK_IO_F_FUA;
	r->desc[2].op_flags = UBLK_IO_OP_FLUSH;
	for (uint16_t tag = 0; tag < 3; tag++)
		q_deliver(&r->qs[0], tag);
	assert_int_equal(st->taken, 3);
	assert_int_equal(stats_in_flight(st), 3);
	q_complete(&r->qs[0], 0, 4096);
	r->thr.now = 6000;
	q_complete(&r->qs[0], 1, 512);
	q_complete(&r->qs[0], 2, -EIO);
	assert_int_equal(st->done[UBLK_IO_OP_READ], 1);
	assert_int_equal(st->bytes[UBLK_IO_OP_READ], 4096);
	assert_int_equal(st->done[UBLK_IO_OP_WRITE], 1);
	assert_int_equal(st->bytes[UBLK_IO_OP_WRITE], 512);
	assert_int_equal(st->done[UBLK_IO_OP_FLUSH], 1);
	assert_int_equal(st->bytes[UBLK_IO_OP_FLUSH], 0);
	assert_int_equal(st->errors, 1);
	assert_int_equal(st->latency[0], 1);
	assert_int_equal(st->latency[st_class(5000)], 2);
	assert_int_equal(stats_in_flight(st), 0);
	rig_free(r);
}

/* A memfd as the engine makes it, in a child. */
static pid_t child_with(const char *name, const struct st_head *h, size_t len, int seals)
{
	int ready[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		int fd = memfd_create(name, MFD_ALLOW_SEALING);

		if (fd < 0 || ftruncate(fd, (off_t)len) < 0 ||
		    (seals && fcntl(fd, F_ADD_SEALS, seals) < 0) ||
		    pwrite(fd, h, sizeof(*h), 0) != (ssize_t)sizeof(*h) ||
		    write(ready[1], "x", 1) != 1)
			_exit(1);
		pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	return pid;
}

static void test_map(void **state)
{
	static const size_t two = sizeof(struct st_head) + 2 * sizeof(struct st_block);
	enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };
	const struct {
		const char *name;
		struct st_head head;
		size_t len;
		int want;
		int seals;
	} cases[] = {
		{ ST_NAME, { ST_MAGIC, 2, sizeof(struct st_block), { 0 } }, two, 0, SEALS },
		{ "other", { ST_MAGIC, 2, sizeof(struct st_block), { 0 } }, two, -ENOENT, SEALS },
		{ ST_NAME, { ST_MAGIC + 1, 2, sizeof(struct st_block), { 0 } }, two, -EPROTO, SEALS },
		{ ST_NAME, { ST_MAGIC, 2, sizeof(struct st_block) - 8, { 0 } }, two, -EPROTO, SEALS },
		{ ST_NAME, { ST_MAGIC, 3, sizeof(struct st_block), { 0 } }, two, -EPROTO, SEALS },
		{ ST_NAME, { ST_MAGIC, 0, sizeof(struct st_block), { 0 } }, 64, 0, SEALS },
		/* could get shorter under its reader */
		{ ST_NAME, { ST_MAGIC, 2, sizeof(struct st_block), { 0 } }, two, -EPROTO, 0 },
		{ ST_NAME, { ST_MAGIC, 2, sizeof(struct st_block), { 0 } }, two, -EPROTO, F_SEAL_GROW },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		pid_t pid = child_with(cases[i].name, &cases[i].head, cases[i].len, cases[i].seals);
		struct stats s = { 0 };
		int r = stats_map(pid, &s);

		unit_case("case %zu: %d", i, r);
		unit_check(r == cases[i].want);
		if (!r) {
			unit_check(!stats_block(&s, cases[i].head.nr_blocks));
			unit_check(!cases[i].head.nr_blocks || stats_block(&s, 0));
			stats_unmap(&s);
		}
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	assert_int_equal(stats_map(0x7ffffff0, &(struct stats){ 0 }), -ESRCH);
}

/* A server can write what it likes to its counters, at any time. */
static void test_wild_server(void **state)
{
	static union {
		struct st_head head;
		uint8_t all[sizeof(struct st_head) + 2 * sizeof(struct st_block)];
	} page = { .head = { ST_MAGIC, 1000, sizeof(struct st_block), { 0 } } };
	const struct stats s = { .head = &page.head, .len = sizeof(page), .nr_blocks = 2 };
	struct st_block b = { .queue = UINT32_MAX };

	(void)state;
	assert_non_null(stats_block(&s, 1));
	assert_null(stats_block(&s, 2));
	assert_true(stats_queue(&b) < UBLK_MAX_NR_QUEUES);
	b.queue = 7;
	assert_int_equal(stats_queue(&b), 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_classes),		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_percentiles),	cmocka_unit_test(test_sums),
		cmocka_unit_test(test_what_is_counted), cmocka_unit_test(test_map),
		cmocka_unit_test(test_wild_server),
	};

	return cmocka_run_group_tests_name("stats", tests, NULL, NULL);
}
