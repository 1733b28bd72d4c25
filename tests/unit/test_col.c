/* SPDX-License-Identifier: MIT */
/*
 * Columns: the two arrays, the choice of columns, and JSON that never misses a key.
 */
#include "unit.h"

#include <ctype.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/ublk_abi.h"
#include "dev/dev.h"
#include "out/col.h"

/* design.md, section 5: keys of a device, in any order; * marks the default columns */
static const char *const device_keys[] = {
	"*id",
	"*name",
	"*device",
	"*target",
	"*state",
	"*size",
	"*data_mode",
	"*batch",
	"*queues",
	"*depth",
	"*pid",
	"*backing",
	"threads",
	"recovery",
	"read_only",
	"io",
	"offset",
	"block_size",
	"physical_block_size",
	"max_io",
	"null_data",
	"uid",
	"gid",
	"flags",
	"char_device",
	"node_missing",
	"created",
	"affinity",
	"scheduler",
	"queue_attr",
	"poll_us",
	"hugepages",
};

static const char *const feature_keys[] = {
	"*bit", "*name", "*supported", "*since", "*option", "*summary",
};

/* ---- the arrays ------------------------------------------------------------------------- */

static bool is_lower_snake(const char *s)
{
	if (!islower((unsigned char)*s) || s[strlen(s) - 1] == '_' || strstr(s, "__"))
		return false;
	return strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(s);
}

static bool is_header(const char *s)
{
	return isupper((unsigned char)*s) &&
	       strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == strlen(s);
}

static void check_array(const struct col *c, size_t n)
{
	assert_true(n > 0 && n <= OUT_COLS_MAX);
	for (size_t i = 0; i < n; i++) {
		unit_case("column %zu '%s' key '%s'", i, c[i].name, c[i].key);
		unit_check(is_header(c[i].name));
		unit_check(is_lower_snake(c[i].key));
		unit_check(c[i].help && *c[i].help && !strchr(c[i].help, '\n'));
		unit_check(c[i].get);
		for (size_t k = 0; k < i; k++) {
			unit_check(strcmp(c[i].name, c[k].name));
			unit_check(strcmp(c[i].key, c[k].key));
		}
	}
}

/* Exactly these keys, with exactly these defaults. */
static void check_keys(const struct col *c, size_t n, const char *const *keys, size_t nr_keys)
{
	for (size_t i = 0; i < n; i++) {
		bool found = false;

		for (size_t k = 0; k < nr_keys; k++) {
			bool star = keys[k][0] == '*';

			if (!strcmp(keys[k] + star, c[i].key)) {
				found = true;
				unit_case("default of '%s'", c[i].key);
				unit_check(c[i].by_default == star);
			}
		}
		unit_case("key '%s' is in the contract", c[i].key);
		unit_check(found);
	}
	assert_int_equal(n, nr_keys);
}

static void test_arrays(void **state)
{
	const struct col *c;
	size_t n;

	(void)state;
	c = col_device(&n);
	check_array(c, n);
	check_keys(c, n, device_keys, COUNT_OF(device_keys));
	c = col_feature(&n);
	check_array(c, n);
	check_keys(c, n, feature_keys, COUNT_OF(feature_keys));
}

/* ---- col_select ------------------------------------------------------------------------- */

static struct out device_out(void)
{
	struct out o = { .json_array = "devices" };

	o.cols = col_device(&o.nr_cols);
	return o;
}

/* Headers of the chosen columns with blanks between them. */
static const char *chosen(const char *spec)
{
	static char text[1024];
	struct out o = device_out();
	size_t index[OUT_COLS_MAX], n = 0;
	struct fail f = { 0 };
	int r = col_select(&o, spec, index, &n, &f);

	if (r)
		fail_msg("'%s': %d (%s)", spec ? spec : "NULL", r, f.text);
	text[0] = '\0';
	for (size_t i = 0; i < n; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", i ? " " : "",
			 o.cols[index[i]].name);
	return text;
}

static void refused(const char *spec, const char *part)
{
	struct out o = device_out();
	size_t index[OUT_COLS_MAX], n = 12345;
	struct fail f = { 0 };
	int r = col_select(&o, spec, index, &n, &f);

	unit_case("'%s': %d (%s), '%s'", spec, r, f.text, part);
	unit_check(r == -FAIL_USAGE && f.err == FAIL_USAGE);
	unit_check(strstr(f.text, part));
	unit_check(n == 12345);
}

#define DEFAULTS "ID NAME DEVICE TYPE STATE SIZE MODE BATCH QUEUES DEPTH PID BACKING"

static void test_select(void **state)
{
	(void)state;
	assert_string_equal(chosen(NULL), DEFAULTS);
	assert_string_equal(chosen("ID"), "ID");
	assert_string_equal(chosen("SIZE,ID,FLAGS"), "SIZE ID FLAGS"); /* in the order asked for */
	assert_string_equal(chosen("size,Id,block-Size"), "SIZE ID BLOCK-SIZE");
	assert_string_equal(chosen("+THREADS"), DEFAULTS " THREADS");
	assert_string_equal(chosen("+threads,UID"), DEFAULTS " THREADS UID");
	/* as lsblk does: what is asked for twice is shown twice */
	assert_string_equal(chosen("ID,ID"), "ID ID");
	assert_string_equal(chosen("+BATCH"), DEFAULTS " BATCH");
}

static void test_select_refused(void **state)
{
	char many[OUT_COLS_MAX * 3 + 8] = "ID";

	(void)state;
	refused("", "''");
	refused("+", "''");
	refused("NOPE", "'NOPE'");
	refused("ID,NOPE,SIZE", "'NOPE'");
	refused("ID,", "''");
	refused(",ID", "''");
	refused("ID,,SIZE", "''");
	refused("I", "'I'"); /* no prefixes */
	refused("IDS", "'IDS'");
	refused("ID SIZE", "'ID SIZE'");
	refused("++ID", "'+ID'");
	refused("ID,+SIZE", "'+SIZE'");
	refused("block_size", "'block_size'"); /* the header, not the key */
	for (int i = 1; i < OUT_COLS_MAX; i++)
		strcat(many, ",ID");
	chosen(many);
	strcat(many, ",ID");
	refused(many, "more than 40");
}

/* ---- JSON ------------------------------------------------------------------------------- */

/* What fn prints on stdout. */
static char *printed(int (*fn)(const void *), const void *arg)
{
	static char text[65536];
	FILE *tmp = tmpfile();
	int saved, r;
	size_t n;

	assert_non_null(tmp);
	fflush(stdout);
	saved = dup(STDOUT_FILENO);
	assert_true(dup2(fileno(tmp), STDOUT_FILENO) >= 0);
	r = fn(arg);
	fflush(stdout);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	assert_int_equal(r, 0);
	rewind(tmp);
	n = fread(text, 1, sizeof(text) - 1, tmp);
	text[n] = '\0';
	fclose(tmp);
	return text;
}

static int print_json(const void *o)
{
	struct fail f;

	return out_json(o, &f);
}

/* The only row of the array that was printed. */
static struct json_object *json_of(const struct out *o, struct json_object **ret_row)
{
	struct json_object *root = json_tokener_parse(printed(print_json, o)), *about, *v;

	assert_non_null(root);
	assert_int_equal(json_object_object_length(root), 2);
	assert_true(json_object_object_get_ex(root, "ublkctl", &about));
	assert_true(json_object_object_get_ex(about, "schema", &v));
	assert_int_equal(json_object_get_int(v), 1);
	assert_true(json_object_object_get_ex(about, "version", &v));
	assert_true(json_object_is_type(v, json_type_string));
	assert_true(json_object_object_get_ex(root, o->json_array, &v));
	assert_true(json_object_is_type(v, json_type_array));
	assert_int_equal(json_object_array_length(v), o->nr_rows);
	*ret_row = o->nr_rows ? json_object_array_get_idx(v, 0) : NULL;
	return root;
}

static struct dev_view unknown_view(void)
{
	return (struct dev_view){
		.id = 3,
		.name = "ublkb3",
		.device = "/dev/ublkb3",
		.char_device = "/dev/ublkc3",
		.size = -1,
		.batch = -1,
		.queues = -1,
		.depth = -1,
		.threads = -1,
		.pid = -1,
		.read_only = -1,
		.block_size = -1,
		.phys_block_size = -1,
		.max_io = -1,
		.uid = -1,
		.gid = -1,
		.node_missing = -1,
	};
}

static void test_json_unknown(void **state)
{
	struct dev_view view = unknown_view();
	struct out o = device_out();
	struct json_object *root, *row, *v;

	(void)state;
	o.rows = &view;
	o.row_size = sizeof(view);
	o.nr_rows = 1;
	root = json_of(&o, &row);
	assert_int_equal(json_object_object_length(row), COUNT_OF(device_keys));
	for (size_t i = 0; i < COUNT_OF(device_keys); i++) {
		const char *key = device_keys[i] + (device_keys[i][0] == '*');
		/* what follows from the id alone is known */
		bool known =
			!strcmp(key, "id") || !strcmp(key, "name") || !strcmp(key, "char_device");

		unit_case("key '%s'", key);
		unit_check(json_object_object_get_ex(row, key, &v));
		unit_check(known == (v != NULL));
	}
	json_object_put(root);
}

static int64_t int_of(struct json_object *row, const char *key)
{
	struct json_object *v;

	unit_case("key '%s'", key);
	unit_check(json_object_object_get_ex(row, key, &v));
	unit_check(json_object_is_type(v, json_type_int));
	return json_object_get_int64(v);
}

static bool bool_of(struct json_object *row, const char *key)
{
	struct json_object *v;

	unit_case("key '%s'", key);
	unit_check(json_object_object_get_ex(row, key, &v));
	unit_check(json_object_is_type(v, json_type_boolean));
	return json_object_get_boolean(v);
}

static const char *text_of(struct json_object *row, const char *key)
{
	struct json_object *v;

	unit_case("key '%s'", key);
	unit_check(json_object_object_get_ex(row, key, &v));
	unit_check(json_object_is_type(v, json_type_string));
	return json_object_get_string(v);
}

static struct dev_view known_view(void)
{
	struct dev_view v = {
		.id = 0,
		.name = "ublkb0",
		.device = "/dev/ublkb0",
		.char_device = "/dev/ublkc0",
		.state = "live",
		.target = "null",
		.data_mode = "copy",
		.recovery = "off",
		.size = 268435456000,
		.batch = 1,
		.queues = 4,
		.depth = 128,
		.threads = 2,
		.pid = 77,
		.read_only = 0,
		.block_size = 512,
		.phys_block_size = 4096,
		.max_io = 524288,
		.uid = 0,
		.gid = 0,
		.node_missing = 0,
		.has_flags = true,
		.flags = UBLK_F_BATCH_IO | UBLK_F_CMD_IOCTL_ENCODE | 1ULL << 40 | 1ULL << 63,
		.has_disk = true,
		.has_record = true,
	};

	snprintf(v.rec.created, sizeof(v.rec.created), "2026-01-02T03:04:05Z");
	snprintf(v.rec.null_data, sizeof(v.rec.null_data), "zeros");
	return v;
}

static void test_json_known(void **state)
{
	static const char *const flags[] = { "UBLK_F_CMD_IOCTL_ENCODE", "UBLK_F_BATCH_IO", "bit40",
					     "bit63" };
	struct dev_view view = known_view();
	struct out o = device_out();
	struct json_object *root, *row, *v;

	(void)state;
	o.rows = &view;
	o.row_size = sizeof(view);
	o.nr_rows = 1;
	root = json_of(&o, &row);
	assert_int_equal(int_of(row, "id"), 0); /* 0 is a value, not "unknown" */
	assert_true(int_of(row, "size") == 268435456000);
	assert_int_equal(int_of(row, "queues"), 4);
	assert_int_equal(int_of(row, "depth"), 128);
	assert_int_equal(int_of(row, "threads"), 2);
	assert_int_equal(int_of(row, "pid"), 77);
	assert_int_equal(int_of(row, "uid"), 0);
	assert_int_equal(int_of(row, "max_io"), 524288);
	assert_true(bool_of(row, "batch"));
	assert_false(bool_of(row, "read_only"));
	assert_false(bool_of(row, "node_missing"));
	assert_string_equal(text_of(row, "device"), "/dev/ublkb0");
	assert_string_equal(text_of(row, "state"), "live");
	assert_string_equal(text_of(row, "target"), "null");
	assert_string_equal(text_of(row, "data_mode"), "copy");
	assert_string_equal(text_of(row, "recovery"), "off");
	assert_string_equal(text_of(row, "null_data"), "zeros");
	assert_string_equal(text_of(row, "created"), "2026-01-02T03:04:05Z");
	assert_true(json_object_object_get_ex(row, "flags", &v));
	assert_int_equal(json_object_array_length(v), COUNT_OF(flags));
	for (size_t i = 0; i < COUNT_OF(flags); i++)
		assert_string_equal(json_object_get_string(json_object_array_get_idx(v, i)), flags[i]);
	json_object_put(root);
}

/* All 64 bits at once, none at all, and not a single device. */
static void test_json_corners(void **state)
{
	struct dev_view view = known_view();
	struct out o = device_out();
	struct json_object *root, *row, *v;

	(void)state;
	root = json_of(&o, &row);
	assert_null(row);
	json_object_put(root);
	o.rows = &view;
	o.row_size = sizeof(view);
	o.nr_rows = 1;
	view.flags = UINT64_MAX;
	root = json_of(&o, &row);
	assert_true(json_object_object_get_ex(row, "flags", &v));
	assert_int_equal(json_object_array_length(v), 64);
	json_object_put(root);
	view.flags = 0;
	view.target = "unknown"; /* another tool's: nothing of a null device is known */
	view.has_record = false;
	root = json_of(&o, &row);
	assert_true(json_object_object_get_ex(row, "flags", &v));
	assert_int_equal(json_object_array_length(v), 0);
	assert_true(json_object_object_get_ex(row, "null_data", &v));
	assert_null(v);
	json_object_put(root);
}

/* ---- table ------------------------------------------------------------------------------ */

static struct out_opts table_opts;

static int print_table(const void *o)
{
	struct fail f;

	return out_table(o, &table_opts, &f);
}

static void test_table(void **state)
{
	struct dev_view views[2] = { known_view(), unknown_view() };
	struct out o = device_out();

	(void)state;
	o.rows = views;
	o.row_size = sizeof(views[0]);
	o.nr_rows = 2;
	table_opts = (struct out_opts){ .raw = true, .columns = "ID,SIZE,BATCH,RO,STATE,CREATED" };
	assert_string_equal(printed(print_table, &o), "ID SIZE BATCH RO STATE CREATED\n"
						      "0 250G yes no live 2026-01-02T03:04:05Z\n"
						      "3 - - - - -\n");
	table_opts.noheadings = table_opts.bytes = true;
	table_opts.columns = "size,flags";
	assert_string_equal(printed(print_table, &o),
			    "268435456000 UBLK_F_CMD_IOCTL_ENCODE,UBLK_F_BATCH_IO,bit40,bit63\n"
			    "- -\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_arrays),	       cmocka_unit_test(test_select),
		cmocka_unit_test(test_select_refused), cmocka_unit_test(test_json_unknown),
		cmocka_unit_test(test_json_known),     cmocka_unit_test(test_json_corners),
		cmocka_unit_test(test_table),
	};

	return cmocka_run_group_tests_name("col", tests, NULL, NULL);
}
