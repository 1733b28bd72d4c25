/* SPDX-License-Identifier: MIT */
#include <unistd.h>

#include "engine/queue.h"

struct io_uring_sqe *q_sqe_full(struct q_thr *t)
{
	struct io_uring_sqe *sqe = NULL;

	/* memory may be short for a moment: a request is worth a second */
	for (int i = 0; !sqe && i < 1000; i++) {
		int r = io_uring_submit(&t->ring);

		sqe = io_uring_get_sqe(&t->ring);
		if (!sqe && r < 0)
			usleep(1000);
	}
	return sqe;
}
