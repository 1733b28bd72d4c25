/* SPDX-License-Identifier: MIT */
/*
 * The whole engine on the batch path with this kernel's rings: threads, submit and wait, provided
 * buffers that the kernel itself uses up bit by bit. In place of the driver a pipe per queue hands
 * out tags: FETCH becomes a multishot read of it into the same buffers, PREP and COMMIT are
 * answered by no-ops with a result. Needs Linux 6.12 (incremental buffers); skipped before.
 */
#include "unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/queue.h"
#include "need_uring.h"
#include "target/target.h"

#define QUEUES_MAX 4
#define DEPTH_MAX 4096
#define DESC_SPACE (4096 * sizeof(struct ublksrv_io_desc))
#define WATCHDOG 200 /* s */

/* Linux 6.10 and 6.7, not in liburing 2.3 */
#define NOP_INJECT_RESULT (1U << 0)
#define OP_READ_MULTISHOT 49

/* ---- the driver -------------------------------------------------------------------------- */

static struct {
	unsigned int depth;
	int pipe[QUEUES_MAX][2];
	atomic_bool stopping;
	/* per tag: with the server or not, and how often its result was taken */
	atomic_bool out[QUEUES_MAX][DEPTH_MAX];
	atomic_uint taken[QUEUES_MAX];
	atomic_uint prepared[QUEUES_MAX];
	atomic_uint wrong; /* results for what was not out, or other results */
	atomic_uint partial, aborts;
	/* a slow target keeps all requests until so many fetches were aborted */
	unsigned int hold_until;
} drv;

static uint32_t op_of_queue(unsigned int q)
{
	return q % 2 ? UBLK_IO_OP_WRITE : UBLK_IO_OP_READ;
}

static void to_nop(struct io_uring_sqe *sqe, int32_t res)
{
	uint64_t ud = sqe->user_data;
	uint8_t skip = sqe->flags & IOSQE_CQE_SKIP_SUCCESS;

	io_uring_prep_nop(sqe);
	sqe->flags = skip;
	sqe->user_data = ud;
	sqe->rw_flags = NOP_INJECT_RESULT;
	sqe->len = (uint32_t)res;
}

static void to_read(struct io_uring_sqe *sqe, unsigned int q)
{
	uint64_t ud = sqe->user_data;
	uint16_t group = sqe->buf_group;

	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = OP_READ_MULTISHOT;
	sqe->flags = IOSQE_BUFFER_SELECT;
	sqe->fd = drv.pipe[q][0];
	sqe->off = (uint64_t)-1;
	sqe->buf_group = group;
	sqe->user_data = ud;
}

static void take_one(unsigned int q, const struct ublk_elem_header *e)
{
	int32_t want = op_of_queue(q) == UBLK_IO_OP_READ ? 4096 : 512;

	if (e->tag >= drv.depth || !atomic_exchange(&drv.out[q][e->tag], false) || e->result != want)
		atomic_fetch_add(&drv.wrong, 1);
	atomic_fetch_add(&drv.taken[q], 1);
}

/* Of several results every second time only some are taken. */
static int32_t take_results(const struct io_uring_sqe *sqe, const struct ublk_batch_io *cmd)
{
	static atomic_uint turn;
	unsigned int n = cmd->nr_elem, k = n;

	if (n > 1 && atomic_fetch_add(&turn, 1) % 2) {
		k = 1 + n / 3;
		atomic_fetch_add(&drv.partial, 1);
	}
	for (unsigned int i = 0; i < k; i++)
		take_one(cmd->q_id, (const void *)(uintptr_t)(sqe->addr + i * cmd->elem_bytes));
	return (int32_t)(k * cmd->elem_bytes);
}

static void translate(struct io_uring_sqe *sqe)
{
	struct ublk_batch_io cmd;

	if (sqe->opcode != IORING_OP_URING_CMD)
		return;
	memcpy(&cmd, sqe->cmd, sizeof(cmd));
	switch (sqe->cmd_op) {
	case UBLK_U_IO_PREP_IO_CMDS:
		atomic_fetch_add(&drv.prepared[cmd.q_id], cmd.nr_elem);
		to_nop(sqe, 0);
		return;
	case UBLK_U_IO_FETCH_IO_CMDS:
		if (!atomic_load(&drv.stopping)) {
			to_read(sqe, cmd.q_id);
			return;
		}
		/* as the driver of a device that goes away */
		to_nop(sqe, UBLK_IO_RES_ABORT);
		atomic_fetch_add(&drv.aborts, 1);
		return;
	case UBLK_U_IO_COMMIT_IO_CMDS:
		to_nop(sqe, take_results(sqe, &cmd));
		return;
	}
	to_nop(sqe, -EOPNOTSUPP);
}

static void translate_all(struct io_uring *ring)
{
	struct io_uring_sq *sq = &ring->sq;

	for (unsigned int i = sq->sqe_head; i != sq->sqe_tail; i++)
		translate(&sq->sqes[i & sq->ring_mask]);
}

/* ---- between the engine and liburing ----------------------------------------------------- */

typedef int submit_fn(struct io_uring *);
typedef int wait_fn(struct io_uring *, unsigned int);

static submit_fn *real_submit;
static wait_fn *real_wait;
static bool on_valgrind;

__attribute__((constructor)) static void find_real(void)
{
	const char *preload = getenv("LD_PRELOAD");

	real_submit = (submit_fn *)dlsym(RTLD_NEXT, "io_uring_submit");
	real_wait = (wait_fn *)dlsym(RTLD_NEXT, "io_uring_submit_and_wait");
	on_valgrind = preload && strstr(preload, "vgpreload");
}

int io_uring_submit(struct io_uring *ring)
{
	translate_all(ring);
	return real_submit(ring);
}

/* valgrind runs no other thread while one waits in io_uring_enter(2): see vg_wait.c */
int io_uring_submit_and_wait(struct io_uring *ring, unsigned int wait_nr)
{
	int r;

	translate_all(ring);
	if (!on_valgrind)
		return real_wait(ring, wait_nr);
	r = real_submit(ring);
	while (r >= 0 && io_uring_cq_ready(ring) < wait_nr) {
		poll(NULL, 0, 1);
		r = io_uring_get_events(ring);
	}
	return r;
}

/* ---- a target that takes its time --------------------------------------------------------- */

#define HOPS 5 /* turns until it has an answer */

static void hop(struct q *q, uint16_t tag, uint32_t aux)
{
	struct io_uring_sqe *sqe = q_sqe(q->thr);

	io_uring_prep_nop(sqe);
	sqe->user_data = ud_pack(UD_TARGET, aux, q->slot, tag);
}

static void slow_queue_io(struct q *q, uint16_t tag, const struct ublksrv_io_desc *desc)
{
	(void)desc;
	hop(q, tag, 1);
}

static void slow_io_done(struct q *q, uint16_t tag, uint32_t aux, int32_t res)
{
	if (res)
		q_complete(q, tag, res);
	else if (atomic_load(&drv.aborts) < drv.hold_until)
		hop(q, tag, aux);
	else if (aux < HOPS)
		hop(q, tag, aux + 1);
	else
		q_complete(q, tag, (int32_t)(q_desc(q, tag)->nr_sectors << 9));
}

static const struct tgt_ops slow_tgt = {
	.name = "slow", .queue_io = slow_queue_io, .io_done = slow_io_done
};

/* ---- the block layer --------------------------------------------------------------------- */

/* Gives tags of a queue out, as many as there are, up to total of them in all. */
static unsigned int give(unsigned int q, unsigned int total)
{
	uint16_t tags[512];
	unsigned int n = 0, most = 1 + (unsigned int)rand() % (rand() % 4 ? 16 : 512);

	for (unsigned int i = 0, t = (unsigned int)rand(); i < drv.depth && n < most && n < total;
	     i++, t++)
		if (!atomic_load(&drv.out[q][t % drv.depth])) {
			atomic_store(&drv.out[q][t % drv.depth], true);
			tags[n++] = (uint16_t)(t % drv.depth);
		}
	if (n)
		assert_int_equal(write(drv.pipe[q][1], tags, 2 * n), 2 * n);
	else
		sched_yield();
	return n;
}

static void run_ios(struct eng *e, unsigned int queues, unsigned int per_queue)
{
	struct pollfd done = { .fd = eng_done_fd(e), .events = POLLIN };
	unsigned int left[QUEUES_MAX], open = queues;

	for (unsigned int q = 0; q < queues; q++)
		left[q] = per_queue;
	while (open) {
		open = 0;
		for (unsigned int q = 0; q < queues; q++) {
			left[q] -= give(q, left[q]);
			open += left[q] != 0;
		}
		assert_int_equal(poll(&done, 1, 0), 0); /* no thread has given up */
	}
}

static void wait_taken(struct eng *e, unsigned int queues, unsigned int per_queue)
{
	struct pollfd done = { .fd = eng_done_fd(e), .events = POLLIN };

	for (unsigned int q = 0; q < queues; q++)
		while (atomic_load(&drv.taken[q]) < per_queue) {
			assert_int_equal(poll(&done, 1, 0), 0);
			sched_yield();
		}
}

/* ---- cases ------------------------------------------------------------------------------ */

static int memfd;

static void drv_start(unsigned int queues, unsigned int depth, unsigned int hold_until)
{
	memset(&drv, 0, sizeof(drv));
	drv.hold_until = hold_until;
	drv.depth = depth;
	for (unsigned int q = 0; q < queues; q++) {
		assert_int_equal(pipe2(drv.pipe[q], O_CLOEXEC | O_NONBLOCK), 0);
		for (unsigned int tag = 0; tag < depth; tag++) {
			struct ublksrv_io_desc d = {
				.op_flags = op_of_queue(q),
				.nr_sectors = op_of_queue(q) == UBLK_IO_OP_READ ? 8 : 1,
			};

			assert_int_equal(pwrite(memfd, &d, sizeof(d),
						(off_t)(q * DESC_SPACE + tag * sizeof(d))),
					 sizeof(d));
		}
	}
}

/* The device is deleted: fetches end, all threads leave by themselves. */
static void delete_device(struct eng *e, unsigned int queues)
{
	struct pollfd done = { .fd = eng_done_fd(e), .events = POLLIN };
	struct fail f = { 0 };

	atomic_store(&drv.stopping, true);
	for (unsigned int q = 0; q < queues; q++)
		close(drv.pipe[q][1]);
	assert_int_equal(poll(&done, 1, -1), 1);
	eng_finish(e, &f);
	if (f.err)
		fail_msg("%s", f.text);
}

static void ring_case(const struct tgt_ops *tgt, unsigned int queues, unsigned int threads,
		      unsigned int depth, unsigned int per_queue, bool hold)
{
	static cpu_set_t anywhere[QUEUES_MAX];
	struct eng_cfg cfg = {
		.id = 1,
		.queues = queues,
		.depth = depth,
		.threads = threads,
		.max_io = 4096,
		.batch = true,
		.tgt = tgt,
		.fds = { memfd },
		.nr_fds = 1,
		.affinity = anywhere,
	};
	struct fail f = { 0 };
	struct eng *e = NULL;
	unsigned int tries = 0;

	drv_start(queues, depth, hold ? (queues > threads ? queues : threads) : 0);
	while (uring_again(eng_start(&cfg, &e, &f), &tries))
		;
	if (!e)
		fail_msg("%s", f.text);
	run_ios(e, queues, per_queue);
	/* the slow target still has some: threads stay for what they have taken */
	if (tgt != &slow_tgt)
		wait_taken(e, queues, per_queue);
	delete_device(e, queues);
	assert_int_equal(atomic_load(&drv.wrong), 0);
	for (unsigned int q = 0; q < queues; q++) {
		assert_int_equal(atomic_load(&drv.prepared[q]), depth);
		assert_int_equal(atomic_load(&drv.taken[q]), per_queue);
		for (unsigned int tag = 0; tag < depth; tag++)
			assert_false(atomic_load(&drv.out[q][tag]));
		close(drv.pipe[q][0]);
	}
}

static bool kernel_can(void)
{
	static uint8_t page[4096] __attribute__((aligned(4096)));
	struct abi_buf_reg reg = {
		.ring_addr = (uintptr_t)page, .ring_entries = 2, .flags = ABI_IOU_PBUF_RING_INC
	};
	struct io_uring ring;
	bool can;

	need_uring(&ring, 4);
	can = io_uring_register_buf_ring(&ring, (struct io_uring_buf_reg *)&reg, 0) == 0;
	io_uring_queue_exit(&ring);
	return can;
}

/* Queues, threads, depth, requests per queue. */
static const unsigned int cases[][4] = {
	{ 1, 1, 1, 2000 },  { 1, 1, 2, 3000 },	{ 1, 1, 128, 20000 }, { 1, 1, 4096, 20000 },
	{ 4, 1, 64, 5000 }, { 4, 2, 16, 5000 }, { 1, 4, 128, 20000 }, { 2, 3, 32, 10000 },
};

static void need_kernel(void)
{
	if (!kernel_can()) {
		print_message("this kernel has no incremental buffers (Linux 6.12)\n");
		skip();
	}
}

static void all_cases(const struct tgt_ops *tgt)
{
	need_kernel();
	for (size_t i = 0; i < COUNT_OF(cases); i++)
		ring_case(tgt, cases[i][0], cases[i][1], cases[i][2], cases[i][3], false);
}

static void test_null_target(void **state)
{
	(void)state;
	all_cases(&tgt_null);
}

static void test_slow_target(void **state)
{
	(void)state;
	all_cases(&slow_tgt);
}

/* Requests that outlast all fetches: the last results of all go out before the threads end. */
static void test_last_results(void **state)
{
	(void)state;
	need_kernel();
	for (unsigned int held = 1; held <= 8; held++) {
		ring_case(&slow_tgt, 1, 1, 8, held, true);
		ring_case(&slow_tgt, 4, 1, 8, held, true);
		ring_case(&slow_tgt, 1, 4, 8, held, true);
		ring_case(&slow_tgt, 4, 4, 8, held, true);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_null_target),
		cmocka_unit_test(test_slow_target),
		cmocka_unit_test(test_last_results),
	};

	memfd = memfd_create("descriptors", MFD_CLOEXEC);
	if (memfd < 0 || ftruncate(memfd, QUEUES_MAX * (off_t)DESC_SPACE) < 0)
		return 1;
	alarm(WATCHDOG);
	return cmocka_run_group_tests_name("batch_ring", tests, NULL, NULL);
}
