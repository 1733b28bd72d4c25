/* SPDX-License-Identifier: MIT */
#include "msg.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/sanitize.h"

#define MSG_LINE 1024

static const char *command;
static bool verbose;
static bool use_syslog;
static int log_fd = -1;
static char ident[32];

static void prepare_crash_line(void);

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
	prepare_crash_line();
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

/* ---- at most so many lines in so long: a backing that fails fails each request ------------- */

#define RATE_LINES 30
#define RATE_S 10

static pthread_mutex_t rate_lock = PTHREAD_MUTEX_INITIALIZER;
static time_t rate_from; /* s of CLOCK_MONOTONIC */
static unsigned int rate_lines;

/* False: the line is dropped. What was dropped is told with the first line that is not. */
static bool may_log(unsigned int *ret_dropped)
{
	struct timespec now;
	bool may;

	clock_gettime(CLOCK_MONOTONIC, &now);
	pthread_mutex_lock(&rate_lock);
	*ret_dropped = 0;
	if (!rate_lines || now.tv_sec - rate_from >= RATE_S) {
		*ret_dropped = rate_lines > RATE_LINES ? rate_lines - RATE_LINES : 0;
		rate_from = now.tv_sec;
		rate_lines = 0;
	}
	may = rate_lines++ < RATE_LINES;
	pthread_mutex_unlock(&rate_lock);
	return may;
}

static void log_limited(int prio, const char *text)
{
	char note[64];
	unsigned int dropped;

	if (!may_log(&dropped))
		return;
	if (dropped) {
		snprintf(note, sizeof(note), "%u messages were left out", dropped);
		log_line(LOG_WARNING, note);
	}
	log_line(prio, text);
}

#define ERASE_LINE "\r\033[K"

static bool has_progress; /* a line without an end is on the terminal */

static void __attribute__((format(printf, 2, 0))) emit(int prio, const char *fmt, va_list ap)
{
	char text[MSG_LINE], line[MSG_LINE + 64];
	int n;

	vsnprintf(text, sizeof(text), fmt, ap);
	make_printable(text);
	if (use_syslog) {
		log_limited(prio, text);
		return;
	}
	n = snprintf(line, sizeof(line), "%sublkctl: %s%s%s\n", has_progress ? ERASE_LINE : "",
		     command ? command : "", command ? ": " : "", text);
	/* the threads of a foreground server come here as well, and have none */
	if (has_progress)
		has_progress = false;
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

void msg_progress(const char *fmt, ...)
{
	char text[MSG_LINE];
	va_list ap;

	if (!isatty(STDERR_FILENO))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	make_printable(text);
	if (has_progress || *text)
		dprintf(STDERR_FILENO, ERASE_LINE "%s", text);
	has_progress = *text;
}

void msg_debug(const char *fmt, ...)
{
	if (verbose)
		MSG_BODY(LOG_DEBUG);
}

/* ---- crash: only what is allowed in a signal handler --------------------------------------- */

static char crash_line[128]; /* with two digits to fill in for the signal */
static size_t crash_digits, crash_len;

static void on_crash(int sig)
{
	crash_line[crash_digits] = (char)('0' + sig / 10 % 10);
	crash_line[crash_digits + 1] = (char)('0' + sig % 10);
	if (log_fd >= 0)
		(void)!send(log_fd, crash_line, crash_len, MSG_DONTWAIT | MSG_NOSIGNAL);
	else
		(void)!write(STDERR_FILENO, crash_line, crash_len);
	/* SA_RESETHAND: dies of it now, with a core file where the system wants one */
	raise(sig);
}

static void prepare_crash_line(void)
{
	int n = use_syslog ? snprintf(crash_line, sizeof(crash_line), "<%d>%s: crashed by signal ",
				      LOG_DAEMON | LOG_CRIT, ident) :
			     snprintf(crash_line, sizeof(crash_line), "ublkctl: crashed by signal ");

	crash_digits = (size_t)n;
	crash_len =
		(size_t)n + (size_t)snprintf(crash_line + n, sizeof(crash_line) - (size_t)n, "00\n");
}

void msg_on_crash(void)
{
	static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT };
	struct sigaction sa = { .sa_handler = on_crash, .sa_flags = SA_RESETHAND | SA_NODEFER };

	prepare_crash_line();
	for (size_t i = 0; !HAS_SANITIZER && i < ARRAY_SIZE(signals); i++)
		sigaction(signals[i], &sa, NULL);
}

/* A text that is too long, for its path, loses some of its middle: the reason is at its end. */
static void __attribute__((format(printf, 2, 0)))
fill_text(struct fail *f, const char *fmt, va_list ap)
{
	static const char gap[] = "...";
	const size_t head = (sizeof(f->text) - sizeof(gap)) / 2;
	const size_t tail = sizeof(f->text) - sizeof(gap) - head;
	char *whole = NULL;
	int n = vasprintf(&whole, fmt, ap);

	f->text[0] = '\0';
	if (n < 0)
		return;
	if ((size_t)n < sizeof(f->text))
		memcpy(f->text, whole, (size_t)n + 1);
	else
		snprintf(f->text, sizeof(f->text), "%.*s%s%s", (int)head, whole, gap,
			 whole + (size_t)n - tail);
	free(whole);
}

int fail_set(struct fail *f, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fill_text(f, fmt, ap);
	va_end(ap);
	f->err = err;
	return -err;
}

int fail_errno(struct fail *f, int err, const char *fmt, ...)
{
	va_list ap;
	struct fail what;

	va_start(ap, fmt);
	fill_text(&what, fmt, ap);
	va_end(ap);
	return fail_set(f, err, "%s: %s", what.text, strerror(err));
}
