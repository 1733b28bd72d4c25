/* SPDX-License-Identifier: MIT */
/*
 * A folder that a test has for itself, and its removal.
 */
#ifndef UNIT_TMPDIR_H
#define UNIT_TMPDIR_H

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

static inline int tmpdir_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static inline void tmpdir_remove(const char *dir)
{
	nftw(dir, tmpdir_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Makes the folder; path has at least 64 bytes. */
static inline void tmpdir_make(char *path)
{
	const char *base = getenv("TMPDIR");

	if (!base || strlen(base) > 32)
		base = "/tmp";
	snprintf(path, 64, "%s/ublkctl-unit.XXXXXX", base);
	assert_non_null(mkdtemp(path));
}

/* Makes or replaces a file in dirfd. */
static inline void tmpdir_put(int dirfd, const char *name, const void *text, size_t len)
{
	int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_true(write(fd, text, len) == (ssize_t)len);
	assert_int_equal(fchmod(fd, 0644), 0);
	close(fd);
}

/* Number of files in dirfd, of any name. */
static inline int tmpdir_count(int dirfd)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), n = 0;
	DIR *d = fdopendir(fd);
	struct dirent *e;

	assert_non_null(d);
	while ((e = readdir(d)))
		n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	closedir(d);
	return n;
}

#endif
