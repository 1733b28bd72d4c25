/* SPDX-License-Identifier: MIT */
/*
 * The engine between fakes: back ends that note what they are given and fail where they are told
 * to, a target with nothing in it, a memfd for the driver's descriptors.
 */
#ifndef UNIT_ENGINE_FAKE_H
#define UNIT_ENGINE_FAKE_H

#include "unit.h"

#include <pthread.h>

#include "engine/engine.h"
#include "engine/queue.h"

#define MAX 5 /* queues and threads */
#define DEPTH 8
#define MAX_IO 8192
#define WATCHDOG 120 /* s: a start that hangs ends the test */

/*
 * Where a thread is told to fail. RUN: by itself while it serves; END: all threads just end;
 * END_ONE: one does.
 */
enum phase { NEVER, RING, INIT, PREPARE, ARM, RUN, END, END_ONE };

struct seen {
	bool here;
	const char *be;
	unsigned int nr_qs, prepared, armed, finished;
	struct q qs[MAX];
};

extern struct plan {
	pthread_mutex_t lock;
	enum phase phase;
	unsigned int thread; /* that fails; others do not */
	int err;
	struct seen thr[MAX];
} plan;

extern int creatable; /* threads that still can be created; -1: all */
extern const bool creatable_works;
extern int memfd; /* descriptor d of queue q: start_sector q, addr d */

/* Makes memfd; false without it. */
bool engine_fake_init(void);
void plan_set(enum phase phase, unsigned int thread, int err);
/* eng_start() with an id of 3. */
int start(unsigned int queues, unsigned int threads, bool batch, struct eng **ret, struct fail *f);
int count_entries(const char *dir);

#endif
