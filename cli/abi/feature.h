/* SPDX-License-Identifier: MIT */
/*
 * The driver's feature flags: one array for `feature`, `list` and refusal messages.
 */
#ifndef ABI_FEATURE_H
#define ABI_FEATURE_H

#include <stddef.h>
#include <stdint.h>

struct abi_feature {
	unsigned int bit;
	const char *name;   /* the kernel's */
	const char *since;  /* first mainline kernel whose GET_FEATURES reports it */
	const char *option; /* how this tool uses it; NULL when it does not */
	const char *summary;
};

/* Sorted by bit, bits 0 … ret_count-1 without a gap. */
const struct abi_feature *abi_features(size_t *ret_count);
/* NULL for a bit that this build does not know. */
const struct abi_feature *abi_feature_by_bit(unsigned int bit);

#endif
