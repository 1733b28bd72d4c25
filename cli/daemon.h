/* SPDX-License-Identifier: MIT */
/*
 * Processes: the only place that forks.
 */
#ifndef DAEMON_H
#define DAEMON_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "msg.h"

enum daemon_kind {
	DAEMON_PID,    /* the process exists; pid is set */
	DAEMON_ADDED,  /* it has made a device; id and cookie are set */
	DAEMON_READY,  /* the device is there; id is set, text may hold a warning */
	DAEMON_FAILED, /* err and text say why */
};

/* The one message format of the readiness pipe. */
struct daemon_msg {
	uint32_t kind;
	int32_t err; /* positive */
	int32_t id;
	int32_t pid;
	uint64_t cookie; /* of the device (dev/record.h) */
	char text[FAIL_TEXT];
};

/*
 * Runs fn in a new session with /dev/null for fds 0-2, cwd / and no other descriptor of the
 * caller; fn reports on its descriptor with daemon_report() and its result is the exit status.
 * Waits until READY or FAILED, the process's death, or timeout_ms (-ETIME; the process is
 * then killed). Returns 0 with *ret filled, or -errno with a text; then ret->id is the device that a
 * server left which could not undo what it did, -1 when there is none.
 */
int daemon_start(int (*fn)(void *arg, int report_fd), void *arg, int timeout_ms,
		 struct daemon_msg *ret, struct fail *f);
/* 0, or -EPIPE when the caller is gone. */
int daemon_report(int report_fd, const struct daemon_msg *m);

/* A function that runs in a child, for calls that may not come back. */
struct daemon_call {
	pid_t pid;
	int fd;
	int64_t deadline;
};

/* Starts fn in a child that outlives this process if need be. 0 or -errno with a text. */
int daemon_call_start(struct daemon_call *c, int (*fn)(void *arg, struct fail *f), void *arg,
		      int timeout_ms, struct fail *f);
/* fn's result and fail, or -ETIME after timeout_ms; the child then goes on alone. */
int daemon_call_wait(struct daemon_call *c, struct fail *f);
/* daemon_call_wait() would return at once. */
bool daemon_call_done(const struct daemon_call *c);
/* Instead of daemon_call_wait(): the child goes on alone. */
void daemon_call_leave(struct daemon_call *c);

/*
 * Forks a companion that runs fn with the read end of a pipe whose write end goes to the caller
 * (*ret_fd). It holds no other descriptor and ends when fn returns. Returns its pid or -errno.
 */
pid_t daemon_companion(void (*fn)(int fd, void *arg), void *arg, int *ret_fd);

/* Blocks what a user or a lost terminal ends a command with; sigprocmask() takes it back. */
void daemon_hold_signals(sigset_t *ret_before);

/* READY=1 to NOTIFY_SOCKET (systemd.service(5), Type=notify); nothing when it is not set. */
void daemon_notify_ready(void);

#endif
