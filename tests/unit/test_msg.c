/* SPDX-License-Identifier: MIT */
/*
 * Texts of failures.
 */
#include "unit.h"

#include <errno.h>
#include <string.h>

#include "msg.h"

static void test_reason(void **state)
{
	struct fail f = { 0 };

	(void)state;
	assert_int_equal(fail_errno(&f, ENOENT, "cannot open %s", "/x"), -ENOENT);
	assert_int_equal(f.err, ENOENT);
	assert_string_equal(f.text, "cannot open /x: No such file or directory");
}

/* The last character that fits, and the first that does not. */
static void test_length(void **state)
{
	char text[FAIL_TEXT + 1];
	struct fail f = { 0 };

	(void)state;
	memset(text, 'x', sizeof(text));
	text[FAIL_TEXT - 1] = '\0';
	fail_set(&f, EIO, "%s", text);
	assert_string_equal(f.text, text);
	text[FAIL_TEXT - 1] = 'x';
	text[FAIL_TEXT] = '\0';
	fail_set(&f, EIO, "%s", text);
	assert_int_equal(strlen(f.text), FAIL_TEXT - 1);
	assert_non_null(strstr(f.text, "x...x"));
}

static void test_long_path(void **state)
{
	static const char reason[] = "/end: No space left on device";
	char path[4096];
	struct fail f = { 0 };

	(void)state;
	memset(path, 'd', sizeof(path));
	strcpy(path + sizeof(path) - 5, "/end");
	fail_errno(&f, ENOSPC, "cannot make %s", path);
	assert_true(strlen(f.text) < FAIL_TEXT);
	assert_memory_equal(f.text, "cannot make ddd", 15);
	assert_string_equal(f.text + strlen(f.text) - strlen(reason), reason);
	fail_set(&f, EBUSY, "%s is attached already", path);
	assert_string_equal(f.text + strlen(f.text) - 20, "/end is attached already" + 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reason),
		cmocka_unit_test(test_length),
		cmocka_unit_test(test_long_path),
	};

	return cmocka_run_group_tests_name("msg", tests, NULL, NULL);
}
