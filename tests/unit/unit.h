/* SPDX-License-Identifier: MIT */
/*
 * What every unit test includes: cmocka with the headers it wants in front of it.
 */
#ifndef UNIT_UNIT_H
#define UNIT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

/* cmocka's reports name no case of a table: this line goes in front of them. */
#define unit_case(...)                                                                             \
	do {                                                                                       \
		snprintf(unit_case_text, sizeof(unit_case_text), __VA_ARGS__);                     \
	} while (0)

/* Aborts the test with the case in the message unless cond holds. */
#define unit_check(cond)                                                                           \
	do {                                                                                       \
		if (!(cond))                                                                       \
			fail_msg("%s: not true: %s", unit_case_text, #cond);                       \
	} while (0)

static char unit_case_text[4096] __attribute__((unused));

#endif
