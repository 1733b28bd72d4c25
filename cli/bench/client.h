/* SPDX-License-Identifier: MIT */
/*
 * Load for a block device, with as little of its own as there can be: one io_uring per thread with
 * registered file, buffer and ring, random offsets, a fixed number of requests in flight.
 */
#ifndef BENCH_CLIENT_H
#define BENCH_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/hist.h"
#include "msg.h"

/* Requests that are not counted: the first ones meet cold caches. At most half as many as are counted. */
#define LOAD_WARMUP 2000U
#define LOAD_DEPTH_MAX 4096U
#define LOAD_JOBS_MAX 256U

struct load {
	int fd;	       /* open with O_DIRECT; the caller's */
	uint64_t size; /* bytes of it that are used */
	unsigned int block_size, depth, jobs;
	unsigned int write_percent;
	uint64_t ios; /* to be counted, of all jobs together; 0: as many as time_ns has room for */
	uint64_t time_ns;
	bool latency; /* read the clock once a turn, for the histogram */
};

struct load_result {
	uint64_t ios, ns; /* what was counted, and the time from the first to the last of it */
	uint64_t total;	  /* with what was not counted */
	struct hist hist; /* latencies in ns; empty unless asked for */
};

struct load_run;

/* Starts the threads. 0 or -errno with a text. l is used until load_finish(). */
int load_start(const struct load *l, struct load_run **ret, struct fail *f);
/* Readable when all threads are done; remains the run's. */
int load_done_fd(const struct load_run *r);
/* No request is issued any more; those in flight are waited for. From any thread. */
void load_stop(struct load_run *r);
/* Waits for the threads, frees r. 0 or -errno of the first request that failed, with a text. */
int load_finish(struct load_run *r, struct load_result *ret, struct fail *f);

#endif
