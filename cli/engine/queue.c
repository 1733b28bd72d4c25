/* SPDX-License-Identifier: MIT */
/*
 * The loop of an I/O thread: submit and wait, reap, give each completion to back end or target.
 */
#include "engine/queue.h"
#include "engine/tgt_ops.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "engine/engine_int.h"
#include "util/fs.h"
#include "util/num.h"

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

#define RING_MIN 16
#define RING_SQ_MAX 32768U
#define RING_CQ_MAX 65536U
/* entries for targets: beyond that they are submitted in parts */
#define RING_TARGET_MAX 1024U

void q_thr_fail(struct q_thr *t, int err, const char *what)
{
	if (!t->fail.err)
		fail_errno(&t->fail, -err, "I/O thread %u: %s", t->index, what);
	t->stop = true;
}

static uint32_t ring_size(unsigned int want, uint32_t max)
{
	if (want < RING_MIN)
		want = RING_MIN;
	return want > max ? max : num_pow2_ceil(want);
}

static int ring_create(struct q_thr *t)
{
	unsigned int sq, cq, tags = t->nr_qs * t->qs[0].depth;
	struct io_uring_params p = {
		.flags = IORING_SETUP_CQSIZE | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN |
			 IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
			 IORING_SETUP_TASKRUN_FLAG,
	};

	t->be->need(t, &sq, &cq);
	/* two for the polls, and room for the entries of target and data mode */
	sq += 2 + (tags < RING_TARGET_MAX ? tags : RING_TARGET_MAX);
	cq = 2 * cq + 2 > sq ? 2 * cq + 2 : sq;
	p.cq_entries = ring_size(cq, RING_CQ_MAX);
	return io_uring_queue_init_params(ring_size(sq, RING_SQ_MAX), &t->ring, &p);
}

static int ring_init(struct q_thr *t)
{
	int r = ring_create(t);

	if (r < 0)
		return r;
	r = io_uring_register_files(&t->ring, t->eng->cfg.fds, t->eng->cfg.nr_fds);
	if (!r && t->qs[0].mode->request_buf)
		r = io_uring_register_buffers_sparse(&t->ring, t->nr_qs * t->qs[0].depth);
	if (!r)
		r = fixbuf_init(t);
	if (!r)
		r = slots_init(t);
	if (r < 0) {
		io_uring_queue_exit(&t->ring);
		return r;
	}
	/* saves a look-up per system call; works without */
	io_uring_register_ring_fd(&t->ring);
	return 0;
}

/* The descriptors become readable when the server wants its threads back. */
static int arm_poll(struct q_thr *t, int fd, enum ud_kind kind)
{
	struct io_uring_sqe *sqe = q_sqe(t);

	if (!sqe)
		return -EBUSY;
	io_uring_prep_poll_add(sqe, fd, POLLIN);
	sqe->user_data = ud_pack(kind, 0, 0, 0);
	return 0;
}

static void become_io_thread(struct q_thr *t)
{
	cpu_set_t cpus;
	char name[16];

	snprintf(name, sizeof(name), "ublk%d.%u", t->eng->cfg.id, t->index);
	pthread_setname_np(pthread_self(), name);
	CPU_ZERO(&cpus);
	for (unsigned int i = 0; i < t->nr_qs; i++)
		CPU_OR(&cpus, &cpus, &t->qs[i].hw->cpus);
	/* a hint: a cpuset may forbid all of them */
	if (CPU_COUNT(&cpus) && pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus))
		msg_debug("I/O thread %u keeps its CPUs", t->index);
	/* or memory reclaim could wait for this very device */
	if (prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) < 0)
		eng_note_no_flusher(t->eng, errno);
}

static inline void dispatch(struct q_thr *t, const struct io_uring_cqe *cqe)
{
	uint64_t ud = cqe->user_data;

	switch (ud_kind(ud)) {
	case UD_BACKEND:
		t->be->on_cqe(t, cqe);
		return;
	case UD_TARGET:
		t->tgt->io_done(&t->qs[ud_slot(ud)], ud_tag(ud), ud_aux(ud), cqe->res);
		return;
	case UD_STOP:
		t->stop = true;
		return;
	case UD_LEAVE:
		t->live = 0;
		return;
	case UD_IGNORE:
		return;
	}
}

/* See q_thr.ending: nothing else is to be waited for. */
static int wait_ending(struct q_thr *t)
{
	struct __kernel_timespec quiet = { .tv_sec = 1 };
	struct io_uring_cqe *cqe;
	int r = io_uring_submit_and_wait_timeout(&t->ring, &cqe, 1, &quiet, NULL);

	if (r == -ETIME && !t->busy)
		t->live = 0;
	return r == -ETIME ? 0 : r;
}

/* Handles the completions that are there. Only a system call of this thread can add any. */
static void reap(struct q_thr *t)
{
	struct io_uring_cq *cq = &t->ring.cq;
	unsigned int head = *cq->khead, tail = __atomic_load_n(cq->ktail, __ATOMIC_ACQUIRE);

	for (unsigned int i = head; i != tail; i++)
		dispatch(t, &cq->cqes[i & cq->ring_mask]);
	io_uring_cq_advance(&t->ring, tail - head);
}

/*
 * Are completions left that the kernel has not posted yet? Woken up it posts but one, and at most
 * 20 at a time. Taken together with those that are there they cost one turn less.
 */
static inline bool more_to_post(const struct q_thr *t)
{
	return __atomic_load_n(t->ring.sq.kflags, __ATOMIC_RELAXED) & IORING_SQ_TASKRUN;
}

/* The thread sleeps until there is a completion. */
static inline int wait_asleep(struct q_thr *t)
{
	t->qs[0].st->wakeups++;
	return __builtin_expect(t->ending, 0) ? wait_ending(t) : io_uring_submit_and_wait(&t->ring, 1);
}

/* To the processor: this loop waits for a change of memory. */
static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/*
 * The thread looks for a completion before it sleeps. The tail of the completions and the flag that
 * says that there is work which posts some are both memory: looking takes no system call.
 */
static int wait_polling(struct q_thr *t)
{
	uint64_t until;
	int r = 0;

	if (t->ending)
		return wait_asleep(t);
	if (io_uring_sq_ready(&t->ring))
		r = io_uring_submit_and_get_events(&t->ring);
	until = fs_now_ns() + t->poll_ns;
	while (r >= 0 && !io_uring_cq_ready(&t->ring)) {
		if (more_to_post(t)) {
			r = io_uring_get_events(&t->ring);
		} else {
			if (fs_now_ns() >= until)
				return wait_asleep(t);
			relax();
		}
	}
	return r;
}

/* One turn: everything that is ready is handled before the next system call. */
static inline __attribute__((always_inline)) int turn(struct q_thr *t, int (*wait)(struct q_thr *))
{
	int r = wait(t);

	/* EBUSY and EAGAIN: completions have to be reaped first */
	if (r < 0 && r != -EINTR && r != -EBUSY && r != -EAGAIN)
		return r;
	t->now = fs_now_ns();
	reap(t);
	/* once: nobody waits long for others */
	if (more_to_post(t)) {
		io_uring_get_events(&t->ring);
		reap(t);
	}
	t->slots.turn++;
	if (t->slots.nr_done) {
		r = slots_empty_done(t);
		if (r < 0)
			q_thr_fail(t, r, "cannot empty slots of its buffer table");
	}
	t->be->turn_end(t);
	return 0;
}

/* Inlined with how it waits, so that the usual way costs nothing for being one of two. */
static inline __attribute__((always_inline)) void
serve_turns(struct q_thr *t, int (*wait)(struct q_thr *))
{
	while (!t->stop && (t->live || t->busy)) {
		int r = turn(t, wait);

		if (r < 0)
			q_thr_fail(t, r, "io_uring_enter");
	}
}

static void serve_queues(struct q_thr *t)
{
	if (t->poll_ns)
		serve_turns(t, wait_polling);
	else
		serve_turns(t, wait_asleep);
	/* results of the last turn */
	io_uring_submit(&t->ring);
}

void q_thr_run(struct q_thr *t)
{
	int r;

	become_io_thread(t);
	r = ring_init(t);
	if (r < 0) {
		q_thr_fail(t, r, "cannot set up its ring");
		fixbuf_fini(t);
		slots_fini(t);
		eng_phase(t->eng, r);
		return;
	}
	r = t->be->init(t);
	if (!r)
		r = arm_poll(t, t->eng->stop_fd, UD_STOP);
	if (!r)
		r = arm_poll(t, t->eng->leave_fd, UD_LEAVE);
	if (!r)
		r = t->be->prepare(t);
	if (r < 0)
		q_thr_fail(t, r, "cannot prepare its queues");
	if (eng_phase(t->eng, r) == 0) {
		r = t->be->arm(t);
		if (r < 0)
			q_thr_fail(t, r, "cannot fetch requests");
		if (eng_phase(t->eng, r) == 0)
			serve_queues(t);
	}
	io_uring_queue_exit(&t->ring);
	fixbuf_fini(t);
	slots_fini(t);
	t->be->fini(t);
}
