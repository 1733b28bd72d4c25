/* SPDX-License-Identifier: MIT */
#include "msg.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#define MSG_LINE 1024

static const char *command;
static bool verbose;
static bool use_syslog;
static char ident[32];

void msg_set_command(const char *name)
{
	command = name;
}

void msg_set_verbose(bool on)
{
	verbose = on;
}

void msg_to_syslog(int dev_id)
{
	snprintf(ident, sizeof(ident), "ublkctl[%d]", dev_id);
	/* opened at once: the server loses its view of /dev/log when it leaves its root */
	openlog(ident, LOG_NDELAY, LOG_DAEMON);
	use_syslog = true;
}

/* Control characters in names from outside must not reach a terminal or a log. */
static void make_printable(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = '?';
}

static void __attribute__((format(printf, 2, 0))) emit(int prio, const char *fmt, va_list ap)
{
	char text[MSG_LINE], line[MSG_LINE + 64];
	int n;

	vsnprintf(text, sizeof(text), fmt, ap);
	make_printable(text);
	if (use_syslog) {
		syslog(prio, "%s", text);
		return;
	}
	n = snprintf(line, sizeof(line), "ublkctl: %s%s%s\n", command ? command : "",
		     command ? ": " : "", text);
	if (n > 0 && write(STDERR_FILENO, line, strnlen(line, sizeof(line))) < 0)
		return; /* nobody is there to be told */
}

#define MSG_BODY(prio)                   \
	do {                             \
		va_list ap;              \
		va_start(ap, fmt);       \
		emit((prio), fmt, ap);   \
		va_end(ap);              \
	} while (0)

void msg_error(const char *fmt, ...)
{
	MSG_BODY(LOG_ERR);
}

void msg_warn(const char *fmt, ...)
{
	MSG_BODY(LOG_WARNING);
}

void msg_hint(const char *fmt, ...)
{
	MSG_BODY(LOG_NOTICE);
}

void msg_debug(const char *fmt, ...)
{
	if (verbose)
		MSG_BODY(LOG_DEBUG);
}

int fail_set(struct fail *f, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
	f->err = err;
	return -err;
}

int fail_errno(struct fail *f, int err, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
	n = strlen(f->text);
	snprintf(f->text + n, sizeof(f->text) - n, ": %s", strerror(err));
	f->err = err;
	return -err;
}
