/* SPDX-License-Identifier: MIT */
/*
 * Columns: header, JSON key, type, help and getter in one array, for table, JSON,
 * --list-columns, help and completion. Rows are gathered first, then handed to one writer.
 */
#ifndef OUT_COL_H
#define OUT_COL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "msg.h"

enum col_type {
	COL_TEXT,   /* text */
	COL_NUM,    /* int64, -1 is unknown */
	COL_SIZE,   /* int64 bytes, -1 is unknown; short form in tables unless --bytes */
	COL_BOOL,   /* num 0 or 1, -1 is unknown */
	COL_REAL,   /* double, NaN is unknown */
	COL_NAMES,  /* flags: list of names */
	COL_COUNTS, /* list of numbers */
};

#define COL_NAMES_MAX 64

struct col_value {
	const char *text; /* NULL: unknown */
	int64_t num;
	double real;
	const char *names[COL_NAMES_MAX]; /* live as long as the row or static */
	char spare[COL_NAMES_MAX][8];	  /* for names made up on the way */
	const uint64_t *counts;		  /* lives as long as the row; NULL: unknown */
	size_t nr_counts;
	size_t nr_names;
	bool has_names;
};

struct col {
	const char *name; /* table header */
	const char *key;  /* JSON key */
	enum col_type type;
	bool by_default;
	const char *help;
	void (*get)(const void *row, struct col_value *ret);
};

/* What a writer gets. */
struct out {
	const struct col *cols;
	size_t nr_cols;
	const char *json_array; /* name of the array: "devices" */
	const void *rows;
	size_t row_size, nr_rows;
	/* further members of the JSON object, or NULL: calls json-c on the root object */
	void (*json_extra)(void *root, const void *arg);
	const void *json_extra_arg;
};

#define OUT_COLS_MAX 40

/* Words of the command line that shape the output. */
struct out_opts {
	bool json, raw, noheadings, bytes;
	const char *columns; /* of -o, or NULL */
};

/*
 * Columns of the table: the defaults, "A,B" or "+A,B", case does not matter.
 * -FAIL_USAGE for an unknown one.
 */
int col_select(const struct out *o, const char *spec, size_t *ret_index, size_t *ret_count,
	       struct fail *f);
/* --list-columns: one row per column, on stdout. */
void col_list(const struct col *cols, size_t nr_cols);

/* Prints rows in the chosen form. 0 or -errno with a text. */
int out_print(const struct out *o, const struct out_opts *opts, struct fail *f);
int out_table(const struct out *o, const struct out_opts *opts, struct fail *f);
int out_json(const struct out *o, struct fail *f);

/* The device columns: rows are struct dev_view. */
const struct col *col_device(size_t *ret_count);
/* The feature columns: rows are struct col_feature_row. */
const struct col *col_feature(size_t *ret_count);

struct col_feature_row {
	unsigned int bit;
	bool supported;
	const char *name, *since, *option, *summary; /* NULL where this build does not know it */
};

#endif
