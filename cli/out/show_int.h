/* SPDX-License-Identifier: MIT */
/*
 * What the two halves of show's writer share.
 */
#ifndef OUT_SHOW_INT_H
#define OUT_SHOW_INT_H

#include "out/out_json.h"
#include "out/show.h"

/* The object "device". The caller frees it. */
struct json_object *show_tree(const struct show *s);

#endif
