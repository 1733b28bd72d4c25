/* SPDX-License-Identifier: MIT */
/*
 * The way out of devices, whoever serves them: look for users, stop, delete, wait until nothing is left.
 */
#ifndef TEARDOWN_H
#define TEARDOWN_H

#include <stdbool.h>
#include <stddef.h>

#include "msg.h"

struct teardown_how {
	bool keep;	     /* only stop: id, node of the server's side and record stay */
	bool force;	     /* also while they are in use */
	bool safe_only;	     /* only if the driver itself refuses a disk in use */
	bool ignore_missing; /* a device that does not exist is no failure */
	bool no_wait;	     /* return before the ids are free again */
	unsigned int wait_s; /* for users to go */
	unsigned int timeout_s;
};

/* n devices, some at a time. All are tried, each failure is printed; the first one's -errno. */
int teardown(const struct teardown_how *how, const int *ids, size_t n, struct fail *f);

#endif
