/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <inttypes.h>
#include <libsmartcols/libsmartcols.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "out/col.h"
#include "util/cleanup.h"
#include "util/num.h"

#define CELL_MAX 2048

static void names_text(const struct col_value *v, char *buf)
{
	size_t n = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < v->nr_names && n < CELL_MAX; i++)
		n += (size_t)snprintf(buf + n, CELL_MAX - n, "%s%s", i ? "," : "", v->names[i]);
}

static void counts_text(const struct col_value *v, char *buf)
{
	size_t n = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < v->nr_counts && n < CELL_MAX; i++)
		n += (size_t)snprintf(buf + n, CELL_MAX - n, "%s%" PRIu64, i ? "," : "", v->counts[i]);
}

/* Text of a cell in buf or elsewhere; NULL where nothing is known. */
static const char *cell_text(const struct col *c, const struct col_value *v, bool bytes, char *buf)
{
	switch (c->type) {
	case COL_TEXT:
		return v->text;
	case COL_NAMES:
		if (!v->has_names)
			return NULL;
		names_text(v, buf);
		return buf;
	case COL_COUNTS:
		if (!v->counts)
			return NULL;
		counts_text(v, buf);
		return buf;
	case COL_BOOL:
		return v->num < 0 ? NULL : v->num ? "yes" : "no";
	case COL_SIZE:
		if (v->num < 0)
			return NULL;
		if (!bytes)
			return num_format_size((uint64_t)v->num, buf);
		break;
	case COL_REAL:
		if (isnan(v->real))
			return NULL;
		snprintf(buf, CELL_MAX, "%.2f", v->real);
		return buf;
	case COL_NUM:
		if (v->num < 0)
			return NULL;
		break;
	}
	snprintf(buf, CELL_MAX, "%lld", (long long)v->num);
	return buf;
}

static int add_row(struct libscols_table *tb, const struct out *o, const void *row,
		   const size_t *index, size_t n, bool bytes)
{
	struct libscols_line *ln = scols_table_new_line(tb, NULL);
	char buf[CELL_MAX];

	if (!ln)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		const struct col *c = &o->cols[index[i]];
		struct col_value v = { .num = -1 };
		const char *text;

		c->get(row, &v);
		text = cell_text(c, &v, bytes, buf);
		if (scols_line_set_data(ln, i, text ? text : "-"))
			return -ENOMEM;
	}
	return 0;
}

static int fill(struct libscols_table *tb, const struct out *o, const struct out_opts *opts,
		const size_t *index, size_t n)
{
	scols_table_enable_raw(tb, opts->raw);
	scols_table_enable_noheadings(tb, opts->noheadings);
	for (size_t i = 0; i < n; i++) {
		const struct col *c = &o->cols[index[i]];
		bool right = c->type == COL_NUM || c->type == COL_SIZE || c->type == COL_REAL;

		if (!scols_table_new_column(tb, c->name, 0, right ? SCOLS_FL_RIGHT : 0))
			return -ENOMEM;
	}
	for (size_t r = 0; r < o->nr_rows; r++) {
		const void *row = (const char *)o->rows + r * o->row_size;
		int err = add_row(tb, o, row, index, n, opts->bytes);

		if (err < 0)
			return err;
	}
	return scols_print_table(tb) < 0 ? -EIO : 0;
}

int out_table(const struct out *o, const struct out_opts *opts, struct fail *f)
{
	size_t index[OUT_COLS_MAX], n;
	struct libscols_table *tb;
	int r = col_select(o, opts->columns, index, &n, f);

	if (r < 0)
		return r;
	scols_init_debug(0);
	tb = scols_new_table();
	r = tb ? fill(tb, o, opts, index, n) : -ENOMEM;
	scols_unref_table(tb);
	return r < 0 ? fail_errno(f, -r, "cannot print the table") : 0;
}
