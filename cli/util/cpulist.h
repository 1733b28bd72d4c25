/* SPDX-License-Identifier: MIT */
/*
 * Lists of CPUs as the kernel writes them: "0-3,5".
 */
#ifndef UTIL_CPULIST_H
#define UTIL_CPULIST_H

#include <sched.h>
#include <stddef.h>

#define CPULIST_TEXT 4096 /* holds every list of CPU_SETSIZE CPUs */

/*
 * The whole text or nothing: numbers and ascending ranges, separated by commas. -EINVAL for
 * anything else, -ERANGE for a CPU that no cpu_set_t holds; *ret is untouched then.
 */
int cpulist_parse(const char *s, cpu_set_t *ret);
/* The shortest list, into buf of CPULIST_TEXT bytes; "" for the empty set. Returns buf. */
const char *cpulist_format(const cpu_set_t *set, char *buf);
/* The CPUs that run; -errno where the kernel does not tell. */
int cpulist_online(cpu_set_t *ret);

#endif
