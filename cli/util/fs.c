/* SPDX-License-Identifier: MIT */
#include "util/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/num.h"

static const char *fs_root(void)
{
	const char *r = getenv("UBLKCTL_SYSROOT");

	return r ? r : "";
}

bool fs_root_is_real(void)
{
	return !*fs_root();
}

const char *fs_path(char *buf, const char *fmt, ...)
{
	va_list ap;
	int n = snprintf(buf, FS_PATH_MAX, "%s", fs_root());

	if (n < 0 || n >= FS_PATH_MAX)
		n = 0;
	va_start(ap, fmt);
	vsnprintf(buf + n, FS_PATH_MAX - (size_t)n, fmt, ap);
	va_end(ap);
	return buf;
}

int fs_read_text(const char *path, char *buf, size_t size)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, buf, size);
	if (n < 0)
		return -errno;
	if ((size_t)n >= size)
		return -EFBIG;
	while (n > 0 && buf[n - 1] == '\n')
		n--;
	buf[n] = '\0';
	return 0;
}

int fs_read_u64(const char *path, uint64_t *ret)
{
	char buf[32];
	int r = fs_read_text(path, buf, sizeof(buf));

	return r < 0 ? r : num_parse_uint(buf, 0, UINT64_MAX, ret);
}

bool fs_exists(const char *path)
{
	return access(path, F_OK) == 0;
}

bool fs_has_entries(const char *path)
{
	_cleanup_dir_ DIR *d = opendir(path);
	const struct dirent *e;

	while (d && (e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			return true;
	return false;
}

static int write_whole(int fd, const char *text, size_t len)
{
	while (len) {
		ssize_t n = write(fd, text, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		text += n;
		len -= (size_t)n;
	}
	return 0;
}

int fs_write_atomic(int dirfd, const char *name, const char *text, size_t len)
{
	char tmp[64];
	_cleanup_fd_ int fd = -1;
	int r;

	if (snprintf(tmp, sizeof(tmp), ".%s.%d", name, (int)getpid()) >= (int)sizeof(tmp))
		return -ENAMETOOLONG;
	/* a leftover of a process that had this pid and died while writing */
	unlinkat(dirfd, tmp, 0);
	fd = openat(dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	r = write_whole(fd, text, len);
	/* the umask of the caller must not make a record unreadable for `list` */
	if (!r && fchmod(fd, 0644) < 0)
		r = -errno;
	if (!r && renameat(dirfd, tmp, dirfd, name) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(dirfd, tmp, 0);
	return r;
}

int fs_read_all(int fd, size_t max, char **ret_text)
{
	_cleanup_free_ char *buf = malloc(max + 1);
	size_t have = 0;

	if (!buf)
		return -ENOMEM;
	for (;;) {
		ssize_t n = read(fd, buf + have, max + 1 - have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		have += (size_t)n;
		if (have > max)
			return -EFBIG;
	}
	buf[have] = '\0';
	*ret_text = steal_ptr(&buf);
	return 0;
}

int64_t fs_now_ms(void)
{
	return (int64_t)(fs_now_ns() / 1000000);
}

void fs_sleep_ms(unsigned int ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}

uint64_t fs_pid_start(pid_t pid)
{
	char path[FS_PATH_MAX], buf[1024];
	const char *p;
	unsigned long long start;

	if (pid <= 0 || fs_read_text(fs_path(path, "/proc/%d/stat", (int)pid), buf, sizeof(buf)) < 0)
		return 0;
	/* the command name is in parentheses and may hold anything: count from the last one */
	p = strrchr(buf, ')');
	if (!p || strlen(p) < 3 || p[2] == 'Z' || p[2] == 'X')
		return 0;
	for (int field = 2; field < 22; field++) {
		p = strchr(p + 1, ' ');
		if (!p)
			return 0;
	}
	return sscanf(p, " %llu", &start) == 1 ? start : 0;
}
