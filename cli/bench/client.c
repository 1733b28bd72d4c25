/* SPDX-License-Identifier: MIT */
#include "bench/client.h"

#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "util/fs.h"

/* of the time that is measured, at most so much goes by before it */
#define WARMUP_TIME_SHARE 10

struct job {
	struct load_run *run;
	pthread_t thread;
	struct io_uring ring;
	bool has_ring;
	char *buf;
	uint64_t *started; /* ns, by slot */
	uint64_t seed, blocks;
	uint64_t warmup, limit; /* requests; limit is without warmup, 0: by time */
	uint64_t issued, done;
	unsigned int in_flight;
	bool over; /* nothing is issued any more */
	bool clock;
	uint64_t begin, from, to; /* ns; 0: not yet */
	uint64_t done_from, done_to;
	int err; /* -errno of the first failure */
	const char *what;
	struct hist hist;
};

struct load_run {
	const struct load *load;
	int done_fd;
	unsigned int nr_jobs, ready, left;
	bool go;
	atomic_bool stop;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct job jobs[];
};

static uint64_t next_random(struct job *j)
{
	j->seed ^= j->seed << 13;
	j->seed ^= j->seed >> 7;
	j->seed ^= j->seed << 17;
	return j->seed;
}

/* ---- set up ----------------------------------------------------------------------------- */

/* The cheapest ring that the kernel gives: Linux 6.1, 5.19, any. */
static int open_ring(struct job *j)
{
	static const unsigned int flags[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
		IORING_SETUP_COOP_TASKRUN,
		0,
	};
	int r = -EINVAL;

	for (unsigned int i = 0; i < 3 && r == -EINVAL; i++) {
		struct io_uring_params p = { .flags = flags[i] };

		r = io_uring_queue_init_params(j->run->load->depth, &j->ring, &p);
	}
	j->has_ring = r >= 0;
	return r;
}

static int fail_job(struct job *j, int err, const char *what)
{
	j->err = err;
	j->what = what;
	return err;
}

static int job_setup(struct job *j)
{
	const struct load *l = j->run->load;
	size_t size = (size_t)l->block_size * l->depth;
	struct iovec iov;
	uint64_t random;
	int r;

	j->started = calloc(l->depth, sizeof(*j->started));
	j->buf = mmap(NULL, size, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (!j->started || j->buf == MAP_FAILED)
		return fail_job(j, -ENOMEM, "cannot get buffers");
	/* no zeros: a backing could treat those apart */
	for (size_t i = 0; l->write_percent && i < size; i += sizeof(random)) {
		random = next_random(j);
		memcpy(j->buf + i, &random, sizeof(random));
	}
	r = open_ring(j);
	if (r < 0)
		return fail_job(j, r, "cannot set up a ring");
	io_uring_register_ring_fd(&j->ring); /* without it there is a little more to do */
	r = io_uring_register_files(&j->ring, &l->fd, 1);
	if (r < 0)
		return fail_job(j, r, "cannot register the file");
	iov = (struct iovec){ j->buf, size };
	r = io_uring_register_buffers(&j->ring, &iov, 1);
	return r < 0 ? fail_job(j, r, "cannot register the buffer") : 0;
}

static void job_free(struct job *j)
{
	if (j->has_ring)
		io_uring_queue_exit(&j->ring);
	if (j->buf && j->buf != MAP_FAILED)
		munmap(j->buf, (size_t)j->run->load->block_size * j->run->load->depth);
	free(j->started);
}

/* ---- requests --------------------------------------------------------------------------- */

static void issue(struct job *j, unsigned int slot, uint64_t now)
{
	const struct load *l = j->run->load;
	struct io_uring_sqe *sqe = io_uring_get_sqe(&j->ring);
	uint64_t random = next_random(j), pos = random % j->blocks * l->block_size;
	char *buf = j->buf + (size_t)slot * l->block_size;

	/* the position has taken the low bits */
	if (l->write_percent && (random >> 40) % 100 < l->write_percent)
		io_uring_prep_write_fixed(sqe, 0, buf, l->block_size, pos, 0);
	else
		io_uring_prep_read_fixed(sqe, 0, buf, l->block_size, pos, 0);
	sqe->flags |= IOSQE_FIXED_FILE;
	sqe->user_data = slot;
	j->started[slot] = now;
	j->issued++;
	j->in_flight++;
}

/* The end of what is counted. */
static void end_count(struct job *j, uint64_t now)
{
	j->to = now;
	j->done_to = j->done;
	j->over = true;
}

static void reap(struct job *j, const struct io_uring_cqe *cqe, uint64_t now)
{
	const struct load *l = j->run->load;
	unsigned int slot = (unsigned int)cqe->user_data;

	j->in_flight--;
	if (cqe->res != (int)l->block_size) {
		if (!j->err)
			fail_job(j, cqe->res < 0 ? cqe->res : -EIO, "a request failed");
		j->over = true;
		return;
	}
	j->done++;
	if (j->from && !j->to && l->latency)
		hist_add(&j->hist, now - j->started[slot]);
	if (!j->from && j->done >= j->warmup) {
		j->from = now ? now : fs_now_ns();
		j->done_from = j->done;
	}
	if (j->limit && j->done == j->warmup + j->limit)
		end_count(j, now ? now : fs_now_ns());
	if (!j->over && (!j->limit || j->issued < j->warmup + j->limit))
		issue(j, slot, now);
}

/* By time: when to begin and when to end. */
static void look_at_clock(struct job *j, uint64_t now)
{
	const uint64_t time = j->run->load->time_ns;

	if (!j->from && now - j->begin >= time / WARMUP_TIME_SHARE) {
		j->from = now;
		j->done_from = j->done;
	} else if (j->from && !j->to && now - j->from >= time) {
		end_count(j, now);
	}
}

/* One system call: what was prepared goes out, what has completed is taken and followed by others. */
static int turn(struct job *j)
{
	struct io_uring_cqe *cqe;
	unsigned int head, n = 0;
	uint64_t now = 0;
	int r = io_uring_submit_and_wait(&j->ring, 1);

	if (r < 0 && r != -EINTR && r != -EAGAIN && r != -EBUSY)
		return r;
	if (j->clock)
		now = fs_now_ns();
	if (!j->limit)
		look_at_clock(j, now);
	if (atomic_load_explicit(&j->run->stop, memory_order_relaxed))
		j->over = true;
	io_uring_for_each_cqe(&j->ring, head, cqe) {
		n++;
		reap(j, cqe, now);
	}
	io_uring_cq_advance(&j->ring, n);
	return 0;
}

static void work(struct job *j)
{
	const unsigned int depth = j->run->load->depth;
	int r = 0;

	j->begin = fs_now_ns();
	if (!j->warmup)
		j->from = j->begin;
	for (unsigned int slot = 0; slot < depth; slot++)
		if (!j->limit || j->issued < j->warmup + j->limit)
			issue(j, slot, j->begin);
	while (!r && j->in_flight)
		r = turn(j);
	if (r < 0 && !j->err)
		fail_job(j, r, "cannot submit requests");
	if (j->err)
		load_stop(j->run);
}

/* ---- threads ---------------------------------------------------------------------------- */

static void *job_thread(void *arg)
{
	struct job *j = arg;
	struct load_run *r = j->run;
	const uint64_t one = 1;
	int err = job_setup(j); /* here: a ring belongs to the thread that made it */

	pthread_mutex_lock(&r->lock);
	r->ready++;
	pthread_cond_broadcast(&r->changed);
	while (!r->go)
		pthread_cond_wait(&r->changed, &r->lock);
	pthread_mutex_unlock(&r->lock);
	if (!err && !atomic_load(&r->stop))
		work(j);
	job_free(j);
	pthread_mutex_lock(&r->lock);
	if (--r->left == 0)
		(void)!write(r->done_fd, &one, sizeof(one));
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

static void init_job(struct load_run *r, unsigned int i)
{
	const struct load *l = r->load;
	struct job *j = &r->jobs[i];

	j->run = r;
	j->blocks = l->size / l->block_size;
	/* the same offsets in every run, others in each job */
	j->seed = 88172645463325252ULL + i * 0x9e3779b97f4a7c15ULL;
	j->clock = l->latency || !l->ios;
	j->limit = l->ios / l->jobs + (i < l->ios % l->jobs);
	j->warmup = l->ios && j->limit / 2 < LOAD_WARMUP ? j->limit / 2 : LOAD_WARMUP;
}

/* Lets all threads go at once, when each has what it needs; or none if one has not. */
static void open_gate(struct load_run *r)
{
	pthread_mutex_lock(&r->lock);
	while (r->ready < r->nr_jobs)
		pthread_cond_wait(&r->changed, &r->lock);
	for (unsigned int i = 0; i < r->nr_jobs; i++)
		if (r->jobs[i].err)
			atomic_store(&r->stop, true);
	r->go = true;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
}

int load_start(const struct load *l, struct load_run **ret, struct fail *f)
{
	unsigned int jobs = l->ios && l->ios < l->jobs ? (unsigned int)l->ios : l->jobs;
	struct load_run *r = calloc(1, sizeof(*r) + jobs * sizeof(r->jobs[0]));
	int err = 0;

	if (!r)
		return fail_errno(f, ENOMEM, "cannot start the load");
	r->load = l;
	r->done_fd = eventfd(0, EFD_CLOEXEC);
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->changed, NULL);
	r->left = jobs;
	for (; !err && r->nr_jobs < jobs; r->nr_jobs += !err) {
		init_job(r, r->nr_jobs);
		err = pthread_create(&r->jobs[r->nr_jobs].thread, NULL, job_thread,
				     &r->jobs[r->nr_jobs]);
	}
	if (err || r->done_fd < 0)
		atomic_store(&r->stop, true);
	open_gate(r);
	if (err || r->done_fd < 0) {
		struct load_result none;

		err = err ? err : EMFILE;
		load_finish(r, &none, f);
		return fail_errno(f, err, "cannot start the load");
	}
	*ret = r;
	return 0;
}

int load_done_fd(const struct load_run *r)
{
	return r->done_fd;
}

void load_stop(struct load_run *r)
{
	atomic_store(&r->stop, true);
}

int load_finish(struct load_run *r, struct load_result *ret, struct fail *f)
{
	uint64_t from = UINT64_MAX, to = 0;
	int err = 0;

	memset(ret, 0, sizeof(*ret));
	for (unsigned int i = 0; i < r->nr_jobs; i++) {
		struct job *j = &r->jobs[i];

		pthread_join(j->thread, NULL);
		ret->total += j->done;
		if (j->err && !err)
			err = fail_errno(f, -j->err, "%s", j->what);
		if (!j->to)
			continue; /* stopped */
		from = j->from < from ? j->from : from;
		to = j->to > to ? j->to : to;
		ret->ios += j->done_to - j->done_from;
		hist_merge(&ret->hist, &j->hist);
	}
	ret->ns = to > from ? to - from : 0;
	if (r->done_fd >= 0)
		close(r->done_fd);
	pthread_cond_destroy(&r->changed);
	pthread_mutex_destroy(&r->lock);
	free(r);
	return err;
}
