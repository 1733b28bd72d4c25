/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "out/out_json.h"
#include "version.h"

#define JSON_SCHEMA 1

/* Bytes of a well-formed UTF-8 character at s (RFC 3629), 0 when there is none. */
static size_t utf8_len(const unsigned char *s)
{
	size_t n = *s < 0x80		   ? 1 :
		   *s >= 0xc2 && *s < 0xe0 ? 2 :
		   (*s & 0xf0) == 0xe0	   ? 3 :
		   *s >= 0xf0 && *s < 0xf5 ? 4 :
					     0;

	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	/* overlong forms, surrogates, beyond U+10FFFF */
	if ((*s == 0xe0 && s[1] < 0xa0) || (*s == 0xed && s[1] > 0x9f) ||
	    (*s == 0xf0 && s[1] < 0x90) || (*s == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

/* JSON is UTF-8, paths are bytes: what is no character becomes U+FFFD. */
struct json_object *out_json_text(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	char *copy = malloc(3 * strlen(text) + 1), *w = copy;
	struct json_object *o;

	if (!copy)
		return NULL;
	while (*s) {
		size_t n = utf8_len(s);

		memcpy(w, n ? (const char *)s : "\xef\xbf\xbd", n ? n : 3);
		w += n ? n : 3;
		s += n ? n : 1;
	}
	*w = '\0';
	o = json_object_new_string(copy);
	free(copy);
	return o;
}

static struct json_object *names_array(const struct col_value *v)
{
	struct json_object *a = json_object_new_array();

	for (size_t i = 0; a && i < v->nr_names; i++)
		json_object_array_add(a, json_object_new_string(v->names[i]));
	return a;
}

static struct json_object *counts_array(const struct col_value *v)
{
	struct json_object *a = json_object_new_array();

	for (size_t i = 0; a && i < v->nr_counts; i++)
		json_object_array_add(a, json_object_new_uint64(v->counts[i]));
	return a;
}

/* Three decimals are what a measured ratio is good for. */
static struct json_object *real_number(double d)
{
	char text[64];

	snprintf(text, sizeof(text), "%.3f", d);
	return json_object_new_double_s(d, text);
}

/* NULL is JSON's null: nothing is known. */
static struct json_object *value_to_json(const struct col *c, const struct col_value *v)
{
	switch (c->type) {
	case COL_TEXT:
		return v->text ? out_json_text(v->text) : NULL;
	case COL_NAMES:
		return v->has_names ? names_array(v) : NULL;
	case COL_COUNTS:
		return v->counts ? counts_array(v) : NULL;
	case COL_BOOL:
		return v->num < 0 ? NULL : json_object_new_boolean(v->num != 0);
	case COL_REAL:
		return isnan(v->real) ? NULL : real_number(v->real);
	case COL_NUM:
	case COL_SIZE:
		return v->num < 0 ? NULL : json_object_new_int64(v->num);
	}
	return NULL;
}

struct json_object *out_json_row(const struct col *cols, size_t nr_cols, const void *row)
{
	struct json_object *obj = json_object_new_object();

	for (size_t i = 0; obj && i < nr_cols; i++) {
		struct col_value v = { .num = -1 };

		cols[i].get(row, &v);
		json_object_object_add(obj, cols[i].key, value_to_json(&cols[i], &v));
	}
	return obj;
}

struct json_object *out_json_root(void)
{
	struct json_object *root = json_object_new_object(), *about = json_object_new_object();

	json_object_object_add(about, "schema", json_object_new_int(JSON_SCHEMA));
	json_object_object_add(about, "version", json_object_new_string(UBLKCTL_VERSION));
	json_object_object_add(root, "ublkctl", about);
	return root;
}

int out_json_print(struct json_object *root, struct fail *f)
{
	const char *text =
		json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
							     JSON_C_TO_STRING_NOSLASHESCAPE);
	int r = 0;

	if (!text || printf("%s\n", text) < 0)
		r = fail_errno(f, errno ? errno : ENOMEM, "cannot print JSON");
	json_object_put(root);
	return r;
}

int out_json(const struct out *o, struct fail *f)
{
	struct json_object *root = out_json_root(), *rows = json_object_new_array();

	for (size_t r = 0; r < o->nr_rows; r++)
		json_object_array_add(rows, out_json_row(o->cols, o->nr_cols,
							 (const char *)o->rows + r * o->row_size));
	json_object_object_add(root, o->json_array, rows);
	if (o->json_extra)
		o->json_extra(root, o->json_extra_arg);
	return out_json_print(root, f);
}
