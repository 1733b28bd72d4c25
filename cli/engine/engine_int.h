/* SPDX-License-Identifier: MIT */
/*
 * What engine.c and queue.c share.
 */
#ifndef ENGINE_ENGINE_INT_H
#define ENGINE_ENGINE_INT_H

#include <pthread.h>

#include "engine/engine.h"
#include "engine/queue.h"

struct eng {
	struct eng_cfg cfg;
	struct q_hw *hw;
	struct q_thr *thr;
	int stop_fd;  /* eventfd, polled by every ring */
	int leave_fd; /* eventfd, the same: requests in hand first */
	int stats_fd; /* memfd with the counters */
	struct st_head *stats;
	size_t stats_len;
	unsigned int nr_taken; /* blocks that have a queue */
	uint64_t *since;       /* for each block depth of them */
	int done_fd;	       /* eventfd, written by the last thread to end */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* below: under lock */
	unsigned int arrived; /* threads in the phase that is being waited for */
	unsigned int phase;
	int phase_err; /* first error of any thread, stays */
	/*
	 * phase_err when the last phase ended: all threads leave a phase with the same answer, also
	 * one that wakes up when another has already failed in the next. Or that one waits for ever.
	 */
	int phase_result;
	unsigned int running;
	int flusher_errno;
};

/* A thread's result of a phase; returns when all threads have come, with the first error. */
int eng_phase(struct eng *e, int err);
void eng_note_no_flusher(struct eng *e, int err);

#endif
