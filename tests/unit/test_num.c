/* SPDX-License-Identifier: MIT */
/*
 * Numbers and sizes.
 */
#include "unit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "util/num.h"

#define UNTOUCHED 0xdeadbeefcafef00dULL
#define U64(x) UINT64_C(x)

static void size_is(const char *text, uint64_t want)
{
	uint64_t got = UNTOUCHED;
	int r = num_parse_size(text, 0, UINT64_MAX, &got);

	if (r || got != want)
		fail_msg("'%s': result %d, %" PRIu64 " instead of %" PRIu64, text, r, got, want);
}

static void size_fails(const char *text, int err)
{
	uint64_t got = UNTOUCHED;
	int r = num_parse_size(text, 0, UINT64_MAX, &got);

	if (r != err || got != UNTOUCHED)
		fail_msg("'%s': result %d instead of %d, value %#" PRIx64, text, r, err, got);
}

static void test_size_suffixes(void **state)
{
	static const char letters[] = "KMGTPE";
	uint64_t two = 1, ten = 1;
	char text[16];

	(void)state;
	for (const char *l = letters; *l; l++) {
		two *= 1024;
		ten *= 1000;
		snprintf(text, sizeof(text), "1%c", *l);
		size_is(text, two);
		snprintf(text, sizeof(text), "1%ciB", *l);
		size_is(text, two);
		snprintf(text, sizeof(text), "1%cB", *l);
		size_is(text, ten);
		snprintf(text, sizeof(text), "3%c", *l);
		size_is(text, 3 * two);
		snprintf(text, sizeof(text), "0%cB", *l);
		size_is(text, 0);
	}
}

static void test_size_values(void **state)
{
	(void)state;
	size_is("0", 0);
	size_is("512", 512);
	size_is("512B", 512);
	size_is("4K", 4096);
	size_is("250G", U64(268435456000));
	size_is("250GiB", U64(268435456000));
	size_is("250GB", U64(250000000000));
	size_is("15E", U64(15) << 60);
	size_is("15EiB", U64(15) << 60);
	size_is("18EB", U64(18000000000000000000));
	/* decimal whatever stands in front */
	size_is("010", 10);
}

static void test_size_edges(void **state)
{
	(void)state;
	size_is("18446744073709551615", UINT64_MAX);
	size_is("18446744073709551615B", UINT64_MAX);
	size_fails("18446744073709551616", -ERANGE);
	size_fails("18446744073709551616B", -ERANGE);
	size_fails("184467440737095516150", -ERANGE);
	size_fails("99999999999999999999999999", -ERANGE);
	size_fails("16E", -ERANGE);
	size_fails("16EiB", -ERANGE);
	size_fails("19EB", -ERANGE);
	size_is("18014398509481983K", U64(18014398509481983) << 10);
	size_fails("18014398509481984K", -ERANGE);
	size_is("16383P", U64(16383) << 50);
	size_fails("16384P", -ERANGE);
}

static void test_size_refused(void **state)
{
	static const char *const wrong[] = {
		"",	" ",	    "-1",	  "+1",	   " 1",    "1 ",  "1k",  "1m",
		"1.5G", "1,5G",	    "0x10",	  "K",	   "B",	    "iB",  "1 K", "1Ki",
		"1KIB", "1kB",	    "1KiBs",	  "1BB",   "1KK",   "1iB", "1b",  "1Z",
		"1\n",	"\t1",	    "1e3",	  "1_000", "-0",    "--1", "1K ", "1G-",
		"ten",	"\xd9\xa1", "1\xc2\xa0K", "0b1",   "1EiB1", "1B ", "K1",
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(wrong); i++)
		size_fails(wrong[i], -EINVAL);
}

static void test_size_range(void **state)
{
	uint64_t v = UNTOUCHED;

	(void)state;
	assert_int_equal(num_parse_size("511", 512, 1 << 20, &v), -ERANGE);
	assert_int_equal(num_parse_size("1025K", 512, 1 << 20, &v), -ERANGE);
	assert_int_equal(num_parse_size("1048577", 512, 1 << 20, &v), -ERANGE);
	assert_true(v == UNTOUCHED);
	assert_int_equal(num_parse_size("512", 512, 1 << 20, &v), 0);
	assert_true(v == 512);
	assert_int_equal(num_parse_size("1M", 512, 1 << 20, &v), 0);
	assert_true(v == 1 << 20);
}

static void test_uint(void **state)
{
	static const char *const wrong[] = {
		"",   "-1",  "+1", " 1",  "1 ", "1a",  "a1", "0x10", "1K",
		"1B", "1.0", "-0", "1e1", "\n", "1\n", "--", "1,",   "\xb2",
	};
	uint64_t v = UNTOUCHED;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(wrong); i++) {
		int r = num_parse_uint(wrong[i], 0, UINT64_MAX, &v);

		if (r != -EINVAL || v != UNTOUCHED)
			fail_msg("'%s': result %d, value %" PRIu64, wrong[i], r, v);
	}
	assert_int_equal(num_parse_uint("18446744073709551616", 0, UINT64_MAX, &v), -ERANGE);
	assert_int_equal(num_parse_uint("0", 1, 4096, &v), -ERANGE);
	assert_int_equal(num_parse_uint("4097", 1, 4096, &v), -ERANGE);
	assert_true(v == UNTOUCHED);
	assert_int_equal(num_parse_uint("18446744073709551615", 0, UINT64_MAX, &v), 0);
	assert_true(v == UINT64_MAX);
	assert_int_equal(num_parse_uint("1", 1, 4096, &v), 0);
	assert_true(v == 1);
	assert_int_equal(num_parse_uint("4096", 1, 4096, &v), 0);
	assert_true(v == 4096);
	assert_int_equal(num_parse_uint("007", 0, 9, &v), 0);
	assert_true(v == 7);
}

static void test_format(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{ 0, "0B" },
		{ 1, "1B" },
		{ 1023, "1023B" },
		{ 1024, "1K" },
		{ 1536, "1.5K" },
		{ 1024 + 102, "1K" }, /* 1.0996: down, not 1.1 */
		{ 1024 + 103, "1.1K" },
		{ 2047, "1.9K" },
		{ 1048575, "1023.9K" }, /* not 1M: it is less */
		{ 1 << 20, "1M" },
		{ U64(268435456000), "250G" },
		{ U64(1) << 40, "1T" },
		{ (U64(1) << 50) - 1, "1023.9T" },
		{ U64(1) << 50, "1P" },
		{ U64(1) << 60, "1E" },
		{ U64(3) << 59, "1.5E" },
		{ INT64_MAX, "7.9E" },
		{ U64(1) << 63, "8E" },
		{ UINT64_MAX, "15.9E" },
	};
	char buf[NUM_TEXT];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		assert_ptr_equal(num_format_size(cases[i].bytes, buf), buf);
		assert_string_equal(buf, cases[i].text);
	}
}

/* Tenths of a unit that a text such as "1.5G" stands for, times the unit: exact in 128 bits. */
static unsigned __int128 shown_times_ten(const char *text, uint64_t *ret_unit)
{
	static const char letters[] = "BKMGTPE";
	char *end;
	unsigned __int128 tenths = strtoull(text, &end, 10);

	tenths *= 10;
	if (*end == '.') {
		unit_check(end[1] > '0' && end[1] <= '9');
		tenths += (unsigned int)(end[1] - '0');
		end += 2;
	}
	unit_check(*end && strchr(letters, *end) && !end[1]);
	*ret_unit = U64(1) << 10 * (strchr(letters, *end) - letters);
	return tenths * *ret_unit;
}

/* Never more than it is, never a tenth of the unit or more below it, no four digits but B. */
static void check_shown(uint64_t bytes)
{
	char buf[NUM_TEXT];
	uint64_t unit;
	unsigned __int128 ten = (unsigned __int128)bytes * 10, shown;

	num_format_size(bytes, buf);
	unit_case("%" PRIu64 " shown as %s", bytes, buf);
	shown = shown_times_ten(buf, &unit);
	unit_check(shown <= ten);
	unit_check(ten - shown < unit);
	unit_check(shown < (unsigned __int128)10240 * unit);
	unit_check(unit == 1 || shown >= (unsigned __int128)10 * unit);
}

static void test_format_never_larger(void **state)
{
	uint64_t x = U64(88172645463325252);

	(void)state;
	for (unsigned int bit = 0; bit < 64; bit++)
		for (int d = -2; d <= 2; d++)
			check_shown((U64(1) << bit) + (uint64_t)(int64_t)d);
	for (int i = 0; i < 200000; i++) {
		/* xorshift64, and all magnitudes alike */
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		check_shown(x >> (x >> 58));
	}
}

static void test_powers(void **state)
{
	(void)state;
	assert_false(num_is_pow2(0));
	assert_false(num_is_pow2(3));
	assert_false(num_is_pow2(UINT64_MAX));
	assert_true(num_is_pow2(1));
	assert_true(num_is_pow2(U64(1) << 63));
	assert_int_equal(num_log2(1), 0);
	assert_int_equal(num_log2(4096), 12);
	assert_int_equal(num_log2(U64(1) << 63), 63);
	assert_true(num_round_up(0, 4096) == 0);
	assert_true(num_round_up(1, 4096) == 4096);
	assert_true(num_round_up(4096, 4096) == 4096);
	assert_true(num_round_up(4097, 4096) == 8192);
	assert_int_equal(num_pow2_ceil(1), 1);
	assert_int_equal(num_pow2_ceil(2), 2);
	assert_int_equal(num_pow2_ceil(3), 4);
	assert_int_equal(num_pow2_ceil(4097), 8192);
	assert_true(num_pow2_ceil(1U << 31) == 1U << 31);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_size_suffixes), cmocka_unit_test(test_size_values),
		cmocka_unit_test(test_size_edges),    cmocka_unit_test(test_size_refused),
		cmocka_unit_test(test_size_range),    cmocka_unit_test(test_uint),
		cmocka_unit_test(test_format),	      cmocka_unit_test(test_format_never_larger),
		cmocka_unit_test(test_powers),
	};

	return cmocka_run_group_tests_name("num", tests, NULL, NULL);
}
