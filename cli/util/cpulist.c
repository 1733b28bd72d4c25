/* SPDX-License-Identifier: MIT */
#include "util/cpulist.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "util/fs.h"
#include "util/num.h"

/* The number at *s, which is moved behind it. */
static int take_cpu(const char **s, unsigned int *ret)
{
	size_t n = strspn(*s, "0123456789");
	char digits[8];
	uint64_t v;

	if (!n)
		return -EINVAL;
	if (n >= sizeof(digits))
		return -ERANGE;
	memcpy(digits, *s, n);
	digits[n] = '\0';
	if (num_parse_uint(digits, 0, CPU_SETSIZE - 1, &v) < 0)
		return -ERANGE;
	*ret = (unsigned int)v;
	*s += n;
	return 0;
}

int cpulist_parse(const char *s, cpu_set_t *ret)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (;;) {
		unsigned int first, last;
		int r = take_cpu(&s, &first);

		last = first;
		if (!r && *s == '-') {
			s++;
			r = take_cpu(&s, &last);
		}
		if (r < 0 || last < first)
			return r < 0 ? r : -EINVAL;
		for (unsigned int c = first; c <= last; c++)
			CPU_SET(c, &set);
		if (!*s)
			break;
		if (*s++ != ',')
			return -EINVAL;
	}
	*ret = set;
	return 0;
}

const char *cpulist_format(const cpu_set_t *set, char *buf)
{
	size_t n = 0;

	buf[0] = '\0';
	for (unsigned int first = 0, last; first < CPU_SETSIZE; first = last + 1) {
		last = first;
		if (!CPU_ISSET(first, set))
			continue;
		while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
			last++;
		n += (size_t)snprintf(buf + n, CPULIST_TEXT - n, "%s%u", n ? "," : "", first);
		if (last > first)
			n += (size_t)snprintf(buf + n, CPULIST_TEXT - n, "-%u", last);
	}
	return buf;
}

int cpulist_online(cpu_set_t *ret)
{
	char path[FS_PATH_MAX], text[CPULIST_TEXT];
	int r = fs_read_text(fs_path(path, "/sys/devices/system/cpu/online"), text, sizeof(text));

	return r < 0 ? r : cpulist_parse(text, ret);
}
