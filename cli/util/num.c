/* SPDX-License-Identifier: MIT */
#include "util/num.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Leading digits of s; *end is the first other character. */
static int parse_digits(const char *s, const char **end, uint64_t *ret)
{
	uint64_t v = 0;
	const char *p = s;

	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			return -ERANGE;
	if (p == s)
		return -EINVAL;
	*end = p;
	*ret = v;
	return 0;
}

int num_parse_uint(const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
	const char *end;
	uint64_t v;
	int r = parse_digits(s, &end, &v);

	if (r < 0)
		return r;
	if (*end)
		return -EINVAL;
	if (v < min || v > max)
		return -ERANGE;
	*ret = v;
	return 0;
}

/* Factor of a size suffix, 0 when it is none; -ERANGE cannot happen: E is 2^60. */
static uint64_t suffix_factor(const char *s)
{
	static const char letters[] = "KMGTPE";
	const char *l;
	uint64_t base, f = 1;

	if (!*s || !strcmp(s, "B"))
		return 1;
	l = strchr(letters, *s);
	if (!l)
		return 0;
	if (!s[1] || !strcmp(s + 1, "iB"))
		base = 1024;
	else if (!strcmp(s + 1, "B"))
		base = 1000;
	else
		return 0;
	for (ptrdiff_t i = 0; i <= l - letters; i++)
		f *= base;
	return f;
}

int num_parse_size(const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
	const char *end;
	uint64_t v, f;
	int r = parse_digits(s, &end, &v);

	if (r < 0)
		return r;
	f = suffix_factor(end);
	if (!f)
		return -EINVAL;
	if (__builtin_mul_overflow(v, f, &v) || v < min || v > max)
		return -ERANGE;
	*ret = v;
	return 0;
}

const char *num_format_size(uint64_t bytes, char *buf)
{
	static const char letters[] = "BKMGTPE";
	unsigned int i = 0;
	uint64_t unit = 1, tenths;

	while (i < 6 && bytes / unit >= 1024) {
		unit <<= 10;
		i++;
	}
	/* rounded down: a size is never shown larger than it is */
	tenths = (uint64_t)((unsigned __int128)(bytes % unit) * 10 / unit);
	if (tenths)
		snprintf(buf, NUM_TEXT, "%llu.%llu%c", (unsigned long long)(bytes / unit),
			 (unsigned long long)tenths, letters[i]);
	else
		snprintf(buf, NUM_TEXT, "%llu%c", (unsigned long long)(bytes / unit), letters[i]);
	return buf;
}
