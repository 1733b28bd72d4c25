/* SPDX-License-Identifier: MIT */
/*
 * Option tables: parsing, ranges, what is refused and with which words.
 */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "opt.h"

struct vals {
	bool batch, browse;
	unsigned int depth, four;
	int id;
	uint64_t size, block;
	const char *file, *type;
};

static const char *word_at(unsigned int n)
{
	static const char *const words[] = { "null", "file", "nullish" };

	return n < COUNT_OF(words) ? words[n] : NULL;
}

#define AT(member) offsetof(struct vals, member)

static const struct opt table[] = {
	{ .name = "batch", .letter = 'b', .type = OPT_FLAG, .offset = AT(batch) },
	{ .name = "browse", .type = OPT_FLAG, .offset = AT(browse) },
	{ .name = "depth",
	  .letter = 'd',
	  .type = OPT_UINT,
	  .arg = "N",
	  .offset = AT(depth),
	  .min = 1,
	  .max = 4096 },
	{ .name = "four", .type = OPT_UINT, .arg = "N", .offset = AT(four), .min = 4, .max = 64, .pow2 = true },
	{ .name = "id", .letter = 'n', .type = OPT_ID, .arg = "ID", .offset = AT(id) },
	{ .name = "size",
	  .letter = 's',
	  .type = OPT_SIZE,
	  .arg = "SIZE",
	  .offset = AT(size),
	  .min = 512,
	  .max = INT64_MAX },
	{ .name = "size-of-block",
	  .type = OPT_SIZE,
	  .arg = "SIZE",
	  .offset = AT(block),
	  .min = 512,
	  .max = 4096,
	  .pow2 = true },
	{ .name = "file", .letter = 'f', .type = OPT_TEXT, .arg = "FILE", .offset = AT(file) },
	{ .name = "type", .letter = 't', .type = OPT_WORD, .arg = "TYPE", .offset = AT(type), .word = word_at },
	OPT_END
};

/* One command line, taken apart at blanks; "%" stands for an empty word. */
struct line {
	char text[256];
	char *argv[24];
	int argc, first, result;
	struct vals v;
	struct opt_seen seen;
	struct fail f;
};

static void parse(struct line *l, const char *words)
{
	static const struct vals fresh = { .id = -1, .depth = 77, .size = 99 };
	char *save, *w;

	memset(l, 0, sizeof(*l));
	l->v = fresh;
	l->first = -5;
	snprintf(l->text, sizeof(l->text), "cmd %s", words);
	for (w = strtok_r(l->text, " ", &save); w; w = strtok_r(NULL, " ", &save))
		l->argv[l->argc++] = strcmp(w, "%") ? w : w + 1;
	l->result = opt_parse(table, l->argc, l->argv, &l->v, &l->seen, &l->first, &l->f);
}

static void accepts(struct line *l, const char *words)
{
	parse(l, words);
	if (l->result)
		fail_msg("'%s': result %d (%s)", words, l->result, l->f.text);
}

/* Refused as wrong usage; the text names part. */
static void refuses(const char *words, const char *part)
{
	struct line l;

	parse(&l, words);
	if (l.result != -FAIL_USAGE || l.f.err != FAIL_USAGE)
		fail_msg("'%s': result %d (%s)", words, l.result, l.f.text);
	if (!strstr(l.f.text, part))
		fail_msg("'%s': '%s' is not in '%s'", words, part, l.f.text);
	/* outputs stay as they were */
	if (l.first != -5 || l.seen.bits)
		fail_msg("'%s': outputs were touched", words);
}

static void test_every_type(void **state)
{
	struct line l;

	(void)state;
	accepts(&l, "--batch --depth 5 --four 16 --id 3 --size 4K --size-of-block 1KiB "
		    "--file x --type file");
	assert_true(l.v.batch);
	assert_false(l.v.browse);
	assert_int_equal(l.v.depth, 5);
	assert_int_equal(l.v.four, 16);
	assert_int_equal(l.v.id, 3);
	assert_true(l.v.size == 4096);
	assert_true(l.v.block == 1024);
	assert_string_equal(l.v.file, "x");
	assert_string_equal(l.v.type, "file");
	assert_int_equal(l.first, l.argc);

	accepts(&l, "-b -d5 -n 0 -s1M -fy -t null");
	assert_true(l.v.batch);
	assert_int_equal(l.v.depth, 5);
	assert_int_equal(l.v.id, 0);
	assert_true(l.v.size == 1 << 20);
	assert_string_equal(l.v.file, "y");
	assert_ptr_equal(l.v.type, word_at(0)); /* the table's word, not argv's */

	accepts(&l, "--depth=6 --file=a=b -bd7");
	assert_int_equal(l.v.depth, 7);
	assert_string_equal(l.v.file, "a=b");
	assert_true(l.v.batch);
}

static void test_defaults_stay(void **state)
{
	struct line l;

	(void)state;
	accepts(&l, "");
	assert_int_equal(l.v.depth, 77);
	assert_int_equal(l.v.id, -1);
	assert_true(l.v.size == 99);
	assert_null(l.v.file);
	assert_int_equal(l.first, 1);
	assert_true(l.seen.bits == 0);
}

static void test_ranges(void **state)
{
	struct line l;

	(void)state;
	accepts(&l, "-d 1");
	assert_int_equal(l.v.depth, 1);
	accepts(&l, "-d 4096");
	assert_int_equal(l.v.depth, 4096);
	refuses("-d 0", "--depth: '0' is not in the range 1 to 4096");
	refuses("-d 4097", "'4097'");
	refuses("-d 4294967297", "range"); /* 2^32 + 1 is not 1 */
	refuses("-d 18446744073709551617", "range");
	refuses("-d -1", "--depth: '-1' is not a number");
	refuses("-d abc", "is not a number");
	refuses("-d 1K", "is not a number");
	refuses("-d %", "--depth: '' is not a number");
	accepts(&l, "-s 512");
	refuses("-s 511", "--size: '511' is not in the range");
	refuses("-s 16EiB", "range");
	refuses("-s 8EiB", "range");
	refuses("-s 1.5G", "--size: '1.5G' is not a size");
	refuses("-s %", "is not a size");
	accepts(&l, "-n 1048575");
	assert_int_equal(l.v.id, 1048575);
	refuses("-n 1048576", "'1048576' is not a device id");
	refuses("-n -1", "'-1' is not a device id");
	refuses("-n 4294967296", "is not a device id");
	refuses("-n %", "'' is not a device id");
}

static void test_pow2(void **state)
{
	struct line l;

	(void)state;
	accepts(&l, "--four 4 --size-of-block 4K");
	assert_int_equal(l.v.four, 4);
	assert_true(l.v.block == 4096);
	accepts(&l, "--four 64 --size-of-block 512");
	refuses("--four 6", "--four: '6' is not a power of two from 4 to 64");
	refuses("--four 2", "power of two from 4 to 64");
	refuses("--four 128", "power of two from 4 to 64");
	refuses("--four x", "'x' is not a power of two");
	refuses("--size-of-block 513", "'513' is not a power of two from 512 to 4096");
	refuses("--size-of-block 1KB", "'1KB'");
	refuses("--size-of-block 8K", "'8K'");
	refuses("--size-of-block 0", "'0'");
}

static void test_missing_argument(void **state)
{
	(void)state;
	refuses("-d", "-d: needs an argument");
	refuses("-bd", "-d: needs an argument");
	refuses("--depth", "--depth: needs an argument");
	refuses("x --file", "--file: needs an argument");
}

static void test_unknown(void **state)
{
	(void)state;
	refuses("-x", "unknown option '-x'");
	refuses("-bx", "unknown option '-x'");
	refuses("--xyz", "'--xyz'");
	refuses("--xyz=3", "'--xyz=3'");
	refuses("op --depths 3", "'--depths'");
	refuses("-?", "unknown option '-?'");
	refuses("-:", "unknown option '-:'");
	refuses("--Depth 3", "'--Depth'");
}

static void test_prefix(void **state)
{
	struct line l;

	(void)state;
	/* a word that is short for one option today may be short for another one tomorrow */
	refuses("--dep 9", "unknown option '--dep' (--depth is not to be abbreviated)");
	refuses("--dep=9", "unknown option '--dep=9' (--depth is not to be abbreviated)");
	refuses("--ba", "unknown option '--ba' (--batch is not to be abbreviated)");
	/* a whole name is no start of a longer one */
	accepts(&l, "--size 1K");
	assert_true(l.v.size == 1024);
	assert_true(l.v.block == 0);
	refuses("--size- 1K", "unknown option '--size-'");
	refuses("--b", "unknown option '--b'");
	refuses("--f x", "unknown option '--f'");
	refuses("--si 512", "unknown option '--si'");
	/* the argument of an option is not looked at */
	accepts(&l, "--depth 9 --size 4096");
	assert_int_equal(l.v.depth, 9);
}

static void test_flag_with_argument(void **state)
{
	(void)state;
	refuses("--batch=yes", "--batch: takes no argument");
	refuses("--batch=", "--batch: takes no argument");
	refuses("--browse=1", "--browse: takes no argument");
}

static void test_operands(void **state)
{
	struct line l;

	(void)state;
	accepts(&l, "one -b two --depth 3 three");
	assert_true(l.v.batch);
	assert_int_equal(l.v.depth, 3);
	assert_int_equal(l.first, 4);
	assert_int_equal(l.argc, 7);
	assert_string_equal(l.argv[4], "one");
	assert_string_equal(l.argv[5], "two");
	assert_string_equal(l.argv[6], "three");

	accepts(&l, "a -- -b --depth");
	assert_false(l.v.batch);
	assert_int_equal(l.argc - l.first, 3);
	assert_string_equal(l.argv[l.first], "a");
	assert_string_equal(l.argv[l.first + 1], "-b");
	assert_string_equal(l.argv[l.first + 2], "--depth");

	accepts(&l, "--");
	assert_int_equal(l.first, l.argc);

	accepts(&l, "- %"); /* one dash alone, and nothing, are operands */
	assert_int_equal(l.argc - l.first, 2);
	assert_string_equal(l.argv[l.first], "-");
	assert_string_equal(l.argv[l.first + 1], "");

	accepts(&l, "-f -- -b"); /* "--" as the argument of -f */
	assert_string_equal(l.v.file, "--");
	assert_true(l.v.batch);
}

/* getopt_long(3): with POSIXLY_CORRECT the first operand ends the options; none is lost. */
static void test_operands_posixly(void **state)
{
	struct line l;

	(void)state;
	setenv("POSIXLY_CORRECT", "1", 1);
	parse(&l, "-b one -d 3 two");
	unsetenv("POSIXLY_CORRECT");
	assert_int_equal(l.result, 0);
	assert_true(l.v.batch);
	assert_int_equal(l.v.depth, 77);
	assert_int_equal(l.argc - l.first, 4);
	assert_string_equal(l.argv[l.first], "one");
	assert_string_equal(l.argv[l.first + 1], "-d");
}

static void test_repeated(void **state)
{
	struct line l;

	(void)state;
	accepts(&l, "-d 3 --depth 4 -d5 -b -b --file x --file y");
	assert_int_equal(l.v.depth, 5); /* the last one counts */
	assert_string_equal(l.v.file, "y");
	assert_true(l.v.batch);
	/* and a wrong one is wrong wherever it stands */
	refuses("-d x -d 5", "'x'");
}

static void test_text_and_words(void **state)
{
	struct line l;

	(void)state;
	refuses("--file %", "--file: empty");
	refuses("--file=", "--file: empty");
	accepts(&l, "--file -b");
	assert_string_equal(l.v.file, "-b");
	assert_false(l.v.batch);
	accepts(&l, "-t nullish");
	assert_string_equal(l.v.type, "nullish");
	refuses("-t nul", "--type: 'nul' is none of: null, file, nullish");
	refuses("-t Null", "none of: null, file");
	refuses("-t %", "'' is none of");
}

static void test_seen(void **state)
{
	struct line l;

	(void)state;
	accepts(&l, "-b -d 77 --size-of-block 512");
	assert_true(opt_was_seen(table, &l.seen, "batch"));
	assert_true(opt_was_seen(table, &l.seen, "depth")); /* also with its default */
	assert_true(opt_was_seen(table, &l.seen, "size-of-block"));
	assert_false(opt_was_seen(table, &l.seen, "size"));
	assert_false(opt_was_seen(table, &l.seen, "type"));
	assert_false(opt_was_seen(table, &l.seen, "browse"));
	assert_false(opt_was_seen(table, &l.seen, "no-such"));
	accepts(&l, "-t null");
	assert_true(opt_was_seen(table, &l.seen, "type"));
	assert_false(opt_was_seen(table, &l.seen, "batch"));
}

/* A table of the largest size works to its last entry; a larger one is refused. */
static void test_table_size(void **state)
{
	struct opt big[OPT_MAX + 2];
	static char names[OPT_MAX + 1][8];
	bool on[OPT_MAX + 1] = { false };
	char last[12], *argv[] = { "cmd", last, NULL };
	struct opt_seen seen = { 0 };
	struct fail f = { 0 };
	int first;

	(void)state;
	memset(big, 0, sizeof(big));
	for (unsigned int i = 0; i <= OPT_MAX; i++) {
		snprintf(names[i], sizeof(names[i]), "opt%02u", i);
		big[i] = (struct opt){ .name = names[i], .type = OPT_FLAG, .offset = i };
	}
	assert_int_equal(opt_parse(big, 1, argv, on, &seen, &first, &f), -EINVAL);
	big[OPT_MAX].name = NULL;
	snprintf(last, sizeof(last), "--opt%02u", OPT_MAX - 1);
	assert_int_equal(opt_parse(big, 2, argv, on, &seen, &first, &f), 0);
	assert_true(on[OPT_MAX - 1]);
	assert_false(on[0]);
	assert_true(opt_was_seen(big, &seen, names[OPT_MAX - 1]));
	assert_false(opt_was_seen(big, &seen, names[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_type),
		cmocka_unit_test(test_defaults_stay),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_pow2),
		cmocka_unit_test(test_missing_argument),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_prefix),
		cmocka_unit_test(test_flag_with_argument),
		cmocka_unit_test(test_operands),
		cmocka_unit_test(test_operands_posixly),
		cmocka_unit_test(test_repeated),
		cmocka_unit_test(test_text_and_words),
		cmocka_unit_test(test_seen),
		cmocka_unit_test(test_table_size),
	};

	return cmocka_run_group_tests_name("opt", tests, NULL, NULL);
}
