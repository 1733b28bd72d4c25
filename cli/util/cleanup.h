/* SPDX-License-Identifier: MIT */
/*
 * Scope-bound release of resources by compiler attribute (gcc and clang).
 */
#ifndef UTIL_CLEANUP_H
#define UTIL_CLEANUP_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void cleanup_file(FILE **f)
{
	if (*f)
		fclose(*f);
}

static inline void cleanup_dir(DIR **d)
{
	if (*d)
		closedir(*d);
}

#define _cleanup_free_ __attribute__((cleanup(cleanup_free)))
#define _cleanup_fd_ __attribute__((cleanup(cleanup_fd)))
#define _cleanup_file_ __attribute__((cleanup(cleanup_file)))
#define _cleanup_dir_ __attribute__((cleanup(cleanup_dir)))

/* Hands the value to the caller and disarms the cleanup of the variable. */
#define steal_fd(fdp)                                                                              \
	(__extension__({                                                                           \
		int steal_fd_ = *(fdp);                                                            \
		*(fdp) = -1;                                                                       \
		steal_fd_;                                                                         \
	}))
#define steal_ptr(pp)                                                                              \
	(__extension__({                                                                           \
		__typeof__(*(pp)) steal_p_ = *(pp);                                                \
		*(pp) = NULL;                                                                      \
		steal_p_;                                                                          \
	}))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#endif
