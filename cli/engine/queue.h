/* SPDX-License-Identifier: MIT */
/*
 * One I/O thread: its ring, its queues, and the calls that targets and back ends make from it.
 * Everything here runs in that thread alone.
 */
#ifndef ENGINE_QUEUE_H
#define ENGINE_QUEUE_H

#include <liburing.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "abi/ublk_abi.h"
#include "engine/backend.h"
#include "engine/bufmem.h"
#include "engine/iobuf.h"
#include "util/stats_page.h"
#include "engine/tgt_ops.h"
#include "engine/udata.h"
#include "msg.h"

struct eng;

/* A hardware queue: shared by all threads that serve it. */
struct q_hw {
	uint16_t id;
	const struct ublksrv_io_desc *desc; /* the driver's, mapped, by tag */
	size_t desc_len;
	struct bufmem mem; /* depth × buf_size bytes, or nothing */
	void *tag_priv;	   /* depth × tgt_ops.tag_size bytes, zero at start, the target's own */
	cpu_set_t cpus;
	unsigned int nr_threads;
};

/* A hardware queue as one thread sees it. */
struct q {
	struct q_thr *thr;
	const struct ublksrv_io_desc *desc;
	uint8_t *buf;
	size_t buf_size;
	void *tag_priv;
	const struct iobuf_mode *mode;
	int cdev;	     /* /dev/ublkcN, for system calls */
	uint32_t *fixed_len; /* bytes of each tag's server buffer in the buffer table, or NULL */
	uint16_t buf_base;   /* first slot of the queue's tags in the ring's buffer table */
	struct st_block *st; /* counters of this thread and queue */
	uint64_t *since;     /* by tag: the turn in which its request came, in ns */
	void *tgt_priv;	     /* the target's own, of the device */
	void *be;	     /* the back end's own, from init() to fini() */
	struct q_hw *hw;
	uint16_t id;   /* of the hardware queue */
	uint16_t slot; /* index in the thread */
	uint16_t depth;
	bool prepares; /* this thread prepares the tags of the queue */
};

/* Slots of the ring's buffer table that the server fills: slots.c. */
struct q_slots {
	unsigned int nr, nr_words;
	uint64_t *full; /* bit per slot: the pages of a request are in it */
	uint64_t *done; /* its request needs it no more */
	unsigned int nr_done, gap_max;
	/* a command that fills a slot waits for the end of its turn before the kernel sees it */
	uint32_t turn, *filled_in; /* this turn's number, that of each slot's command */
	bool early;		   /* a slot is done in the turn in which it is filled */
};

struct q_thr {
	struct io_uring ring;
	const struct q_backend *be;
	const struct tgt_ops *tgt;
	struct q *qs;
	unsigned int nr_qs;
	unsigned int live; /* commands with which the driver can still deliver requests */
	unsigned int busy; /* requests taken whose result the driver has not got yet */
	uint64_t now;	   /* of this turn, ns of CLOCK_MONOTONIC */
	bool stop;
	/*
	 * Per-I/O path: a tag was aborted. The others follow, or whoever quiesced the device says that
	 * there are no more (eng_leave()); the thread must not go before, since the driver (Linux 7.3)
	 * warns when it meets a command in a ring that is being closed. Another tool says nothing: a
	 * second without any word counts.
	 */
	bool ending;
	struct q_slots slots;
	/* set up by the engine */
	struct eng *eng;
	bool fixed_bufs;  /* a table of server buffers is wanted */
	uint64_t poll_ns; /* for so long it looks for completions before it sleeps */
	unsigned int index;
	pthread_t tid;
	bool started;
	struct fail fail; /* why the thread gave up; err 0: it did not */
};

/* Index of /dev/ublkcN in the registered files of every ring; targets' files follow. */
#define Q_FILE_CDEV 0
#define Q_FILE_TARGET 1

/* Body of an I/O thread, from ring set-up to the end of the device. */
void q_thr_run(struct q_thr *t);

/*
 * What the compiler is to keep out of the way of the usual case: called last in a function, it
 * costs that one no registers.
 */
#define Q_RARE __attribute__((noinline, cold))

/* Slow path of q_sqe(). */
struct io_uring_sqe *q_sqe_full(struct q_thr *t);

/*
 * A free submission entry, its old contents in it; NULL when the ring is full. As
 * io_uring_get_sqe() does it for a ring with entries of this size and no polling thread.
 */
static inline struct io_uring_sqe *q_sqe_free(struct q_thr *t)
{
	struct io_uring_sq *sq = &t->ring.sq;
	unsigned int tail = sq->sqe_tail;

	if (__builtin_expect(tail - __atomic_load_n(sq->khead, __ATOMIC_ACQUIRE) >= sq->ring_entries,
			     0))
		return NULL;
	sq->sqe_tail = tail + 1;
	return &sq->sqes[tail & sq->ring_mask];
}

/* The same, but submits what is there when the ring is full; NULL when the kernel refuses that. */
static inline struct io_uring_sqe *q_sqe(struct q_thr *t)
{
	struct io_uring_sqe *sqe = q_sqe_free(t);

	return __builtin_expect(!!sqe, 1) ? sqe : q_sqe_full(t);
}

/*
 * All of an entry but its last 16 bytes (command area, or addr3): slots are used again. Field by
 * field, so that the compiler makes few whole words of it.
 */
static inline void q_prep_fixed_file(struct io_uring_sqe *sqe, uint8_t opcode, int file,
				     uint64_t off, uint64_t addr, uint64_t ud)
{
	sqe->opcode = opcode;
	sqe->flags = IOSQE_FIXED_FILE;
	sqe->ioprio = 0;
	sqe->fd = file;
	sqe->off = off;
	sqe->addr = addr;
	sqe->len = 0;
	sqe->rw_flags = 0;
	sqe->user_data = ud;
	sqe->buf_index = 0;
	sqe->personality = 0;
	sqe->splice_fd_in = 0;
}

/* A command on /dev/ublkcN; the caller fills the command area, all 16 bytes. */
static inline void q_prep_cdev(struct io_uring_sqe *sqe, uint32_t op, uint64_t addr, uint64_t ud)
{
	q_prep_fixed_file(sqe, IORING_OP_URING_CMD, Q_FILE_CDEV, 0, addr, ud);
	sqe->cmd_op = op;
}

static inline void *q_cmd_area(struct io_uring_sqe *sqe)
{
	return sqe->cmd;
}

static inline const struct ublksrv_io_desc *q_desc(const struct q *q, uint16_t tag)
{
	return &q->desc[tag];
}

/* A request that was delivered: to the target. */
static inline void q_deliver(struct q *q, uint16_t tag)
{
	q->st->taken++;
	q->since[tag] = q->thr->now;
	q->thr->tgt->queue_io(q, tag, q_desc(q, tag));
}

/* Slot of a tag in the ring's buffer table: its request's pages, or its server buffer. */
static inline uint16_t q_buf_index(const struct q *q, uint16_t tag)
{
	return (uint16_t)(q->buf_base + tag);
}

/* Server buffer of a tag; only in modes that have one. */
static inline uint8_t *q_buf(const struct q *q, uint16_t tag)
{
	return q->buf + (size_t)tag * q->buf_size;
}

/* fixbuf.c: server buffers in the ring's buffer table. 0 or -errno; fini() takes a half init(). */
int fixbuf_init(struct q_thr *t);
void fixbuf_fini(struct q_thr *t);
/* Slow path of q_fix_buf(). */
bool fixbuf_more(struct q *q, uint16_t tag, uint32_t bytes);

/* slots.c: 0 or -errno; fini() takes a half init(). */
int slots_init(struct q_thr *t);
void slots_fini(struct q_thr *t);
/* Empties what slot_done() was told of, before the results of the requests go out. */
int slots_empty_done(struct q_thr *t);

static inline void slot_fill(struct q_slots *s, unsigned int i)
{
	s->full[i / 64] |= 1ULL << i % 64;
	s->filled_in[i] = s->turn;
}

static inline void slot_done(struct q_slots *s, unsigned int i)
{
	s->full[i / 64] &= ~(1ULL << i % 64);
	s->done[i / 64] |= 1ULL << i % 64;
	s->nr_done++;
	s->early |= s->filled_in[i] == s->turn;
}

/*
 * Is the data of a request in the ring's buffer table? Request pages always are; a server buffer
 * is put there as far as it was ever used, so that what is not used is not pinned.
 */
static inline bool q_buf_fixed(const struct q *q, uint16_t tag, uint32_t bytes)
{
	return q->fixed_len ? q->fixed_len[tag] >= bytes : q->mode->request_buf;
}

/* The same, and puts it there if that can be. */
static inline bool q_fix_buf(struct q *q, uint16_t tag, uint32_t bytes)
{
	return q_buf_fixed(q, tag, bytes) || (q->fixed_len && fixbuf_more(q, tag, bytes));
}

/* See struct iobuf_mode. */
static inline int q_begin_data(struct q *q, uint16_t tag)
{
	return q->mode->passive ? 0 : q->mode->begin(q, tag, q_desc(q, tag));
}

static inline int32_t q_end_data(struct q *q, uint16_t tag, int32_t res)
{
	return q->mode->passive ? res : q->mode->end(q, tag, q_desc(q, tag), res);
}

/* Result of a request: bytes or -errno; exactly once per delivery. */
static inline void q_complete(struct q *q, uint16_t tag, int32_t res)
{
	const unsigned int op = q_desc(q, tag)->op_flags % ST_OPS;
	struct st_block *st = q->st;

	st->done[op]++;
	if (__builtin_expect(res >= 0, 1))
		st->bytes[op] += (uint32_t)res;
	else
		st->errors++;
	st->latency[st_class(q->thr->now - q->since[tag])]++;
	q->thr->be->complete(q, tag, res);
}

/* The thread cannot go on: it ends, and with it the server. err is negative. */
void q_thr_fail(struct q_thr *t, int err, const char *what);

#endif
