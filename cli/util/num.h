/* SPDX-License-Identifier: MIT */
/*
 * Strict numbers: the whole text or nothing.
 */
#ifndef UTIL_NUM_H
#define UTIL_NUM_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Decimal integer in [min, max]: digits only, no sign, no blanks, no trailing text.
 * Returns 0, -EINVAL (not a number) or -ERANGE; *ret is untouched on failure.
 */
int num_parse_uint(const char *s, uint64_t min, uint64_t max, uint64_t *ret);

/*
 * Size in bytes: digits and an optional suffix. K M G T P E and KiB … EiB are powers
 * of 1024, KB … EB powers of 1000, B is bytes. Returns as num_parse_uint().
 */
int num_parse_size(const char *s, uint64_t min, uint64_t max, uint64_t *ret);

#define NUM_TEXT 48

/* Bytes as a short text such as "250G" or "1.5M" (powers of 1024), into buf[NUM_TEXT]. */
const char *num_format_size(uint64_t bytes, char *buf);

static inline bool num_is_pow2(uint64_t v)
{
	return v && !(v & (v - 1));
}

/* log2 of a power of two */
static inline unsigned int num_log2(uint64_t v)
{
	return (unsigned int)__builtin_ctzll(v);
}

static inline uint64_t num_round_up(uint64_t v, uint64_t pow2)
{
	return (v + pow2 - 1) & ~(pow2 - 1);
}

/* smallest power of two that is >= v; v in 1..2^31 */
static inline uint32_t num_pow2_ceil(uint32_t v)
{
	uint32_t p = 1;

	while (p < v)
		p <<= 1;
	return p;
}

#endif
