/* SPDX-License-Identifier: MIT */
/*
 * Parts of the JSON writer, for output that is more than an array of rows.
 */
#ifndef OUT_OUT_JSON_H
#define OUT_OUT_JSON_H

#include <json-c/json.h>

#include "out/col.h"

/* The root object with what every one begins with. */
struct json_object *out_json_root(void);
/* One row: a key for each column. */
struct json_object *out_json_row(const struct col *cols, size_t nr_cols, const void *row);
/* Any bytes as a JSON string. */
struct json_object *out_json_text(const char *text);
/* Prints and frees root. 0 or -errno with a text. */
int out_json_print(struct json_object *root, struct fail *f);

#endif
