/* SPDX-License-Identifier: MIT */
/*
 * Lists of CPUs and texts of affinities: what is none is refused whole.
 */
#include "unit.h"

#include <errno.h>
#include <string.h>

#include "dev/affinity.h"
#include "tmpdir.h"
#include "util/cpulist.h"

/* ---- lists ------------------------------------------------------------------------------ */

static void test_lists(void **state)
{
	static const struct {
		const char *text, *back;
		int count;
	} good[] = {
		{ "0", "0", 1 },	 { "0-3,5", "0-3,5", 5 }, { "5,0-3", "0-3,5", 5 },
		{ "0,1", "0-1", 2 },	 { "1,1,1", "1", 1 },	  { "2-2", "2", 1 },
		{ "0-4,2-6", "0-6", 7 }, { "1023", "1023", 1 },	  { "0-1023", "0-1023", 1024 },
		{ "007", "7", 1 },
	};
	char buf[CPULIST_TEXT];
	cpu_set_t set;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(good); i++) {
		unit_case("'%s'", good[i].text);
		unit_check(cpulist_parse(good[i].text, &set) == 0);
		unit_check(CPU_COUNT(&set) == good[i].count);
		unit_check(!strcmp(cpulist_format(&set, buf), good[i].back));
	}
}

static void test_no_lists(void **state)
{
	static const struct {
		const char *text;
		int err;
	} bad[] = {
		{ "", EINVAL },		  { " 0", EINVAL },
		{ "0 ", EINVAL },	  { "-1", EINVAL },
		{ "+1", EINVAL },	  { "1-", EINVAL },
		{ "-", EINVAL },	  { ",", EINVAL },
		{ "1,", EINVAL },	  { ",1", EINVAL },
		{ "1,,2", EINVAL },	  { "3-1", EINVAL },
		{ "1-2-3", EINVAL },	  { "0x1", EINVAL },
		{ "a", EINVAL },	  { "1;2", EINVAL },
		{ "all", EINVAL },	  { "0-3:2", EINVAL },
		{ "1024", ERANGE },	  { "0-1024", ERANGE },
		{ "4294967296", ERANGE }, { "99999999999999999999", ERANGE },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		cpu_set_t set, before;

		CPU_ZERO(&set);
		CPU_SET(7, &set);
		before = set;
		unit_case("'%s'", bad[i].text);
		unit_check(cpulist_parse(bad[i].text, &set) == -bad[i].err);
		unit_check(CPU_EQUAL(&set, &before));
	}
}

/* Every second CPU is the longest list there is. */
static void test_longest(void **state)
{
	char buf[CPULIST_TEXT];
	cpu_set_t set, back;

	(void)state;
	CPU_ZERO(&set);
	assert_string_equal(cpulist_format(&set, buf), "");
	for (int c = 0; c < CPU_SETSIZE; c += 2)
		CPU_SET(c, &set);
	assert_true(strlen(cpulist_format(&set, buf)) < CPULIST_TEXT - 1);
	assert_int_equal(cpulist_parse(buf, &back), 0);
	assert_true(CPU_EQUAL(&set, &back));
}

/* ---- affinities ------------------------------------------------------------------------- */

static void test_apply(void **state)
{
	char buf[CFG_AFFINITY_TEXT];
	cpu_set_t sets[4] = { 0 };

	(void)state;
	CPU_SET(9, &sets[2]);
	/* queue 7 is not granted: left out; queue 2 is not named: stays */
	aff_apply("3=1:0=0,2-3:7=5", 4, sets);
	assert_int_equal(aff_format(sets, 4, buf), 0);
	assert_string_equal(buf, "0=0,2-3:2=9:3=1");
	aff_apply(NULL, 4, sets);
	aff_apply("", 4, sets);
	assert_int_equal(aff_format(sets, 4, buf), 0);
	assert_string_equal(buf, "0=0,2-3:2=9:3=1");
	CPU_ZERO(&sets[0]);
	assert_int_equal(aff_format(sets, 1, buf), 0);
	assert_string_equal(buf, "");
}

static void test_check(void **state)
{
	static const struct {
		const char *text;
		unsigned int queues;
		int err;
		const char *says;
	} cases[] = {
		{ "0=0", 1, 0, NULL },
		{ "0=0:1=1", 2, 0, NULL },
		{ "1=1,40:0=0", 2, 0, NULL }, /* one of them is online */
		{ "", 2, FAIL_USAGE, "not QUEUE=CPUS" },
		{ "0", 2, FAIL_USAGE, "'0' is not QUEUE=CPUS" },
		{ "=0", 2, FAIL_USAGE, "not QUEUE=CPUS" },
		{ "0=", 2, FAIL_USAGE, "not QUEUE=CPUS" },
		{ "0=0:", 2, FAIL_USAGE, "not QUEUE=CPUS" },
		{ ":0=0", 2, FAIL_USAGE, "not QUEUE=CPUS" },
		{ "0=0::1=1", 2, FAIL_USAGE, "not QUEUE=CPUS" },
		{ "0=0;1=1", 2, FAIL_USAGE, "not QUEUE=CPUS" },
		{ "0=0 1=1", 2, FAIL_USAGE, "not QUEUE=CPUS" },
		{ "-1=0", 2, FAIL_USAGE, "not QUEUE=CPUS" },
		{ "0=0:x=1", 2, FAIL_USAGE, "'x=1'" },
		{ "2=0", 2, FAIL_USAGE, "queue 2: there are 2, from 0 to 1" },
		{ "0=0:0=1", 2, FAIL_USAGE, "queue 0 is there twice" },
		{ "4096=0", 4096, FAIL_USAGE, "queues go up to 4095" },
		{ "0=1024", 2, FAIL_USAGE, "CPUs up to 1023" },
		{ "0=0:1=8-9", 2, EINVAL, "queue 1: none of the CPUs 8-9 is online (0-1 are)" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct fail f = { 0 };

		unit_case("'%s' with %u queues", cases[i].text, cases[i].queues);
		unit_check(aff_check(cases[i].text, cases[i].queues, &f) == -cases[i].err);
		unit_check(!cases[i].says || strstr(f.text, cases[i].says));
		unit_check(!cases[i].err || f.err == cases[i].err);
	}
}

static void test_too_long(void **state)
{
	char text[CFG_AFFINITY_TEXT + 1], buf[CFG_AFFINITY_TEXT];
	struct fail f = { 0 };
	cpu_set_t sets[4] = { 0 };

	(void)state;
	memset(text, '0', sizeof(text) - 1);
	text[1] = '=';
	text[CFG_AFFINITY_TEXT] = '\0';
	assert_int_equal(aff_check(text, 2, &f), -FAIL_USAGE);
	for (int q = 0; q < 4; q++)
		for (int c = 0; c < CPU_SETSIZE; c += 2)
			CPU_SET(c, &sets[q]);
	assert_int_equal(aff_format(sets, 4, buf), -E2BIG);
	assert_int_equal(aff_format(sets, 1, buf), 0);
}

/* A machine with the CPUs 0 and 1. */
static int setup(void **state)
{
	static char root[64];
	int fd;

	tmpdir_make(root);
	fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || mkdirat(fd, "sys", 0755) < 0 || mkdirat(fd, "sys/devices", 0755) < 0 ||
	    mkdirat(fd, "sys/devices/system", 0755) < 0 ||
	    mkdirat(fd, "sys/devices/system/cpu", 0755) < 0)
		return -1;
	tmpdir_put(fd, "sys/devices/system/cpu/online", "0-1\n", 4);
	close(fd);
	setenv("UBLKCTL_SYSROOT", root, 1);
	*state = root;
	return 0;
}

static int teardown(void **state)
{
	unsetenv("UBLKCTL_SYSROOT");
	tmpdir_remove(*state);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_no_lists),
		cmocka_unit_test(test_longest),
		cmocka_unit_test(test_apply),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test_setup_teardown(test_check, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
