/* SPDX-License-Identifier: MIT */
/*
 * Targets: what answers the I/O of a device.
 */
#ifndef TARGET_TARGET_H
#define TARGET_TARGET_H

#include "engine/tgt_ops.h"

/* NULL for an unknown name. */
const struct tgt_ops *tgt_find(const char *name);
/* n-th target, NULL behind the last. */
const struct tgt_ops *tgt_at(unsigned int n);
/* its name; for option words */
const char *tgt_name_at(unsigned int n);

extern const struct tgt_ops tgt_null, tgt_file;

#endif
