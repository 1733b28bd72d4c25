/* SPDX-License-Identifier: MIT */
/*
 * Queue attributes: which lists are taken, and what is written to a disk's queue.
 */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dev/qattr.h"
#include "util/fs.h"

static char dir[] = "/tmp/test_qattr.XXXXXX";

static void put(const char *name, const char *text)
{
	char path[FS_PATH_MAX];
	FILE *f = fopen(fs_path(path, "/sys/block/ublkb3/queue/%s", name), "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void holds(const char *name, const char *want)
{
	char path[FS_PATH_MAX], text[64];

	assert_int_equal(fs_read_text(fs_path(path, "/sys/block/ublkb3/queue/%s", name), text,
				      sizeof(text)),
			 0);
	assert_string_equal(text, want);
}

static void refused(const char *list)
{
	struct fail f;

	if (qattr_check(list, &f) != -FAIL_USAGE || strncmp(f.text, "--queue-attr: ", 14))
		fail_msg("'%s' was not refused", list);
}

static void test_check(void **state)
{
	struct fail f;
	char text[400];

	(void)state;
	assert_int_equal(qattr_check("nomerges=2", &f), 0);
	assert_int_equal(
		qattr_check("nomerges=0,iostats=0,read_ahead_kb=128,wbt_lat_usec=0,rq_affinity=2", &f),
		0);
	refused("");
	refused("nomerges");
	refused("nomerges=");
	refused("nomerges=3");
	refused("nomerges=-1");
	refused("nomerges= 1");
	refused("nomerges=1x");
	refused("nomerges=1,");
	refused(",nomerges=1");
	refused("nomerges=1,nomerges=1");
	refused("nomerge=1");
	refused("scheduler=none");
	refused("../nomerges=1");
	refused("=1");
	refused("iostats=1 nomerges=1");
	refused("read_ahead_kb=99999999999999999999999999");
	memset(text, '0', sizeof(text));
	memcpy(text, "iostats=", 8);
	text[sizeof(text) - 1] = '\0';
	refused(text);
}

static char told[256];

static void warn(void *arg, const char *name, const char *value, int err)
{
	(void)arg;
	snprintf(told + strlen(told), sizeof(told) - strlen(told), "%s=%s: %d;", name, value, err);
}

static void test_apply(void **state)
{
	char want[64];

	(void)state;
	put("scheduler", "");
	put("nomerges", "");
	told[0] = '\0';
	qattr_apply(3, "none", "nomerges=2", warn, NULL);
	holds("scheduler", "none");
	holds("nomerges", "2");
	assert_string_equal(told, "");
	/* neither is a wish */
	qattr_apply(3, QATTR_KERNEL, NULL, warn, NULL);
	qattr_apply(3, NULL, "", warn, NULL);
	holds("scheduler", "none");
	assert_string_equal(told, "");
	/* all are tried; a name that no add has let in stays away from the file system */
	qattr_apply(3, "mq-deadline", "iostats=0,../nomerges=1,nomerges=1", warn, NULL);
	snprintf(want, sizeof(want), "iostats=0: %d;../nomerges=1: %d;", ENOENT, EINVAL);
	assert_string_equal(told, want);
	holds("nomerges", "1");
}

static void scheduler_is(const char *text, const char *want)
{
	char buf[32];

	put("scheduler", text);
	qattr_read_scheduler(3, buf, sizeof(buf));
	assert_string_equal(buf, want);
}

static void test_read_scheduler(void **state)
{
	char buf[32] = "x";

	(void)state;
	scheduler_is("[none] mq-deadline \n", "none");
	scheduler_is("none [mq-deadline] kyber\n", "mq-deadline");
	scheduler_is("none\n", "none");
	scheduler_is("", "");
	scheduler_is("two words\n", "");
	scheduler_is("[broken\n", "");
	qattr_read_scheduler(4, buf, sizeof(buf));
	assert_string_equal(buf, "");
}

static int make_tree(void **state)
{
	char path[FS_PATH_MAX];

	(void)state;
	if (!mkdtemp(dir) || setenv("UBLKCTL_SYSROOT", dir, 1) < 0)
		return -1;
	mkdir(fs_path(path, "/sys"), 0755);
	mkdir(fs_path(path, "/sys/block"), 0755);
	mkdir(fs_path(path, "/sys/block/ublkb3"), 0755);
	return mkdir(fs_path(path, "/sys/block/ublkb3/queue"), 0755);
}

static int drop_tree(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_check),
		cmocka_unit_test(test_apply),
		cmocka_unit_test(test_read_scheduler),
	};

	return cmocka_run_group_tests(tests, make_tree, drop_tree);
}
