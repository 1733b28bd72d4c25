/* SPDX-License-Identifier: MIT */
/*
 * One turn of an I/O thread: what is ready is handled before results go out, and nobody waits for more.
 * UNIT: tests/unit/vg_wait.o
 */
#include "unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/queue.h"
#include "need_uring.h"

#define WATCHDOG 120 /* s */

/* What happened, a letter each: c completion, g visit to the kernel for more, t end of the turn. */
static struct {
	char seen[32];
	size_t n;
	unsigned int more; /* completions that the kernel has not posted */
	/* at the end of the first turn, what the next one can wait for */
	enum { NOTHING, MORE, TIME } next;
	uint64_t wakeups;
} log_;

static void note(char what)
{
	assert_true(log_.n < sizeof(log_.seen) - 1);
	log_.seen[log_.n++] = what;
}

static void put_nop(struct q_thr *t)
{
	struct io_uring_sqe *sqe = q_sqe(t);

	io_uring_prep_nop(sqe);
	sqe->user_data = ud_pack(UD_BACKEND, 0, 0, 0);
}

/* A completion that comes late enough for a thread to give up looking for it. */
static void put_timeout(struct q_thr *t)
{
	static struct __kernel_timespec late = { .tv_nsec = 50000000 };
	struct io_uring_sqe *sqe = q_sqe(t);

	io_uring_prep_timeout(sqe, &late, 0, IORING_TIMEOUT_ETIME_SUCCESS);
	sqe->user_data = ud_pack(UD_BACKEND, 0, 0, 0);
}

/* ---- the kernel, which has more than it has posted --------------------------------------- */

static void say_more(struct io_uring *ring)
{
	if (log_.more)
		__atomic_or_fetch(ring->sq.kflags, IORING_SQ_TASKRUN, __ATOMIC_RELAXED);
	else
		__atomic_and_fetch(ring->sq.kflags, ~IORING_SQ_TASKRUN, __ATOMIC_RELAXED);
}

int io_uring_get_events(struct io_uring *ring)
{
	struct io_uring_sqe *sqe;

	/* the real one has something by itself: a slow thread's timeout that has passed meanwhile */
	if (!log_.more)
		return io_uring_submit_and_get_events(ring);
	sqe = io_uring_get_sqe(ring);
	note('g');
	log_.more--;
	io_uring_prep_nop(sqe);
	sqe->user_data = ud_pack(UD_BACKEND, 0, 0, 0);
	assert_int_equal(io_uring_submit(ring), 1);
	say_more(ring);
	return 0;
}

/* ---- a back end that takes notes ---------------------------------------------------------- */

static void be_need(const struct q_thr *t, unsigned int *ret_sq, unsigned int *ret_cq)
{
	(void)t;
	*ret_sq = *ret_cq = 4;
}

static int be_init(struct q_thr *t)
{
	(void)t;
	return 0;
}

static void be_fini(struct q_thr *t)
{
	log_.wakeups = t->qs[0].st->wakeups;
}

static int be_arm(struct q_thr *t)
{
	t->live = 1;
	put_nop(t);
	return 0;
}

static void be_on_cqe(struct q_thr *t, const struct io_uring_cqe *cqe)
{
	assert_true(cqe->res == 0 || cqe->res == -ETIME);
	note('c');
	/* as if it had come from this visit */
	if (log_.n == 1)
		say_more(&t->ring);
}

static void be_complete(struct q *q, uint16_t tag, int32_t res)
{
	(void)q;
	(void)tag;
	(void)res;
}

static void be_turn_end(struct q_thr *t)
{
	note('t');
	t->live = log_.more != 0 || log_.next != NOTHING;
	if (log_.next == MORE) {
		log_.more = 1;
		say_more(&t->ring);
	} else if (log_.next == TIME) {
		put_timeout(t);
	} else if (t->live) {
		put_nop(t);
	}
	log_.next = NOTHING;
}

#define NOTE_BE                                                                                    \
	{                                                                                          \
		.name = "note", .need = be_need, .init = be_init, .fini = be_fini,                 \
		.prepare = be_init, .arm = be_arm, .on_cqe = be_on_cqe, .complete = be_complete,   \
		.turn_end = be_turn_end,                                                           \
	}

const struct q_backend be_perio = NOTE_BE;
const struct q_backend be_batch = NOTE_BE;

static const struct tgt_ops no_tgt = { .name = "none" };

static void run(unsigned int more, int next, unsigned int poll_us, const char *want, uint64_t wakeups)
{
	static cpu_set_t anywhere;
	struct eng_cfg cfg = { .queues = 1,
			       .depth = 4,
			       .threads = 1,
			       .max_io = 4096,
			       .poll_us = poll_us,
			       .tgt = &no_tgt,
			       .nr_fds = 1,
			       .affinity = &anywhere };
	struct io_uring ring;
	struct eng *e;
	struct pollfd done = { .events = POLLIN };
	struct fail f;
	int r;

	need_uring(&ring, 4);
	io_uring_queue_exit(&ring);
	cfg.fds[0] = memfd_create("descriptors", MFD_CLOEXEC);
	assert_int_equal(ftruncate(cfg.fds[0], 1 << 20), 0);
	for (unsigned int tries = 0;;) {
		memset(&log_, 0, sizeof(log_));
		log_.more = more;
		log_.next = next;
		r = eng_start(&cfg, &e, &f);
		if (!uring_again(r, &tries))
			break;
	}
	assert_int_equal(r, 0);
	done.fd = eng_done_fd(e);
	assert_int_equal(poll(&done, 1, -1), 1);
	eng_finish(e, &f);
	assert_int_equal(f.err, 0);
	assert_string_equal(log_.seen, want);
	assert_int_equal(log_.wakeups, wakeups);
	close(cfg.fds[0]);
}

static void test_nothing_more(void **state)
{
	(void)state;
	run(0, NOTHING, 0, "ct", 1);
}

/* One visit for more in a turn: what has come by then is not kept waiting. */
static void test_more(void **state)
{
	(void)state;
	run(1, NOTHING, 0, "cgct", 1);
}

/* What is there when a thread looks is no wake-up. */
static void test_poll_finds(void **state)
{
	(void)state;
	run(0, NOTHING, CFG_POLL_US_MAX, "ct", 0);
	run(1, NOTHING, CFG_POLL_US_MAX, "cgct", 0);
}

/* Nor is what the kernel can post: one visit, and it is there. */
static void test_poll_visits(void **state)
{
	(void)state;
	run(0, MORE, CFG_POLL_US_MAX, "ctgct", 0);
}

/* It does not look for ever. */
static void test_poll_gives_up(void **state)
{
	(void)state;
	run(0, TIME, 100, "ctct", 1);
	run(0, TIME, 0, "ctct", 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_more),  cmocka_unit_test(test_more),
		cmocka_unit_test(test_poll_finds),    cmocka_unit_test(test_poll_visits),
		cmocka_unit_test(test_poll_gives_up),
	};

	alarm(WATCHDOG);
	return cmocka_run_group_tests_name("turn", tests, NULL, NULL);
}
