/* SPDX-License-Identifier: MIT */
/*
 * What /proc tells of a server process and its I/O threads. Never waits for the process: only files
 * that the kernel answers by itself, whatever state the process is in.
 */
#ifndef DEV_SERVER_H
#define DEV_SERVER_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Numbers are -1 where nothing is known. */
struct srv_proc {
	pid_t pid;
	char state; /* R, S, D, T, … of proc(5) */
	int own_ns; /* its mount namespace is not that of process 1; needs the right to look */
	bool has_oom_adj; /* oom_adj can be negative */
	int oom_adj;	  /* oom_score_adj */
	int64_t locked;	  /* bytes */
	int64_t rss;	  /* bytes */
	int64_t threads;  /* all of them, those of the kernel's I/O workers included */
};

struct srv_thread {
	pid_t tid;
	int index;	/* T of its name ublkN.T, -1 when the name was cut off */
	bool flusher;	/* I/O flusher: memory reclaim in it never waits for block I/O */
	cpu_set_t cpus; /* that it may run on; empty: not known */
};

/* -ESRCH: there is no such process. */
int srv_read(pid_t pid, struct srv_proc *ret);
/* The I/O threads of device id in process pid, by index; malloc()ed, none is no error. */
int srv_threads(pid_t pid, int id, struct srv_thread **ret, size_t *ret_count);

#endif
