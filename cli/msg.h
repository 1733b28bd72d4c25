/* SPDX-License-Identifier: MIT */
/*
 * The only writer of stderr and syslog.
 *
 * A message is one line, "ublkctl: COMMAND: text", lower case, no full stop.
 */
#ifndef MSG_H
#define MSG_H

#include <stdbool.h>
#include <stddef.h>

#define FAIL_TEXT 1000 /* below the length of a line, and of an atomic write to a pipe */

/*
 * Why something failed: a positive errno value and the whole sentence for the user. Functions
 * below the commands fill one in and return -err; the dispatcher prints it and maps it to an
 * exit status.
 */
struct fail {
	int err;
	char text[FAIL_TEXT];
};

/* errno values with a meaning of their own for the exit status (see main.c) */
#define FAIL_USAGE 1001	      /* wrong usage: status 2 */
#define FAIL_UNSUPPORTED 1002 /* kernel, driver or build cannot do it: status 3 */

/* Sets text and err (positive), returns -err. */
int fail_set(struct fail *f, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same with ": <text of err>" behind. */
int fail_errno(struct fail *f, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Name in front of every message; NULL for none. Static or live until exit. */
void msg_set_command(const char *name);
/* From here on to syslog as ublkctl[ID]; the socket is opened now. */
void msg_to_syslog(int dev_id);
void msg_set_verbose(bool on);
/* A process that crashes says so in a last line, where its messages go, and then dies as ever. */
void msg_on_crash(void);

void msg_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void msg_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Something the user can do next, or should know. */
void msg_hint(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/*
 * What is going on, in a line that the next one overwrites; only if stderr is a terminal. An empty text
 * takes it away, and so does any message.
 */
void msg_progress(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Only with --verbose. */
void msg_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
