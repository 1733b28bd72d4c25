/* SPDX-License-Identifier: MIT */
/*
 * The engine with back ends and a target of its own: who serves what, start that fails in every
 * phase, stop and end. The descriptors are a memfd's.
 * UNIT: tests/unit/vg_wait.o cli/engine/engine.o cli/engine/queue.o cli/engine/fixbuf.o cli/engine/iobuf.o cli/msg.o cli/util/num.o
 */
#include "unit.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/queue.h"
#include "target/target.h"

#define MAX 5 /* queues and threads */
#define DEPTH 8
#define MAX_IO 8192
/* the driver's distance between the descriptors of two queues (driver-notes.md) */
#define DESC_SPACE (4096 * sizeof(struct ublksrv_io_desc))
#define WATCHDOG 120 /* s: a start that hangs ends the test */

/* ---- back ends that note what they are given -------------------------------------------- */

/* Where a thread is told to fail. RUN: by itself while it serves; END: it just ends. */
enum phase { NEVER, RING, INIT, PREPARE, ARM, RUN, END };

struct seen {
	bool here;
	const char *be;
	unsigned int nr_qs, prepared, armed, finished;
	struct q qs[MAX];
};

static struct {
	pthread_mutex_t lock;
	enum phase phase;
	unsigned int thread; /* that fails; others do not */
	int err;
	struct seen thr[MAX];
} plan = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int planned(const struct q_thr *t, enum phase phase)
{
	return plan.phase == phase && plan.thread == t->index ? -plan.err : 0;
}

static void fake_need(const struct q_thr *t, unsigned int *ret_sq, unsigned int *ret_cq)
{
	(void)t;
	*ret_sq = *ret_cq = 4;
}

static int fake_init(struct q_thr *t)
{
	struct seen *s = &plan.thr[t->index];

	pthread_mutex_lock(&plan.lock);
	s->here = true;
	s->be = t->be->name;
	s->nr_qs = t->nr_qs;
	for (unsigned int i = 0; i < t->nr_qs; i++)
		s->qs[i] = t->qs[i];
	pthread_mutex_unlock(&plan.lock);
	return planned(t, INIT);
}

static void fake_fini(struct q_thr *t)
{
	pthread_mutex_lock(&plan.lock);
	plan.thr[t->index].finished++;
	pthread_mutex_unlock(&plan.lock);
}

static int fake_prepare(struct q_thr *t)
{
	pthread_mutex_lock(&plan.lock);
	plan.thr[t->index].prepared++;
	pthread_mutex_unlock(&plan.lock);
	return planned(t, PREPARE);
}

static unsigned int threads_of_case;

/* All threads have prepared before the first one arms. */
static bool all_prepared(void)
{
	unsigned int n = 0;

	pthread_mutex_lock(&plan.lock);
	for (unsigned int i = 0; i < MAX; i++)
		n += plan.thr[i].prepared;
	pthread_mutex_unlock(&plan.lock);
	return n == threads_of_case;
}

static int fake_arm(struct q_thr *t)
{
	struct io_uring_sqe *sqe;

	if (!all_prepared())
		return -EILSEQ;
	pthread_mutex_lock(&plan.lock);
	plan.thr[t->index].armed++;
	pthread_mutex_unlock(&plan.lock);
	t->live = 1;
	if (planned(t, RUN) || plan.phase == END) {
		sqe = q_sqe(t);
		io_uring_prep_nop(sqe);
		sqe->user_data = ud_pack(UD_BACKEND, 0, 0, 0);
	}
	return planned(t, ARM);
}

static void fake_on_cqe(struct q_thr *t, const struct io_uring_cqe *cqe)
{
	(void)cqe;
	if (plan.phase == RUN)
		q_thr_fail(t, -plan.err, "on purpose");
	t->live = 0;
}

static void fake_complete(struct q *q, uint16_t tag, int32_t res)
{
	(void)q;
	(void)tag;
	(void)res;
}

static void fake_turn_end(struct q_thr *t)
{
	(void)t;
}

#define FAKE_BE(text)                                                                              \
	{                                                                                          \
		.name = (text), .need = fake_need, .init = fake_init, .fini = fake_fini,           \
		.prepare = fake_prepare, .arm = fake_arm, .on_cqe = fake_on_cqe,                   \
		.complete = fake_complete, .turn_end = fake_turn_end,                              \
	}

const struct q_backend be_perio = FAKE_BE("fake per-io");
const struct q_backend be_batch = FAKE_BE("fake batch");

static const struct tgt_ops fake_tgt = { .name = "fake", .tag_size = 24 };

/* ---- threads that cannot be created ------------------------------------------------------ */

static int creatable = -1; /* threads that still can; -1: all */

typedef int create_fn(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int pthread_create(pthread_t *tid, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	create_fn *real = (create_fn *)dlsym(RTLD_NEXT, "pthread_create");

	if (!creatable)
		return EAGAIN;
	if (creatable > 0)
		creatable--;
	return real(tid, attr, fn, arg);
}

/* ---- cases ------------------------------------------------------------------------------ */

static int memfd;

static int count_entries(const char *dir)
{
	DIR *d = opendir(dir);
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void plan_set(enum phase phase, unsigned int thread, int err)
{
	memset(plan.thr, 0, sizeof(plan.thr));
	plan.phase = phase;
	plan.thread = thread;
	plan.err = err;
}

static int start(unsigned int queues, unsigned int threads, bool batch, struct eng **ret,
		 struct fail *f)
{
	static cpu_set_t anywhere[MAX];
	struct eng_cfg cfg = {
		.id = 3,
		.queues = queues,
		.depth = DEPTH,
		.threads = threads,
		.max_io = MAX_IO,
		.batch = batch,
		.tgt = &fake_tgt,
		.fds = { memfd, plan.phase == RING ? 1000000 : memfd },
		.nr_fds = 2,
		.affinity = anywhere,
	};

	threads_of_case = threads;
	return eng_start(&cfg, ret, f);
}

static void check_queue(unsigned int t, unsigned int k, const struct q *first)
{
	const struct q *q = &plan.thr[t].qs[k];

	unit_check(q->slot == k);
	unit_check(q->depth == DEPTH);
	unit_check(q->buf && q->buf_size == MAX_IO);
	unit_check(q->tag_priv);
	/* threads that share a queue share its descriptors, buffers and target state */
	unit_check(!first || (first->desc == q->desc && first->buf == q->buf &&
			      first->tag_priv == q->tag_priv));
}

static void check_map(unsigned int queues, unsigned int threads)
{
	unsigned int servers[MAX] = { 0 }, preparers[MAX] = { 0 };
	const struct q *first[MAX] = { NULL };

	for (unsigned int t = 0; t < threads; t++) {
		const struct seen *s = &plan.thr[t];

		unit_check(s->here && s->prepared == 1 && s->armed == 1 && s->finished == 1);
		unit_check(s->nr_qs >= 1);
		/* each has as many as the others, or one more */
		unit_check(queues <= threads ? s->nr_qs == 1 : s->nr_qs - queues / threads <= 1);
		for (unsigned int k = 0; k < s->nr_qs; k++) {
			unsigned int id = s->qs[k].id;

			unit_check(id < queues);
			check_queue(t, k, first[id]);
			first[id] = first[id] ? first[id] : &s->qs[k];
			servers[id]++;
			preparers[id] += s->qs[k].prepares;
		}
	}
	for (unsigned int q = 0; q < queues; q++) {
		unit_check(preparers[q] == 1);
		unit_check(threads <= queues ? servers[q] == 1 : servers[q] - threads / queues <= 1);
		unit_check(servers[q] >= 1);
		for (unsigned int other = 0; other < q; other++)
			unit_check(first[q]->buf != first[other]->buf &&
				   first[q]->desc != first[other]->desc &&
				   first[q]->tag_priv != first[other]->tag_priv);
	}
}

/* Queue q's descriptors are those that the driver puts there for it. */
static void check_descriptors(unsigned int queues, unsigned int threads)
{
	for (unsigned int t = 0; t < threads; t++)
		for (unsigned int k = 0; k < plan.thr[t].nr_qs; k++) {
			const struct q *q = &plan.thr[t].qs[k];

			unit_check(q->id < queues);
			for (uint16_t tag = 0; tag < DEPTH; tag++) {
				unit_check(q_desc(q, tag)->start_sector == q->id);
				unit_check(q_desc(q, tag)->addr == tag);
			}
		}
}

static void test_map(void **state)
{
	(void)state;
	for (unsigned int queues = 1; queues <= MAX; queues++)
		for (unsigned int threads = 1; threads <= MAX; threads++) {
			struct fail f = { .err = 99 };
			struct eng *e = NULL;

			unit_case("%u queues, %u threads", queues, threads);
			plan_set(NEVER, 0, 0);
			unit_check(start(queues, threads, true, &e, &f) == 0);
			unit_check(e);
			check_descriptors(queues, threads);
			eng_finish(e, &f);
			unit_check(f.err == 0);
			check_map(queues, threads);
		}
}

static void test_choice_of_back_end(void **state)
{
	struct fail f;
	struct eng *e;

	(void)state;
	for (int batch = 0; batch < 2; batch++) {
		plan_set(NEVER, 0, 0);
		assert_int_equal(start(2, 2, batch, &e, &f), 0);
		eng_finish(e, &f);
		for (int t = 0; t < 2; t++)
			assert_string_equal(plan.thr[t].be, batch ? "fake batch" : "fake per-io");
	}
}

/* A start that fails gives the error of the thread that failed, and leaves nothing. */
static void failed_start(enum phase phase, unsigned int threads, unsigned int failing)
{
	static const char *const what[] = {
		[RING] = "ring",
		[INIT] = "prepare",
		[PREPARE] = "prepare",
		[ARM] = "fetch",
	};
	int want = phase == RING ? EBADF : EUCLEAN;
	struct fail f = { 0 };
	struct eng *e = NULL;
	char name[32];
	int r;

	unit_case("phase %d, thread %u of %u", (int)phase, failing, threads);
	plan_set(phase, failing, EUCLEAN);
	r = start(3, threads, true, &e, &f);
	unit_case("phase %d, thread %u of %u: %d '%s'", (int)phase, failing, threads, r, f.text);
	unit_check(r == -want && f.err == want);
	unit_check(!e);
	snprintf(name, sizeof(name), "I/O thread %u: ", phase == RING ? 0 : failing);
	unit_check(strstr(f.text, name) == f.text);
	unit_check(strstr(f.text, what[phase]));
	unit_check(strstr(f.text, strerror(want)));
	for (unsigned int t = 0; t < threads; t++) {
		unit_check(plan.thr[t].finished == (phase == RING ? 0 : 1));
		unit_check(phase == ARM || !plan.thr[t].armed);
	}
}

static void test_failed_start(void **state)
{
	static const enum phase phases[] = { RING, INIT, PREPARE, ARM };
	int fds = count_entries("/proc/self/fd"), tasks = count_entries("/proc/self/task");

	(void)state;
	for (size_t p = 0; p < COUNT_OF(phases); p++)
		for (unsigned int threads = 1; threads <= MAX; threads++)
			for (unsigned int failing = 0; failing < threads; failing++)
				failed_start(phases[p], threads, failing);
	assert_int_equal(count_entries("/proc/self/fd"), fds);
	assert_int_equal(count_entries("/proc/self/task"), tasks);
}

/* A thread that fails to arm is often back before the others left the phase in front of it. */
static void test_failed_arm_races(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 400; i++)
		failed_start(ARM, 4, i % 4);
}

static void test_no_thread(void **state)
{
	int fds = count_entries("/proc/self/fd"), tasks = count_entries("/proc/self/task");

	(void)state;
	for (unsigned int threads = 1; threads <= 4; threads++)
		for (int can = 0; can < (int)threads; can++) {
			struct fail f = { 0 };
			struct eng *e = NULL;
			char name[32];
			int r;

			plan_set(NEVER, 0, 0);
			creatable = can;
			r = start(2, threads, true, &e, &f);
			creatable = -1;
			unit_case("%d of %u threads: %d '%s'", can, threads, r, f.text);
			unit_check(r == -EAGAIN && f.err == EAGAIN && !e);
			snprintf(name, sizeof(name), "I/O thread %d: cannot be created", can);
			unit_check(strstr(f.text, name) == f.text);
			for (int t = 0; t < can; t++)
				unit_check(plan.thr[t].finished == 1 && !plan.thr[t].armed);
		}
	assert_int_equal(count_entries("/proc/self/fd"), fds);
	assert_int_equal(count_entries("/proc/self/task"), tasks);
}

static void test_no_descriptors(void **state)
{
	int fds = count_entries("/proc/self/fd"), saved = memfd;
	struct eng *e = NULL;
	struct fail f = { 0 };

	(void)state;
	plan_set(NEVER, 0, 0);
	memfd = -1;
	assert_int_equal(start(2, 2, true, &e, &f), -EBADF);
	memfd = saved;
	assert_int_equal(f.err, EBADF);
	assert_null(e);
	assert_int_equal(count_entries("/proc/self/fd"), fds);
}

static bool is_done(struct eng *e, int timeout_ms)
{
	struct pollfd p = { .fd = eng_done_fd(e), .events = POLLIN };

	return poll(&p, 1, timeout_ms) == 1;
}

static void test_stop(void **state)
{
	struct fail f = { 0 };
	struct eng *e;

	(void)state;
	plan_set(NEVER, 0, 0);
	assert_int_equal(start(2, 4, true, &e, &f), 0);
	assert_false(is_done(e, 0));
	eng_stop(e);
	assert_true(is_done(e, -1));
	f.err = 99;
	eng_finish(e, &f);
	assert_int_equal(f.err, 0);
}

/* All threads see the end of the device and leave: done without a reason. */
static void test_end(void **state)
{
	struct fail f = { .err = 99 };
	struct eng *e;

	(void)state;
	plan_set(END, 0, 0);
	assert_int_equal(start(3, 5, true, &e, &f), 0);
	assert_true(is_done(e, -1));
	eng_finish(e, &f);
	assert_int_equal(f.err, 0);
}

/* One thread that fails takes all along, and its reason is the one that is told. */
static void test_failure_while_serving(void **state)
{
	(void)state;
	for (unsigned int failing = 0; failing < 4; failing++) {
		struct fail f = { 0 };
		struct eng *e;
		char name[32];

		plan_set(RUN, failing, ENOLINK);
		assert_int_equal(start(2, 4, true, &e, &f), 0);
		assert_true(is_done(e, -1));
		eng_finish(e, &f);
		assert_int_equal(f.err, ENOLINK);
		snprintf(name, sizeof(name), "I/O thread %u: on purpose", failing);
		assert_ptr_equal(strstr(f.text, name), f.text);
	}
}

static int make_descriptors(void)
{
	int fd = memfd_create("descriptors", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, MAX * (off_t)DESC_SPACE) < 0)
		return -1;
	for (unsigned int q = 0; q < MAX; q++)
		for (unsigned int tag = 0; tag < DEPTH; tag++) {
			struct ublksrv_io_desc d = { .start_sector = q, .addr = tag };
			off_t at = (off_t)(q * DESC_SPACE + tag * sizeof(d));

			if (pwrite(fd, &d, sizeof(d), at) != (ssize_t)sizeof(d))
				return -1;
		}
	return fd;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_map),
		cmocka_unit_test(test_choice_of_back_end),
		cmocka_unit_test(test_failed_start),
		cmocka_unit_test(test_failed_arm_races),
		cmocka_unit_test(test_no_thread),
		cmocka_unit_test(test_no_descriptors),
		cmocka_unit_test(test_stop),
		cmocka_unit_test(test_end),
		cmocka_unit_test(test_failure_while_serving),
	};

	memfd = make_descriptors();
	if (memfd < 0)
		return 1;
	alarm(WATCHDOG);
	return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
