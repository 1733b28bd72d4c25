/* SPDX-License-Identifier: MIT */
/*
 * Moments at which a process can be made to die as by kill -9, in a test build only (FAULT_POINTS): the
 * environment's UBLKCTL_FAULT names one, "LADDER:N" with N steps done.
 */
#ifndef UTIL_FAULT_H
#define UTIL_FAULT_H

#ifdef FAULT_POINTS

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void fault_point(const char *ladder, unsigned int done)
{
	const char *at = getenv("UBLKCTL_FAULT");
	char here[32];

	snprintf(here, sizeof(here), "%s:%u", ladder, done);
	if (at && !strcmp(at, here))
		kill(getpid(), SIGKILL);
}

#else

static inline void fault_point(const char *ladder, unsigned int done)
{
	(void)ladder;
	(void)done;
}

#endif

#endif
