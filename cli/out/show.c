/* SPDX-License-Identifier: MIT */
#include "out/show.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "out/show_int.h"
#include "util/num.h"

#define NAME_MAX_LEN 96
#define VALUE_COLUMN 31 /* where values begin, unless a name is longer */

/* Is the value a number of bytes? What the columns and show itself say of a key. */
static bool is_size(const char *key)
{
	static const char *const own[] = { "locked_memory", "rss" };
	size_t n;
	const struct col *cols = col_device(&n);

	for (size_t i = 0; i < n; i++)
		if (!strcmp(cols[i].key, key))
			return cols[i].type == COL_SIZE;
	return !strcmp(key, own[0]) || !strcmp(key, own[1]);
}

/* A line must stay one: no control characters from paths and logs. */
static void put_text(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 127)
			printf("\\x%02x", (unsigned char)*s);
		else
			putchar(*s);
}

static void put_value(const char *key, struct json_object *v, bool bytes)
{
	char text[NUM_TEXT];

	if (!v)
		putchar('-');
	else if (json_object_is_type(v, json_type_boolean))
		fputs(json_object_get_boolean(v) ? "yes" : "no", stdout);
	else if (json_object_is_type(v, json_type_int) && is_size(key) && !bytes)
		fputs(num_format_size((uint64_t)json_object_get_int64(v), text), stdout);
	else
		put_text(json_object_get_string(v));
}

/* The keys of JSON, with blanks for underscores. */
static void put_name(const char *name)
{
	int n = 0;

	for (; name[n]; n++)
		putchar(name[n] == '_' ? ' ' : name[n]);
	printf(":%*s", n + 1 < VALUE_COLUMN ? VALUE_COLUMN - n - 1 : 1, "");
}

static void put_list(const char *key, struct json_object *a, bool bytes)
{
	size_t n = json_object_array_length(a);

	if (!n)
		fputs("none", stdout);
	for (size_t i = 0; i < n; i++) {
		if (i)
			putchar(',');
		put_value(key, json_object_array_get_idx(a, i), bytes);
	}
}

/* An object of an array in one line: "cpus 0-1 affinity - threads 12,13". Its first member names it. */
static void put_member_line(const char *key, struct json_object *o, bool bytes)
{
	char name[NAME_MAX_LEN];
	unsigned int n = 0;

	json_object_object_foreach(o, k, v)
	{
		if (!n++) {
			snprintf(name, sizeof(name), "%s %s", k, v ? json_object_get_string(v) : "?");
			put_name(name);
			continue;
		}
		printf("%s%s ", n > 2 ? " " : "", k);
		if (json_object_is_type(v, json_type_array))
			put_list(key, v, bytes);
		else
			put_value(k, v, bytes);
	}
	putchar('\n');
}

static bool holds_objects(struct json_object *v)
{
	return json_object_array_length(v) &&
	       json_object_is_type(json_object_array_get_idx(v, 0), json_type_object);
}

static void put_array(const char *name, const char *key, struct json_object *a, bool bytes)
{
	size_t n = json_object_array_length(a);
	/* texts with blanks and commas in them get a line each */
	const bool lines = !strcmp(key, "log");

	if (holds_objects(a)) {
		for (size_t i = 0; i < n; i++)
			put_member_line(key, json_object_array_get_idx(a, i), bytes);
		return;
	}
	for (size_t i = 0; lines && i < n; i++) {
		put_name(name);
		put_value(key, json_object_array_get_idx(a, i), bytes);
		putchar('\n');
	}
	if (lines && n)
		return;
	put_name(name);
	put_list(key, a, bytes);
	putchar('\n');
}

/* One line for each value; members of an object have its name in front. */
static void put_object(const char *prefix, struct json_object *o, bool bytes)
{
	json_object_object_foreach(o, key, v)
	{
		char name[NAME_MAX_LEN];

		snprintf(name, sizeof(name), "%s%s%s", prefix, *prefix ? "_" : "", key);
		if (json_object_is_type(v, json_type_object)) {
			put_object(name, v, bytes);
		} else if (json_object_is_type(v, json_type_array)) {
			put_array(name, key, v, bytes);
		} else {
			put_name(name);
			put_value(key, v, bytes);
			putchar('\n');
		}
	}
}

int out_show(const struct show *s, const struct out_opts *o, struct fail *f)
{
	struct json_object *tree = show_tree(s), *root;

	if (!tree)
		return fail_errno(f, ENOMEM, "cannot print");
	if (o->json) {
		root = out_json_root();
		json_object_object_add(root, "device", tree);
		return out_json_print(root, f);
	}
	put_object("", tree, o->bytes);
	json_object_put(tree);
	return 0; /* the dispatcher looks at the state of stdout */
}
