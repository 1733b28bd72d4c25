/* SPDX-License-Identifier: MIT */
/*
 * The I/O engine of one device: threads that answer its queues.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cfg.h"
#include "msg.h"

#define ENG_FDS_MAX 4

struct eng;
struct tgt_ops;

struct eng_cfg {
	int id;
	unsigned int queues, depth, threads; /* as granted by the driver */
	size_t max_io;			     /* bytes of a tag's buffer */
	bool lock_bufs;			     /* all of them touched and locked before the start */
	bool huge_bufs;			     /* in huge pages, if they can be had */
	unsigned int poll_us;		     /* a thread looks for work so long before it sleeps */
	bool batch;
	enum data_mode mode;
	const struct tgt_ops *tgt;
	void *tgt_priv;
	bool fixed_bufs;      /* server buffers in the rings' buffer tables */
	int fds[ENG_FDS_MAX]; /* registered in every ring: /dev/ublkcN first; the caller's */
	unsigned int nr_fds;
	const cpu_set_t *affinity; /* one per queue; needed until eng_start() returns */
};

/*
 * Maps the queues, starts the threads, returns when all tags are armed: START_DEV can follow.
 * On failure nothing is left and f says which thread failed at what. Returns 0 or -errno.
 */
int eng_start(const struct eng_cfg *cfg, struct eng **ret, struct fail *f);
/* Readable once all threads have ended, by themselves or after eng_stop(). */
int eng_done_fd(const struct eng *e);
/* Makes the threads leave without waiting for the driver's aborts. */
void eng_stop(struct eng *e);
/*
 * The threads end when the requests in hand are done. On the batch path this makes the driver hold new
 * ones first; on the other QUIESCE_DEV has done it. 0 or -errno: then the threads go on.
 */
int eng_leave(struct eng *e);
/* Joins and frees everything. f holds the first thread's reason, err 0 when there is none. */
void eng_finish(struct eng *e, struct fail *f);
/* errno of PR_SET_IO_FLUSHER when a thread could not become an I/O flusher, else 0. */
int eng_flusher_errno(const struct eng *e);
/* What the buffers are made of; HUGE_NONE also when there are none. */
enum huge_pages eng_huge_pages(const struct eng *e);

#endif
