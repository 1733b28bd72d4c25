/* SPDX-License-Identifier: MIT */
/*
 * Files: path root, small reads, atomic write; time on the monotonic clock.
 */
#ifndef UTIL_FS_H
#define UTIL_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define FS_PATH_MAX 512

/*
 * printf-style path below the path root. The root is "" or, for tests against recorded
 * trees, the environment's UBLKCTL_SYSROOT. buf has FS_PATH_MAX bytes; returns buf.
 */
const char *fs_path(char *buf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool fs_root_is_real(void);

/*
 * Reads a small text file into buf (NUL-terminated, trailing newline removed).
 * Returns 0 or -errno; -EFBIG when it does not fit.
 */
int fs_read_text(const char *path, char *buf, size_t size);
/* The same for a file that holds one unsigned decimal number. */
int fs_read_u64(const char *path, uint64_t *ret);
bool fs_exists(const char *path);
/* A folder that is there and not empty. */
bool fs_has_entries(const char *path);

/* Writes name in dirfd by temporary file and rename; mode 0644. Returns 0 or -errno. */
int fs_write_atomic(int dirfd, const char *name, const char *text, size_t len);

/* Whole of fd into a malloc()ed, NUL-terminated text of at most max bytes. 0 or -errno. */
int fs_read_all(int fd, size_t max, char **ret_text);

/* Milliseconds of CLOCK_MONOTONIC. */
int64_t fs_now_ms(void);

/* The same clock in ns; for I/O paths. */
static inline uint64_t fs_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
}

void fs_sleep_ms(unsigned int ms);

/* Start time of a process in clock ticks since boot (proc(5), field 22); 0 when it has ended. */
uint64_t fs_pid_start(pid_t pid);

#endif
