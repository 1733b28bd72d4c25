/* SPDX-License-Identifier: MIT */
/*
 * File target, the open backing: flags of its descriptor.
 */
#include "unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "target/target.h"
#include "tmpdir.h"

static void check_flags(const char *file, const char *io_word, bool read_only)
{
	struct dev_cfg cfg = { .file = file, .io_word = io_word, .read_only = read_only };
	struct tgt_dev dev;
	struct fail f = { 0 };
	int flags;

	unit_case("io %s, read_only %d", io_word, read_only);
	if (tgt_file.check(&cfg, &f) < 0)
		fail_msg("%s", f.text);
	assert_int_equal(tgt_file.open(&cfg, &dev, &f), 0);
	assert_int_equal(dev.nr_fds, 1);
	flags = fcntl(dev.fds[0], F_GETFL);
	/* no read costs the work of noting its time */
	unit_check(flags & O_NOATIME);
	unit_check((flags & O_ACCMODE) == (read_only ? O_RDONLY : O_RDWR));
	unit_check(!(flags & O_DIRECT) == (cfg.io == IO_BUFFERED));
	tgt_file.close(&dev, false);
}

static void test_flags(void **state)
{
	char dir[64], file[80];
	int fd;

	(void)state;
	tmpdir_make(dir);
	snprintf(file, sizeof(file), "%s/disk", dir);
	fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	close(fd);
	check_flags(file, "buffered", false);
	check_flags(file, "buffered", true);
	check_flags(file, "auto", false);
	tmpdir_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flags),
	};

	return cmocka_run_group_tests_name("file_open", tests, NULL, NULL);
}
