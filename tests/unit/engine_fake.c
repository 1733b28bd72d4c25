/* SPDX-License-Identifier: MIT */
#include "engine_fake.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "need_uring.h"
#include "target/target.h"

/* the driver's distance between the descriptors of two queues (driver-notes.md) */
#define DESC_SPACE (4096 * sizeof(struct ublksrv_io_desc))

struct plan plan = { .lock = PTHREAD_MUTEX_INITIALIZER };

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
	if (planned(t, RUN) || planned(t, END_ONE) || plan.phase == END) {
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

int creatable = -1;

/* clang links its thread sanitizer statically: no function can stand in front of its own */
#if defined(__clang__)
#if __has_feature(thread_sanitizer)
#define NO_LIMIT
#endif
#endif

#ifdef NO_LIMIT
const bool creatable_works = false;
#else
const bool creatable_works = true;

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
#endif

/* ---- cases ------------------------------------------------------------------------------ */

int memfd;

int count_entries(const char *dir)
{
	DIR *d = opendir(dir);
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

void plan_set(enum phase phase, unsigned int thread, int err)
{
	memset(plan.thr, 0, sizeof(plan.thr));
	plan.phase = phase;
	plan.thread = thread;
	plan.err = err;
}

int start(unsigned int queues, unsigned int threads, bool batch, struct eng **ret, struct fail *f)
{
	static cpu_set_t anywhere[MAX];
	struct io_uring ring;
	unsigned int tries = 0;
	int r, can = creatable;
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

	need_uring(&ring, 2);
	io_uring_queue_exit(&ring);
	threads_of_case = threads;
	do {
		plan_set(plan.phase, plan.thread, plan.err);
		creatable = can;
		r = eng_start(&cfg, ret, f);
	} while (uring_again(r, &tries));
	return r;
}

bool engine_fake_init(void)
{
	memfd = memfd_create("descriptors", MFD_CLOEXEC);
	if (memfd < 0 || ftruncate(memfd, MAX * (off_t)DESC_SPACE) < 0)
		return false;
	for (unsigned int q = 0; q < MAX; q++)
		for (unsigned int tag = 0; tag < DEPTH; tag++) {
			struct ublksrv_io_desc d = { .start_sector = q, .addr = tag };
			off_t at = (off_t)(q * DESC_SPACE + tag * sizeof(d));

			if (pwrite(memfd, &d, sizeof(d), at) != (ssize_t)sizeof(d))
				return false;
		}
	return true;
}
