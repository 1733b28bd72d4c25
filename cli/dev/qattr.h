/* SPDX-License-Identifier: MIT */
/*
 * Settings of a disk's request queue in sysfs: the I/O scheduler and a few attributes.
 */
#ifndef DEV_QATTR_H
#define DEV_QATTR_H

#include <stddef.h>

#include "msg.h"

#define QATTR_TEXT 256 /* bytes of the longest list of attributes, with its end */

/* The word for "what the kernel has chosen stays". */
#define QATTR_KERNEL "kernel"

/* for option words: n-th scheduler, NULL behind the last */
const char *qattr_scheduler_word(unsigned int n);

/* "NAME=VALUE,…": known names, each once, values in range; -FAIL_USAGE with a text otherwise. */
int qattr_check(const char *list, struct fail *f);

/*
 * Writes scheduler (unless NULL or QATTR_KERNEL) and list (NULL: none; checked) to the disk of a
 * device. Where the kernel does not take one, warn is told its name, the value and the errno.
 */
void qattr_apply(int id, const char *scheduler, const char *list,
		 void (*warn)(void *arg, const char *name, const char *value, int err), void *arg);

/* The scheduler of a disk as sysfs tells it; "" where it does not. */
void qattr_read_scheduler(int id, char *buf, size_t size);

#endif
