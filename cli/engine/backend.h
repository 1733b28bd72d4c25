/* SPDX-License-Identifier: MIT */
/*
 * Queue back end: how requests are fetched from the driver and results given back. Chosen once
 * at start; after that nobody asks which one it is.
 */
#ifndef ENGINE_BACKEND_H
#define ENGINE_BACKEND_H

#include <stdint.h>

struct q_thr;
struct q;
struct io_uring_cqe;

struct q_backend {
	const char *name;
	/* Ring entries that the back end itself needs for the thread's queues. */
	void (*need)(const struct q_thr *t, unsigned int *ret_sq, unsigned int *ret_cq);
	/* Allocates what the thread's queues need; fini() takes a half-done init() too. */
	int (*init)(struct q_thr *t);
	void (*fini)(struct q_thr *t);
	/* Tells the driver of every tag that this thread prepares; all threads, then arm(). */
	int (*prepare)(struct q_thr *t);
	/* From here on requests can be delivered. */
	int (*arm)(struct q_thr *t);
	/* One completion of kind UD_BACKEND. */
	void (*on_cqe)(struct q_thr *t, const struct io_uring_cqe *cqe);
	/* Result of a tag: bytes or -errno. Any time between on_cqe() and turn_end(). */
	void (*complete)(struct q *q, uint16_t tag, int32_t res);
	/* After all completions of a turn, before the next submission. */
	void (*turn_end)(struct q_thr *t);
};

extern const struct q_backend be_perio;
extern const struct q_backend be_batch;

#endif
