/* SPDX-License-Identifier: MIT */
/*
 * The client of bench on a plain file, and which devices a list of modes means.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "need_uring.h"

#define FILE_SIZE (1 << 20)

static int fd;

static struct load base_load(void)
{
	return (struct load){
		.fd = fd,
		.size = FILE_SIZE,
		.block_size = 4096,
		.depth = 8,
		.jobs = 1,
		.ios = 1000,
		.latency = true,
	};
}

static struct load_result res;

static int run_load(const struct load *l)
{
	struct load_run *r;
	struct fail f = { 0 };
	int err = load_start(l, &r, &f);

	return err < 0 ? err : load_finish(r, &res, &f);
}

static void test_counts(void **state)
{
	struct load l = base_load();

	(void)state;
	assert_int_equal(run_load(&l), 0);
	assert_int_equal(res.ios, 1000);
	assert_int_equal(res.hist.count, 1000);
	assert_int_equal(res.total, 1500); /* half of it for warming up */
	assert_true(res.ns > 0);
	/* fewer than jobs, fewer than fit into the ring, one */
	for (l.ios = 1; l.ios < 20; l.ios += 3) {
		l.jobs = 4;
		unit_case("%llu requests", (unsigned long long)l.ios);
		unit_check(run_load(&l) == 0);
		unit_check(res.ios == l.ios);
		unit_check(res.hist.count == l.ios);
	}
	l = base_load();
	l.ios = 10000;
	l.latency = false;
	assert_int_equal(run_load(&l), 0);
	assert_int_equal(res.ios, 10000);
	assert_int_equal(res.total, 10000 + LOAD_WARMUP);
	assert_int_equal(res.hist.count, 0);
}

static void test_time(void **state)
{
	struct load l = base_load();

	(void)state;
	l.ios = 0;
	l.time_ns = 50000000;
	l.jobs = 2;
	assert_int_equal(run_load(&l), 0);
	assert_true(res.ns >= l.time_ns);
	assert_true(res.ios > 0 && res.ios <= res.total);
	/* those on the way at the end are not counted */
	assert_true(res.hist.count >= res.ios);
}

static size_t count_zeros(void)
{
	static char buf[FILE_SIZE];
	size_t n = 0;

	assert_int_equal(pread(fd, buf, sizeof(buf), 0), sizeof(buf));
	for (size_t i = 0; i < sizeof(buf); i += 4096)
		n += !memcmp(buf + i, (char[4096]){ 0 }, 4096);
	return n;
}

static void test_writes(void **state)
{
	struct load l = base_load();
	size_t zeros = count_zeros();

	(void)state;
	assert_int_equal(zeros, FILE_SIZE / 4096);
	assert_int_equal(run_load(&l), 0);
	assert_int_equal(count_zeros(), zeros);
	l.write_percent = 50;
	l.ios = 20;
	assert_int_equal(run_load(&l), 0);
	assert_true(count_zeros() < zeros && count_zeros() >= zeros - 30);
	l.write_percent = 100;
	l.ios = 10000;
	assert_int_equal(run_load(&l), 0);
	/* random offsets reach every block */
	assert_int_equal(count_zeros(), 0);
}

static void test_errors(void **state)
{
	struct load l = base_load();

	(void)state;
	/* behind the end there is nothing to read */
	l.size = 2 * FILE_SIZE;
	l.jobs = 3;
	assert_int_equal(run_load(&l), -EIO);
	l = base_load();
	l.fd = -1;
	assert_int_equal(run_load(&l), -EBADF);
}

static void test_stop(void **state)
{
	struct load l = base_load();
	struct fail f;
	struct load_run *r;
	struct pollfd p = { .events = POLLIN };

	(void)state;
	l.ios = UINT32_MAX;
	assert_int_equal(load_start(&l, &r, &f), 0);
	p.fd = load_done_fd(r);
	assert_int_equal(poll(&p, 1, 20), 0);
	load_stop(r);
	assert_int_equal(poll(&p, 1, 10000), 1);
	assert_int_equal(load_finish(r, &res, &f), 0);
	assert_int_equal(res.ios, 0);
	assert_true(res.total > 0);
}

/* ---- modes ------------------------------------------------------------------------------ */

static struct bench_plan plan;

static size_t cells(const char *list)
{
	struct fail f;

	return bench_parse_modes(list, &plan, &f) < 0 ? 0 : plan.nr_cells;
}

static void test_modes(void **state)
{
	(void)state;
	/* six modes, one of which the batch path does not have */
	assert_int_equal(cells(NULL), 11);
	for (size_t i = 0; i < plan.nr_cells; i++)
		assert_true(plan.cells[i].optional);
	assert_int_equal(cells("copy"), 2);
	/* that the mode is there was asked for, not that the batch path is */
	assert_false(plan.cells[0].optional);
	assert_true(plan.cells[1].optional);
	assert_int_equal(plan.cells[0].mode, DATA_COPY);
	assert_false(plan.cells[0].batch);
	assert_true(plan.cells[1].batch);
	assert_int_equal(cells("copy:batch,auto-zc:per-io,get-data"), 3);
	assert_true(plan.cells[0].batch);
	assert_false(plan.cells[0].optional);
	assert_int_equal(plan.cells[1].mode, DATA_AUTO_ZC);
	assert_false(plan.cells[2].batch);
	/* named twice is measured once */
	assert_int_equal(cells("copy,copy:batch,copy:per-io"), 2);
	assert_false(plan.cells[1].optional);
	for (size_t i = 0; i < 9; i++) {
		static const char *const bad[] = {
			"",
			"copy,",
			",copy",
			"Copy",
			"copy:",
			"copy:both",
			"get-data:batch",
			"best",
			"copy:batch:batch",
		};

		unit_case("'%s'", bad[i]);
		unit_check(cells(bad[i]) == 0);
	}
}

static void test_report(void **state)
{
	static struct bench_row rows[3];

	(void)state;
	rows[0] = (struct bench_row){ .target = "/dev/x", .batch = -1, .ios = 100, .ns = 100000 };
	rows[1] =
		(struct bench_row){ .target = "null", .data_mode = "copy", .ios = 100, .ns = 200000 };
	rows[2] = rows[1];
	rows[2].batch = 1;
	rows[2].ns = 100000;
	bench_compare(rows, 3);
	assert_true(rows[0].batch_ratio != rows[0].batch_ratio);
	assert_true(rows[1].batch_ratio != rows[1].batch_ratio);
	assert_true(rows[2].batch_ratio == 2);
	assert_true(rows[1].baseline_ratio == 0.5);
	assert_true(rows[2].baseline_ratio == 1);
	rows[2].iops_min = 100;
	rows[2].iops_max = 110;
	assert_true(bench_spread(&rows[2]) == 10);
	assert_true(bench_spread(&rows[0]) == 0);
}

static int open_file(void **state)
{
	char path[] = "/tmp/test_load.XXXXXX";

	struct io_uring ring;

	(void)state;
	need_uring(&ring, 2); /* or the test is skipped */
	io_uring_queue_exit(&ring);
	fd = mkstemp(path);
	return fd < 0 || unlink(path) < 0 || ftruncate(fd, FILE_SIZE) < 0;
}

static int close_file(void **state)
{
	(void)state;
	return close(fd);
}

int main(void)
{
	const struct CMUnitTest with_ring[] = {
		cmocka_unit_test_setup_teardown(test_counts, open_file, close_file),
		cmocka_unit_test_setup_teardown(test_time, open_file, close_file),
		cmocka_unit_test_setup_teardown(test_writes, open_file, close_file),
		cmocka_unit_test_setup_teardown(test_errors, open_file, close_file),
		cmocka_unit_test_setup_teardown(test_stop, open_file, close_file),
	};
	const struct CMUnitTest without[] = {
		cmocka_unit_test(test_modes),
		cmocka_unit_test(test_report),
	};
	int failed = cmocka_run_group_tests(without, NULL, NULL);

	return failed + cmocka_run_group_tests(with_ring, NULL, NULL);
}
