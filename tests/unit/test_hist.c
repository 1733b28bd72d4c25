/* SPDX-License-Identifier: MIT */
/*
 * Histogram of latencies: buckets, percentiles, merging.
 */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "bench/hist.h"

static struct hist h, other;

static void clear(void)
{
	memset(&h, 0, sizeof(h));
	memset(&other, 0, sizeof(other));
}

/* within 1/64 */
static void near(uint64_t got, uint64_t want)
{
	uint64_t off = got > want ? got - want : want - got;

	if (off > want / HIST_PARTS)
		fail_msg("%llu instead of %llu", (unsigned long long)got, (unsigned long long)want);
}

static void test_index(void **state)
{
	unsigned int last = 0;

	(void)state;
	for (uint64_t v = 0; v < 1 << 20; v++) {
		unsigned int i = hist_index(v);

		/* each value is in the bucket of the one before it, or in the next one */
		unit_case("%llu", (unsigned long long)v);
		unit_check(i == last || i == last + 1);
		last = i;
	}
	assert_int_equal(hist_index(HIST_PARTS - 1), HIST_PARTS - 1);
	assert_int_equal(hist_index(HIST_PARTS), HIST_PARTS);
	assert_int_equal(hist_index(UINT64_MAX), HIST_BUCKETS - 1);
}

static void test_percentiles(void **state)
{
	(void)state;
	clear();
	for (uint64_t v = 1; v <= 100000; v++)
		hist_add(&h, v);
	near(hist_percentile(&h, 1, 2), 50000);
	near(hist_percentile(&h, 99, 100), 99000);
	near(hist_percentile(&h, 999, 1000), 99900);
	assert_int_equal(hist_percentile(&h, 1, 1), 100000);
	assert_int_equal(hist_mean(&h), 50001);
	assert_int_equal(h.min, 1);
	assert_int_equal(h.max, 100000);
}

static void test_small(void **state)
{
	(void)state;
	clear();
	assert_int_equal(hist_percentile(&h, 99, 100), 0);
	assert_int_equal(hist_mean(&h), 0);
	hist_add(&h, 12345678);
	/* of one value everything is known */
	assert_int_equal(hist_percentile(&h, 1, 2), 12345678);
	assert_int_equal(hist_percentile(&h, 999, 1000), 12345678);
	assert_int_equal(hist_mean(&h), 12345678);
	clear();
	/* one outlier of 100: beyond 99 %, within 99.9 % */
	for (int i = 0; i < 99; i++)
		hist_add(&h, 10);
	hist_add(&h, 5000000000ULL);
	assert_int_equal(hist_percentile(&h, 1, 2), 10);
	assert_int_equal(hist_percentile(&h, 99, 100), 10);
	near(hist_percentile(&h, 999, 1000), 5000000000ULL);
}

static void test_ends(void **state)
{
	(void)state;
	clear();
	hist_add(&h, 0);
	hist_add(&h, UINT64_MAX);
	assert_int_equal(hist_percentile(&h, 1, 2), 0);
	assert_true(hist_percentile(&h, 99, 100) > UINT64_MAX - UINT64_MAX / HIST_PARTS);
}

static void test_merge(void **state)
{
	(void)state;
	clear();
	hist_merge(&h, &other);
	assert_int_equal(h.count, 0);
	for (uint64_t v = 1; v <= 1000; v++)
		hist_add(v % 3 ? &h : &other, v);
	hist_merge(&h, &other);
	assert_int_equal(h.count, 1000);
	assert_int_equal(h.min, 1);
	assert_int_equal(h.max, 1000);
	near(hist_percentile(&h, 1, 2), 500);
	near(hist_mean(&h), 500);
	/* into an empty one */
	memset(&other, 0, sizeof(other));
	hist_merge(&other, &h);
	assert_int_equal(other.min, 1);
	assert_int_equal(other.count, 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_index), cmocka_unit_test(test_percentiles),
		cmocka_unit_test(test_small), cmocka_unit_test(test_ends),
		cmocka_unit_test(test_merge),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
