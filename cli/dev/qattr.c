/* SPDX-License-Identifier: MIT */
#include "dev/qattr.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/fs.h"
#include "util/num.h"

/* What is useful for a disk whose driver is a process; the rest of the queue is the driver's own. */
static const struct {
	const char *name;
	uint64_t max;
} attrs[] = {
	{ "nomerges", 2 },
	{ "iostats", 1 },
	{ "read_ahead_kb", 1 << 20 },
	{ "wbt_lat_usec", 10000000 },
	{ "rq_affinity", 2 },
};

const char *qattr_scheduler_word(unsigned int n)
{
	static const char *const words[] = { "none", "mq-deadline", QATTR_KERNEL };

	return n < ARRAY_SIZE(words) ? words[n] : NULL;
}

static int find_attr(const char *name, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(attrs); i++)
		if (strlen(attrs[i].name) == len && !strncmp(attrs[i].name, name, len))
			return (int)i;
	return -1;
}

static int unknown_attr(const char *item, int len, struct fail *f)
{
	return fail_set(
		f, FAIL_USAGE,
		"--queue-attr: '%.*s' is none of: nomerges, iostats, read_ahead_kb, wbt_lat_usec, rq_affinity",
		len, item);
}

static int check_item(const char *item, size_t len, unsigned int *seen, struct fail *f)
{
	size_t name_len = strcspn(item, "=,");
	int i = find_attr(item, name_len);
	char value[24];
	uint64_t v;

	if (i < 0)
		return unknown_attr(item, (int)name_len, f);
	if (*seen >> i & 1)
		return fail_set(f, FAIL_USAGE, "--queue-attr: %s is there twice", attrs[i].name);
	*seen |= 1U << i;
	if (name_len == len || len - name_len > sizeof(value))
		return fail_set(f, FAIL_USAGE, "--queue-attr: %s needs a number", attrs[i].name);
	snprintf(value, sizeof(value), "%.*s", (int)(len - name_len - 1), item + name_len + 1);
	if (num_parse_uint(value, 0, attrs[i].max, &v) < 0)
		return fail_set(f, FAIL_USAGE, "--queue-attr: %s: '%s' is not a number from 0 to %llu",
				attrs[i].name, value, (unsigned long long)attrs[i].max);
	return 0;
}

int qattr_check(const char *list, struct fail *f)
{
	unsigned int seen = 0;

	if (strlen(list) >= QATTR_TEXT)
		return fail_set(f, FAIL_USAGE, "--queue-attr: too long");
	for (;;) {
		size_t len = strcspn(list, ",");
		int r = check_item(list, len, &seen, f);

		if (r < 0 || !list[len])
			return r;
		list += len + 1;
	}
}

/* One write(2): sysfs takes a value whole or not at all. */
static int put(int id, const char *name, const char *value)
{
	char path[FS_PATH_MAX];
	_cleanup_fd_ int fd = -1;

	fs_path(path, "/sys/block/ublkb%d/queue/%s", id, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		return -errno;
	return 0;
}

void qattr_apply(int id, const char *scheduler, const char *list,
		 void (*warn)(void *arg, const char *name, const char *value, int err), void *arg)
{
	char copy[QATTR_TEXT], *item, *rest = NULL;
	int r;

	if (scheduler && strcmp(scheduler, QATTR_KERNEL) != 0) {
		r = put(id, "scheduler", scheduler);
		if (r < 0)
			warn(arg, "scheduler", scheduler, -r);
	}
	snprintf(copy, sizeof(copy), "%s", list ? list : "");
	for (item = strtok_r(copy, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) {
		char *value = strchr(item, '=');

		if (!value)
			continue; /* a record that was written by hand */
		*value++ = '\0';
		r = find_attr(item, strlen(item)) < 0 ? -EINVAL : put(id, item, value);
		if (r < 0)
			warn(arg, item, value, -r);
	}
}

/* "none [mq-deadline] kyber", or one word alone. */
void qattr_read_scheduler(int id, char *buf, size_t size)
{
	char path[FS_PATH_MAX], text[256], *from, *end;

	*buf = '\0';
	if (fs_read_text(fs_path(path, "/sys/block/ublkb%d/queue/scheduler", id), text,
			 sizeof(text)) < 0)
		return;
	from = strchr(text, '[');
	end = from ? strchr(from, ']') : NULL;
	if (end) {
		from++;
		*end = '\0';
	} else {
		from = from || strchr(text, ' ') ? NULL : text;
	}
	if (from)
		snprintf(buf, size, "%s", from);
}
