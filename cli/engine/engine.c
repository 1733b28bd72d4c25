/* SPDX-License-Identifier: MIT */
#include "engine/engine.h"
#include "engine/tgt_ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/engine_int.h"
#include "engine/hold.h"
#include "engine/iobuf.h"
#include "util/num.h"

/* bytes; the loop needs little, and there can be many threads */
#define THREAD_STACK (128 * 1024)

static int eng_phase_locked(struct eng *e, int err)
{
	unsigned int mine = e->phase;

	if (err && !e->phase_err)
		e->phase_err = err;
	if (++e->arrived == e->cfg.threads) {
		e->arrived = 0;
		e->phase++;
		e->phase_result = e->phase_err;
		pthread_cond_broadcast(&e->cond);
	}
	while (e->phase == mine)
		pthread_cond_wait(&e->cond, &e->lock);
	return e->phase_result;
}

int eng_phase(struct eng *e, int err)
{
	int r;

	pthread_mutex_lock(&e->lock);
	r = eng_phase_locked(e, err);
	pthread_mutex_unlock(&e->lock);
	return r;
}

void eng_note_no_flusher(struct eng *e, int err)
{
	pthread_mutex_lock(&e->lock);
	e->flusher_errno = err;
	pthread_mutex_unlock(&e->lock);
}

int eng_flusher_errno(const struct eng *e)
{
	return e->flusher_errno;
}

enum huge_pages eng_huge_pages(const struct eng *e)
{
	enum huge_pages lowest = HUGE_RESERVED;

	for (unsigned int i = 0; i < e->cfg.queues; i++)
		if (e->hw[i].mem.huge < lowest)
			lowest = e->hw[i].mem.huge;
	return lowest;
}

static size_t desc_map_len(unsigned int depth)
{
	return num_round_up(depth * sizeof(struct ublksrv_io_desc), (uint64_t)sysconf(_SC_PAGESIZE));
}

/* The limit counts for users other than root. */
static int cannot_lock(size_t bytes, int err, struct fail *f)
{
	struct rlimit now;

	if (getrlimit(RLIMIT_MEMLOCK, &now) < 0 || now.rlim_cur == RLIM_INFINITY)
		return fail_errno(f, err, "cannot lock %zu MiB of I/O buffers per queue", bytes >> 20);
	return fail_errno(
		f, err,
		"cannot lock %zu MiB of I/O buffers per queue, the limit is %llu KiB (RLIMIT_MEMLOCK)",
		bytes >> 20, (unsigned long long)now.rlim_cur >> 10);
}

/* Descriptors of a queue; the driver spaces the queues as if each had the largest depth. */
static int hw_map(struct eng *e, struct q_hw *hw, struct fail *f)
{
	const struct iobuf_mode *mode = iobuf_mode(e->cfg.mode);
	off_t off = UBLKSRV_CMD_BUF_OFFSET + hw->id * (off_t)desc_map_len(UBLK_MAX_QUEUE_DEPTH);
	size_t len;
	void *p;
	int r;

	hw->desc_len = desc_map_len(e->cfg.depth);
	p = mmap(NULL, hw->desc_len, PROT_READ, MAP_SHARED | MAP_POPULATE, e->cfg.fds[Q_FILE_CDEV],
		 off);
	if (p == MAP_FAILED)
		return -errno;
	hw->desc = p;
	if (mode->server_buf) {
		if (__builtin_mul_overflow(e->cfg.depth, e->cfg.max_io, &len))
			return fail_set(f, ENOMEM,
					"no address space here for I/O buffers of that size");
		r = bufmem_alloc(len, e->cfg.lock_bufs, e->cfg.huge_bufs, &hw->mem);
		if (r < 0 && e->cfg.lock_bufs)
			return cannot_lock(len, -r, f);
		if (r < 0)
			return r;
	}
	if (e->cfg.tgt->tag_size) {
		hw->tag_priv = calloc(e->cfg.depth, e->cfg.tgt->tag_size);
		if (!hw->tag_priv)
			return -ENOMEM;
	}
	return 0;
}

static void hw_unmap(struct q_hw *hw)
{
	if (hw->desc)
		munmap((void *)hw->desc, hw->desc_len);
	bufmem_free(&hw->mem);
	free(hw->tag_priv);
}

/* One block for each queue of each thread. */
static unsigned int nr_blocks(const struct eng *e)
{
	return e->cfg.threads > e->cfg.queues ? e->cfg.threads : e->cfg.queues;
}

static int stats_open(struct eng *e)
{
	const unsigned int n = nr_blocks(e);
	void *p;

	e->stats_len = sizeof(struct st_head) + n * sizeof(struct st_block);
	/* readers map it: it stays as long as it is */
	e->stats_fd = memfd_create(ST_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (e->stats_fd < 0 || ftruncate(e->stats_fd, (off_t)e->stats_len) < 0 ||
	    fcntl(e->stats_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	p = mmap(NULL, e->stats_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, e->stats_fd,
		 0);
	if (p == MAP_FAILED)
		return -errno;
	e->stats = p;
	*e->stats = (struct st_head){
		.magic = ST_MAGIC, .nr_blocks = n, .block_bytes = sizeof(struct st_block)
	};
	e->since = calloc((size_t)n * e->cfg.depth, sizeof(*e->since));
	return e->since ? 0 : -ENOMEM;
}

static void stats_close(struct eng *e)
{
	if (e->stats)
		munmap(e->stats, e->stats_len);
	if (e->stats_fd >= 0)
		close(e->stats_fd);
	free(e->since);
}

static void q_take_block(struct eng *e, struct q *q, unsigned int n)
{
	q->st = (struct st_block *)(void *)(e->stats + 1) + n;
	q->st->thread = q->thr->index;
	q->st->queue = q->id;
	q->since = e->since + (size_t)n * e->cfg.depth;
}

static int thr_add_queues(struct eng *e, struct q_thr *t)
{
	unsigned int n = 0;

	t->qs = calloc(e->cfg.queues, sizeof(*t->qs));
	if (!t->qs)
		return -ENOMEM;
	for (unsigned int i = 0; i < e->cfg.queues; i++) {
		struct q_hw *hw = &e->hw[i];

		if (!cfg_serves(e->cfg.threads, e->cfg.queues, t->index, i))
			continue;
		t->qs[n] = (struct q){
			.thr = t,
			.hw = hw,
			.id = hw->id,
			.slot = (uint16_t)n,
			.depth = (uint16_t)e->cfg.depth,
			.desc = hw->desc,
			.buf = hw->mem.p,
			.buf_size = e->cfg.max_io,
			.tag_priv = hw->tag_priv,
			.tgt_priv = e->cfg.tgt_priv,
			.mode = iobuf_mode(e->cfg.mode),
			.cdev = e->cfg.fds[Q_FILE_CDEV],
			.buf_base = (uint16_t)(n * e->cfg.depth),
			.prepares = hw->nr_threads == 0,
		};
		q_take_block(e, &t->qs[n], e->nr_taken++);
		hw->nr_threads++;
		n++;
	}
	t->nr_qs = n;
	return 0;
}

static int eng_build(struct eng *e, struct fail *f)
{
	int r;

	e->hw = calloc(e->cfg.queues, sizeof(*e->hw));
	e->thr = calloc(e->cfg.threads, sizeof(*e->thr));
	e->stop_fd = eventfd(0, EFD_CLOEXEC);
	e->leave_fd = eventfd(0, EFD_CLOEXEC);
	e->done_fd = eventfd(0, EFD_CLOEXEC);
	if (!e->hw || !e->thr)
		return -ENOMEM;
	if (e->stop_fd < 0 || e->leave_fd < 0 || e->done_fd < 0)
		return -errno;
	r = stats_open(e);
	if (r < 0)
		return r;
	for (unsigned int i = 0; i < e->cfg.queues; i++) {
		e->hw[i].id = (uint16_t)i;
		e->hw[i].cpus = e->cfg.affinity[i];
		r = hw_map(e, &e->hw[i], f);
		if (r < 0)
			return r;
	}
	for (unsigned int i = 0; i < e->cfg.threads; i++) {
		struct q_thr *t = &e->thr[i];

		t->eng = e;
		t->index = i;
		t->poll_ns = e->cfg.poll_us * 1000ULL;
		t->be = e->cfg.batch ? &be_batch : &be_perio;
		t->tgt = e->cfg.tgt;
		t->fixed_bufs = e->cfg.fixed_bufs;
		r = thr_add_queues(e, t);
		if (r < 0)
			return r;
	}
	return 0;
}

static void *thr_main(void *arg)
{
	struct q_thr *t = arg;
	struct eng *e = t->eng;
	bool last;

	q_thr_run(t);
	/* one thread that failed takes all along: a device without a queue hangs its users */
	if (t->fail.err)
		eng_stop(e);
	pthread_mutex_lock(&e->lock);
	last = --e->running == 0;
	pthread_mutex_unlock(&e->lock);
	if (last)
		eventfd_write(e->done_fd, 1);
	return NULL;
}

/* Threads that cannot be created count as arrived with an error, in both phases. */
static void spawn(struct eng *e)
{
	pthread_attr_t attr;
	unsigned int missing = 0;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, THREAD_STACK);
	pthread_mutex_lock(&e->lock);
	for (unsigned int i = 0; i < e->cfg.threads; i++) {
		struct q_thr *t = &e->thr[i];
		int r = missing ? 0 : pthread_create(&t->tid, &attr, thr_main, t);

		t->started = !missing && !r;
		if (t->started) {
			e->running++;
			continue;
		}
		if (r) {
			fail_errno(&t->fail, r, "I/O thread %u: cannot be created", i);
			e->phase_err = -r;
		}
		missing++;
	}
	e->arrived += missing;
	if (missing == e->cfg.threads)
		e->phase++;
	pthread_mutex_unlock(&e->lock);
	pthread_attr_destroy(&attr);
}

/* Waits for the end of both phases, or of the first one when it failed. */
static int wait_started(struct eng *e)
{
	int r;

	pthread_mutex_lock(&e->lock);
	while (e->phase < 1 || (e->phase < 2 && !e->phase_err))
		pthread_cond_wait(&e->cond, &e->lock);
	r = e->phase_err;
	pthread_mutex_unlock(&e->lock);
	return r;
}

int eng_start(const struct eng_cfg *cfg, struct eng **ret, struct fail *f)
{
	struct eng *e = calloc(1, sizeof(*e));
	struct fail why = { 0 };
	int r;

	if (!e)
		return fail_errno(f, ENOMEM, "cannot start the I/O engine");
	e->cfg = *cfg;
	e->stop_fd = e->leave_fd = e->done_fd = e->stats_fd = -1;
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->cond, NULL);
	r = eng_build(e, &why);
	e->cfg.affinity = NULL;
	f->err = 0;
	if (!r) {
		spawn(e);
		r = wait_started(e);
	}
	if (!r) {
		*ret = e;
		return 0;
	}
	eng_finish(e, f);
	if (!f->err && why.err)
		*f = why;
	return f->err ? -f->err : fail_errno(f, -r, "cannot start the I/O engine");
}

int eng_done_fd(const struct eng *e)
{
	return e->done_fd;
}

void eng_stop(struct eng *e)
{
	if (e->stop_fd >= 0)
		eventfd_write(e->stop_fd, 1);
}

int eng_leave(struct eng *e)
{
	int r = e->cfg.batch ? hold_requests(e->cfg.fds[Q_FILE_CDEV]) : 0;

	/* behind what the driver has passed on: a ring hands completions out in their order */
	if (r == 0)
		eventfd_write(e->leave_fd, 1);
	return r;
}

void eng_finish(struct eng *e, struct fail *f)
{
	f->err = 0;
	eng_stop(e);
	for (unsigned int i = 0; e->thr && i < e->cfg.threads; i++) {
		if (e->thr[i].started)
			pthread_join(e->thr[i].tid, NULL);
		if (e->thr[i].fail.err && !f->err)
			*f = e->thr[i].fail;
		free(e->thr[i].qs);
	}
	for (unsigned int i = 0; e->hw && i < e->cfg.queues; i++)
		hw_unmap(&e->hw[i]);
	free(e->thr);
	free(e->hw);
	if (e->stop_fd >= 0)
		close(e->stop_fd);
	stats_close(e);
	if (e->leave_fd >= 0)
		close(e->leave_fd);
	if (e->done_fd >= 0)
		close(e->done_fd);
	pthread_cond_destroy(&e->cond);
	pthread_mutex_destroy(&e->lock);
	free(e);
}
