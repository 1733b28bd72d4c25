/* SPDX-License-Identifier: MIT */
/*
 * All that is known of one device, and its writers: JSON, and a block of "name: value" lines.
 */
#ifndef OUT_SHOW_H
#define OUT_SHOW_H

#include "dev/dev.h"
#include "dev/server.h"
#include "msg.h"
#include "out/col.h"

#define SHOW_LOG_LINES 10
#define SHOW_LOG_LINE 512

struct show_log {
	unsigned int count;
	char line[SHOW_LOG_LINES][SHOW_LOG_LINE];
};

struct show {
	const struct dev_view *view;
	const struct ublk_params *params; /* NULL: not known */
	unsigned int nr_queues;		  /* 0: not known */
	const cpu_set_t *cpus;	       /* of each queue, from the block layer; empty: not known */
	const struct srv_proc *server; /* NULL: none, or not known */
	const struct srv_thread *threads; /* of the server; NULL: not known */
	size_t nr_threads;
	char record_path[64];
	const char *record_fault;   /* why the record is not believed, NULL when it is */
	const char *holder;	    /* who uses the disk, NULL: nobody */
	bool has_holder;	    /* false: nobody is known because not all may be looked at */
	const struct show_log *log; /* NULL: there is no log to read */
};

/* One object {"ublkctl": …, "device": …} with o->json, else lines; sizes as o->bytes says. */
int out_show(const struct show *s, const struct out_opts *o, struct fail *f);

#endif
