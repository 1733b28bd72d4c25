/* SPDX-License-Identifier: MIT */
/*
 * valgrind 3.19 runs one thread at a time and does not know that io_uring_enter(2) can block:
 * a thread that waits in its ring stops all others. Linked into a test with threads, this waits
 * outside of it instead; without valgrind it is liburing's own function.
 */
#include <dlfcn.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

typedef int wait_fn(struct io_uring *, unsigned int);

static wait_fn *real_wait;
static int on_valgrind;

__attribute__((constructor)) static void look_around(void)
{
	const char *preload = getenv("LD_PRELOAD");

	real_wait = (wait_fn *)dlsym(RTLD_NEXT, "io_uring_submit_and_wait");
	on_valgrind = preload && strstr(preload, "vgpreload");
}

/* A ring with deferred task work wakes nobody in poll(2): it is entered again and again. */
static int submit_and_poll(struct io_uring *ring, unsigned int wait_nr)
{
	int r = io_uring_submit(ring), n = r;

	while (r >= 0 && io_uring_cq_ready(ring) < wait_nr) {
		poll(NULL, 0, 1);
		r = io_uring_get_events(ring);
	}
	return r < 0 ? r : n;
}

int io_uring_submit_and_wait(struct io_uring *ring, unsigned int wait_nr)
{
	return on_valgrind ? submit_and_poll(ring, wait_nr) : real_wait(ring, wait_nr);
}
