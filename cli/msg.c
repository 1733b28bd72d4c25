/* SPDX-License-Identifier: MIT */
#include "msg.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

#define MSG_LINE 1024

static const char *command;
static bool verbose;
static bool use_syslog;
static int log_fd = -1;
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
	static const struct sockaddr_un log = { .sun_family = AF_UNIX, .sun_path = "/dev/log" };

	snprintf(ident, sizeof(ident), "ublkctl[%d]", dev_id);
	use_syslog = true;
	/* opened at once: the server loses its view of /dev/log when it leaves its root */
	log_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (log_fd >= 0 && connect(log_fd, (const struct sockaddr *)&log, sizeof(log)) < 0) {
		close(log_fd);
		log_fd = -1;
	}
}

/* Control characters in names from outside must not reach a terminal or a log. */
static void make_printable(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = '?';
}

/*
 * One datagram as syslog(3) sends it, but never waiting: a logger that stalls because its file
 * system is on this very device must not stall the device. Lost then.
 */
static void log_line(int prio, const char *text)
{
	char line[MSG_LINE + 64];
	int n = snprintf(line, sizeof(line), "<%d>%s: %s", LOG_DAEMON | prio, ident, text);

	if (log_fd >= 0 && n > 0)
		(void)!send(log_fd, line, strnlen(line, sizeof(line)), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void __attribute__((format(printf, 2, 0))) emit(int prio, const char *fmt, va_list ap)
{
	char text[MSG_LINE], line[MSG_LINE + 64];
	int n;

	vsnprintf(text, sizeof(text), fmt, ap);
	make_printable(text);
	if (use_syslog) {
		log_line(prio, text);
		return;
	}
	n = snprintf(line, sizeof(line), "ublkctl: %s%s%s\n", command ? command : "",
		     command ? ": " : "", text);
	if (n > 0 && write(STDERR_FILENO, line, strnlen(line, sizeof(line))) < 0)
		return; /* nobody is there to be told */
}

#define MSG_BODY(prio)                                                                             \
	do {                                                                                       \
		va_list ap;                                                                        \
		va_start(ap, fmt);                                                                 \
		emit((prio), fmt, ap);                                                             \
		va_end(ap);                                                                        \
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
