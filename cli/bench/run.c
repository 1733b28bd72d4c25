/* SPDX-License-Identifier: MIT */
/*
 * Rounds of measurements, each on a device of its own that is gone afterwards, whatever happens.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <linux/fs.h>

#include "add.h"
#include "bench/bench.h"
#include "engine/iobuf.h"
#include "launch.h"
#include "teardown.h"
#include "util/cleanup.h"
#include "util/fs.h"

/* for somebody else, such as udev, to close a device that is to be deleted */
#define DELETE_WAIT_S 10
/* after a signal: requests that take longer are ended with their device */
#define STOP_WAIT_MS 2000

struct bench_run {
	struct bench_plan *plan;
	struct bench_row *rows;
	int sig_fd;
	int signal; /* that came; 0: none */
	unsigned int round, step, steps;
};

/* A signal that came meanwhile, without waiting. */
static bool is_ended(struct bench_run *b)
{
	struct signalfd_siginfo si;

	if (!b->signal && read(b->sig_fd, &si, sizeof(si)) == (ssize_t)sizeof(si))
		b->signal = (int)si.ssi_signo;
	return b->signal != 0;
}

/* ---- devices ---------------------------------------------------------------------------- */

/* Without users: refused while somebody has it open. Else it goes all the same. */
static int delete_device(const struct bench_plan *p, int id, bool force, struct fail *f)
{
	struct teardown_how how = {
		.force = force,
		.ignore_missing = true,
		.wait_s = force ? 0 : DELETE_WAIT_S,
		.timeout_s = p->dev.timeout_s,
	};

	return teardown(&how, &id, 1, f);
}

static int open_device(const struct bench_plan *p, const char *path, int more)
{
	int flags = p->load.write_percent ? O_RDWR : O_RDONLY;

	return open(path, flags | O_DIRECT | O_CLOEXEC | O_NONBLOCK | more);
}

/* Time that all threads of a process had on a CPU, ns; finer than the ticks of /proc/PID/stat. */
static bool cpu_time(pid_t pid, uint64_t *ret)
{
	struct timespec t;
	clockid_t id;

	if (pid <= 0 || clock_getcpuclockid(pid, &id) != 0 || clock_gettime(id, &t) < 0)
		return false;
	*ret = (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
	return true;
}

/* ---- one measurement -------------------------------------------------------------------- */

/* Until the load is done; a signal ends it. server: of the device, 0 for one that is not ours. */
static void wait_load(struct bench_run *b, struct load_run *run, pid_t server)
{
	struct pollfd p[2] = {
		{ .fd = load_done_fd(run), .events = POLLIN },
		{ .fd = b->sig_fd, .events = POLLIN },
	};

	while (!(p[0].revents & POLLIN)) {
		if (poll(p, 2, -1) < 0)
			p[0].revents = p[1].revents = 0;
		if ((p[1].revents & POLLIN) && is_ended(b))
			break;
	}
	if (!b->signal)
		return;
	load_stop(run);
	/* a server that hangs keeps its requests as long as it lives */
	if (poll(p, 1, STOP_WAIT_MS) == 0 && server > 0)
		kill(server, SIGKILL);
}

static void note_round(struct bench_row *row, const struct load_result *res)
{
	double iops = res->ns ? (double)res->ios * 1e9 / (double)res->ns : 0;

	if (!row->ios || iops < row->iops_min)
		row->iops_min = iops;
	if (!row->ios || iops > row->iops_max)
		row->iops_max = iops;
	row->ios += res->ios;
	row->ns += res->ns;
	hist_merge(&row->hist, &res->hist);
}

static int measure(struct bench_run *b, struct bench_row *row, int fd, uint64_t size, pid_t server,
		   struct fail *f)
{
	static struct load_result res; /* too large for a stack */
	struct load l = b->plan->load;
	uint64_t before = 0, after = 0;
	struct load_run *run;
	bool has_cpu;
	int r;

	l.fd = fd;
	l.size = size;
	if (size < l.block_size)
		return fail_set(f, EINVAL, "%s is smaller than one request", row->target);
	has_cpu = cpu_time(server, &before);
	r = load_start(&l, &run, f);
	if (r < 0)
		return r;
	wait_load(b, run, server);
	has_cpu = has_cpu && cpu_time(server, &after);
	r = load_finish(run, &res, f);
	if (b->signal)
		return 0; /* what failed then was ended by us */
	if (r < 0)
		return r;
	/* from the first to the last of each job is counted */
	if (l.ios && !res.ns)
		return fail_set(f, FAIL_USAGE, "--ios: %llu for %u jobs are too few to be timed",
				(unsigned long long)l.ios, l.jobs);
	if (!res.ios || !res.ns)
		return fail_set(f, EIO, "nothing was done in the time that there was");
	note_round(row, &res);
	row->has_cpu = has_cpu;
	row->cpu_ns += after - before;
	row->cpu_ios += res.total;
	return 0;
}

/* ---- a round ---------------------------------------------------------------------------- */

static void progress(struct bench_run *b, const struct bench_row *row)
{
	b->step++;
	msg_progress("%u/%u: %s %s%s", b->step, b->steps, row->target,
		     row->data_mode ? row->data_mode : "", row->batch > 0 ? " batch" : "");
}

static int device_size(int fd, uint64_t *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	*ret = (uint64_t)st.st_size;
	return S_ISBLK(st.st_mode) && ioctl(fd, BLKGETSIZE64, ret) < 0 ? -errno : 0;
}

static int baseline_round(struct bench_run *b, struct bench_row *row, struct fail *f)
{
	const char *path = b->plan->baseline;
	/* with O_EXCL nobody is overwritten who has it mounted or builds on it */
	_cleanup_fd_ int fd = open_device(b->plan, path, b->plan->load.write_percent ? O_EXCL : 0);
	uint64_t size = 0;
	int r = fd < 0 ? -errno : device_size(fd, &size);

	progress(b, row);
	return r < 0 ? fail_errno(f, -r, "cannot use %s", path) : measure(b, row, fd, size, 0, f);
}

static void set_cell(struct dev_cfg *d, const struct bench_plan *p, const struct bench_cell *c)
{
	*d = p->dev;
	d->mode = c->mode;
	d->batch = c->batch;
	/* only where the pages are the request's own can they be left as they are */
	if (!iobuf_mode(c->mode)->request_buf)
		d->null_data = NULL;
}

static int device_round(struct bench_run *b, const struct bench_cell *c, struct bench_row *row,
			struct fail *f)
{
	struct launched m = { 0 };
	struct dev_cfg d;
	char path[FS_PATH_MAX];
	struct fail f2;
	int fd, r, r2;

	set_cell(&d, b->plan, c);
	progress(b, row);
	r = add_prepare(&d, f);
	if (!r && b->plan->load.block_size % d.block_size)
		r = fail_set(f, FAIL_USAGE, "--bs: %u is no multiple of the block size %llu of %s",
			     b->plan->load.block_size, (unsigned long long)d.block_size, d.file);
	if (!r)
		r = launch(&d, &m, f);
	if (r < 0)
		return r;
	fd = open_device(b->plan, fs_path(path, "/dev/ublkb%d", m.id), 0);
	if (fd < 0)
		r = fail_errno(f, errno, "cannot open %s", path);
	else if (!is_ended(b))
		r = measure(b, row, fd, d.size, m.pid, f);
	if (fd >= 0)
		close(fd);
	/* one that hangs would keep disk and requests, and nobody else has data on it */
	if (b->signal)
		kill(m.pid, SIGKILL);
	r2 = delete_device(b->plan, m.id, false, &f2);
	if (r2 == -EBUSY)
		r2 = delete_device(b->plan, m.id, true, &f2);
	if (r2 < 0 && !r)
		f->text[0] = '\0'; /* it was printed */
	return r < 0 ? r : r2;
}

size_t bench_nr_rows(const struct bench_plan *p)
{
	return p->nr_cells + !!p->baseline;
}

static int all_rounds(struct bench_run *b, struct fail *f)
{
	const struct bench_plan *p = b->plan;
	struct bench_row *first = b->rows + !!p->baseline;
	int r = 0;

	/* round by round: what changes in the machine meanwhile meets all alike, and shows as spread */
	for (unsigned int n = 0; !r && n < p->repeat; n++) {
		if (p->baseline && !is_ended(b))
			r = baseline_round(b, b->rows, f);
		for (size_t i = 0; !r && i < p->nr_cells && !is_ended(b); i++)
			r = device_round(b, &p->cells[i], &first[i], f);
	}
	return r;
}

static void init_rows(const struct bench_plan *p, struct bench_row *rows)
{
	struct bench_row *r = rows;

	memset(rows, 0, bench_nr_rows(p) * sizeof(*rows));
	if (p->baseline) {
		r->target = p->baseline;
		r++->batch = -1;
	}
	for (size_t i = 0; i < p->nr_cells; i++, r++) {
		r->target = p->dev.target;
		r->data_mode = iobuf_mode_name((unsigned int)p->cells[i].mode);
		r->batch = p->cells[i].batch;
	}
	for (size_t i = 0; i < bench_nr_rows(p); i++)
		rows[i].block_size = p->load.block_size;
}

/* Those that end a program, unless whoever started it says otherwise (nohup). */
static void wanted_signals(sigset_t *ret)
{
	static const int all[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction sa;

	sigemptyset(ret);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (sigaction(all[i], NULL, &sa) == 0 && sa.sa_handler != SIG_IGN)
			sigaddset(ret, all[i]);
}

int bench_measure(struct bench_plan *p, struct bench_row *rows, int *ret_signal, struct fail *f)
{
	struct bench_run b = { .plan = p, .rows = rows };
	sigset_t set, old;
	int r;

	wanted_signals(&set);
	/* before any thread; servers unblock them again, and are in sessions of their own */
	sigprocmask(SIG_BLOCK, &set, &old);
	b.sig_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	b.steps = p->repeat * (unsigned int)bench_nr_rows(p);
	init_rows(p, rows);
	r = b.sig_fd < 0 ? fail_errno(f, errno, "cannot wait for signals") : all_rounds(&b, f);
	msg_progress("%s", "");
	if (b.sig_fd >= 0)
		close(b.sig_fd);
	sigprocmask(SIG_SETMASK, &old, NULL);
	*ret_signal = b.signal;
	return r;
}
