/* SPDX-License-Identifier: MIT */
/*
 * A ring for a test, which is skipped where io_uring is forbidden: sysctl
 * kernel.io_uring_disabled, a container.
 */
#ifndef UNIT_NEED_URING_H
#define UNIT_NEED_URING_H

#include <errno.h>
#include <liburing.h>
#include <poll.h>

#include "unit.h"

/*
 * Of a user without privileges the kernel counts the memory of all rings, also of those that it
 * has still to take down: true when it is worth another try. tries starts at 0.
 */
static inline bool uring_again(int r, unsigned int *tries)
{
	if (r != -ENOMEM || ++*tries > 5000)
		return false;
	poll(NULL, 0, 2);
	return true;
}

static inline void need_uring(struct io_uring *ring, unsigned int entries)
{
	unsigned int tries = 0;
	int r;

	do
		r = io_uring_queue_init(entries, ring, 0);
	while (uring_again(r, &tries));
	if (r == -EPERM || r == -ENOSYS) {
		print_message("io_uring is forbidden here\n");
		skip();
	}
	assert_int_equal(r, 0);
}

#endif
