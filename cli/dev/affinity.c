/* SPDX-License-Identifier: MIT */
#include "dev/affinity.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "abi/ublk_abi.h"
#include "util/cpulist.h"
#include "util/num.h"

int aff_next(const char **text, unsigned int *ret_queue, cpu_set_t *ret_cpus)
{
	size_t len = *text ? strcspn(*text, ":") : 0;
	char one[CFG_AFFINITY_TEXT], *eq;
	uint64_t queue;
	int r;

	if (!*text || !**text)
		return 0;
	if (len >= sizeof(one))
		return -ERANGE;
	memcpy(one, *text, len);
	one[len] = '\0';
	eq = strchr(one, '=');
	/* a separator has something behind it */
	if (!eq || ((*text)[len] && !(*text)[len + 1]))
		return -EINVAL;
	*eq = '\0';
	r = num_parse_uint(one, 0, UBLK_MAX_NR_QUEUES - 1, &queue);
	if (!r)
		r = cpulist_parse(eq + 1, ret_cpus);
	if (r < 0)
		return r;
	*ret_queue = (unsigned int)queue;
	*text += len + ((*text)[len] == ':');
	return 1;
}

static int check_online(unsigned int queue, const cpu_set_t *cpus, struct fail *f)
{
	char asked[CPULIST_TEXT], there[CPULIST_TEXT];
	cpu_set_t online, both;

	if (cpulist_online(&online) < 0)
		return 0;
	CPU_AND(&both, cpus, &online);
	if (CPU_COUNT(&both))
		return 0;
	return fail_set(f, EINVAL, "queue %u: none of the CPUs %.150s is online (%.100s are)",
			queue, cpulist_format(cpus, asked), cpulist_format(&online, there));
}

int aff_check(const char *text, unsigned int queues, struct fail *f)
{
	bool seen[UBLK_MAX_NR_QUEUES] = { false };
	unsigned int q;
	cpu_set_t cpus;
	int r;

	if (strlen(text) >= CFG_AFFINITY_TEXT)
		return fail_set(f, FAIL_USAGE, "more than %d characters of QUEUE=CPUS",
				CFG_AFFINITY_TEXT - 1);
	if (!*text)
		return fail_set(f, FAIL_USAGE, "'' is not QUEUE=CPUS (such as 0=0-3,5)");
	while ((r = aff_next(&text, &q, &cpus)) > 0) {
		if (q >= queues)
			return fail_set(f, FAIL_USAGE, "queue %u: there are %u, from 0 to %u", q,
					queues, queues - 1);
		if (seen[q])
			return fail_set(f, FAIL_USAGE, "queue %u is there twice", q);
		seen[q] = true;
		r = check_online(q, &cpus, f);
		if (r < 0)
			return r;
	}
	if (r == -ERANGE)
		return fail_set(f, FAIL_USAGE, "'%.100s': queues go up to %d, CPUs up to %d", text,
				UBLK_MAX_NR_QUEUES - 1, CPU_SETSIZE - 1);
	return r < 0 ? fail_set(f, FAIL_USAGE, "'%.100s' is not QUEUE=CPUS (such as 0=0-3,5)", text) :
		       0;
}

void aff_apply(const char *text, unsigned int queues, cpu_set_t *sets)
{
	unsigned int q;
	cpu_set_t cpus;

	/* the driver may have granted fewer queues than were asked for */
	while (aff_next(&text, &q, &cpus) > 0)
		if (q < queues)
			sets[q] = cpus;
}

int aff_format(const cpu_set_t *sets, unsigned int queues, char *buf)
{
	char list[CPULIST_TEXT];
	size_t n = 0;

	buf[0] = '\0';
	for (unsigned int q = 0; q < queues; q++) {
		if (!CPU_COUNT(&sets[q]))
			continue;
		n += (size_t)snprintf(buf + n, CFG_AFFINITY_TEXT - n, "%s%u=%s", n ? ":" : "", q,
				      cpulist_format(&sets[q], list));
		if (n >= CFG_AFFINITY_TEXT)
			return -E2BIG;
	}
	return 0;
}
