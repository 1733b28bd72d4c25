/* SPDX-License-Identifier: MIT */
/*
 * Which CPUs the I/O threads of which queue run on, where that is not left to the driver: a text
 * "QUEUE=CPUS[:QUEUE=CPUS...]" on the command line and in the record.
 */
#ifndef DEV_AFFINITY_H
#define DEV_AFFINITY_H

#include <sched.h>
#include <stddef.h>

#include "cfg.h"
#include "msg.h"

/*
 * Takes one "QUEUE=CPUS" off *text, which is moved behind it. 1; 0 at the end (NULL is empty);
 * -EINVAL when it is none, -ERANGE for a queue or CPU beyond all limits: *text stays at it then.
 */
int aff_next(const char **text, unsigned int *ret_queue, cpu_set_t *ret_cpus);

/*
 * Can a device with so many queues be served so? -FAIL_USAGE with a text for anything but such a
 * text, an unknown queue or one that is there twice; -EINVAL when all CPUs of a queue are offline.
 */
int aff_check(const char *text, unsigned int queues, struct fail *f);

/* The CPU sets of a text into sets, one per queue; the others stay. What is no such text ends it. */
void aff_apply(const char *text, unsigned int queues, cpu_set_t *sets);

/* Text of the sets that are not empty, by queue, into buf[CFG_AFFINITY_TEXT]; -E2BIG. */
int aff_format(const cpu_set_t *sets, unsigned int queues, char *buf);

#endif
