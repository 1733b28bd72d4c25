/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dev/dev.h"
#include "util/cleanup.h"
#include "util/fs.h"
#include "util/num.h"

#define SYS_CLASS "/sys/class/ublk-char"

/* Id of a name made of prefix and a number; -1 when it is none. */
static int id_of(const char *name, const char *prefix)
{
	size_t n = strlen(prefix);
	uint64_t v;

	if (strncmp(name, prefix, n) || num_parse_uint(name + n, 0, CFG_ID_MAX, &v) < 0)
		return -1;
	return (int)v;
}

static int compare_ids(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
}

int dev_scan(int **ret_ids, size_t *ret_count)
{
	char path[FS_PATH_MAX];
	_cleanup_dir_ DIR *d = opendir(fs_path(path, SYS_CLASS));
	_cleanup_free_ int *ids = NULL;
	size_t n = 0, room = 0;
	struct dirent *e;

	if (!d && errno != ENOENT)
		return -errno;
	/* without any class it is sysfs that is missing, not the driver */
	if (!d)
		return fs_root_is_real() && !fs_exists(fs_path(path, "/sys/class")) ? -ENOENT : -ENODEV;
	while ((e = readdir(d))) {
		int id = id_of(e->d_name, "ublkc");

		if (id < 0)
			continue;
		if (n == room) {
			int *more = reallocarray(ids, room = room ? 2 * room : 16, sizeof(*ids));

			if (!more)
				return -ENOMEM;
			ids = more;
		}
		ids[n++] = id;
	}
	if (n)
		qsort(ids, n, sizeof(*ids), compare_ids);
	*ret_ids = steal_ptr(&ids);
	*ret_count = n;
	return 0;
}

bool dev_char_exists(int id)
{
	char path[FS_PATH_MAX];

	return fs_exists(fs_path(path, SYS_CLASS "/ublkc%d", id));
}

bool dev_disk_exists(int id)
{
	char path[FS_PATH_MAX];

	return fs_exists(fs_path(path, "/sys/block/ublkb%d", id));
}

/* A file that somebody wrote where a node was is not ours. */
static bool is_node(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && (S_ISBLK(st.st_mode) || S_ISCHR(st.st_mode));
}

bool dev_disk_left(int id)
{
	char path[FS_PATH_MAX];

	return dev_disk_exists(id) || is_node(fs_path(path, "/dev/ublkb%d", id));
}

bool dev_anything_left(int id)
{
	char path[FS_PATH_MAX];

	return dev_char_exists(id) || is_node(fs_path(path, "/dev/ublkc%d", id)) || dev_disk_left(id);
}

int dev_parse_operand(const char *s, int *ret_id, struct fail *f)
{
	int id = -1;

	if (!strncmp(s, "/dev/", 5)) {
		id = id_of(s + 5, "ublkb");
		if (id < 0)
			id = id_of(s + 5, "ublkc");
	}
	if (id < 0)
		id = id_of(s, "");
	if (id < 0)
		return fail_set(f, FAIL_USAGE,
				"'%s' is not a device id (a number from 0 to %d, or /dev/ublkbN)",
				s, CFG_ID_MAX);
	*ret_id = id;
	return 0;
}
