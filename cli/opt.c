/* SPDX-License-Identifier: MIT */
#include "opt.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cfg.h"
#include "util/cleanup.h"
#include "util/num.h"

/* getopt_long() values of options: above all characters */
#define LONG_BASE 256

static size_t table_len(const struct opt *table)
{
	size_t n = 0;

	while (table[n].name)
		n++;
	return n;
}

static int bad_number(const struct opt *o, const char *arg, int err, struct fail *f)
{
	if (err == -ERANGE || o->pow2)
		return fail_set(f, FAIL_USAGE, "--%s: '%s' is not %s%llu to %llu", o->name, arg,
				o->pow2 ? "a power of two from " : "in the range ",
				(unsigned long long)o->min, (unsigned long long)o->max);
	return fail_set(f, FAIL_USAGE, "--%s: '%s' is not a %s", o->name, arg,
			o->type == OPT_SIZE ?
				"size (a whole number of bytes, or of K, M, G, T, P or E)" :
				"number");
}

static int set_number(const struct opt *o, const char *arg, void *value, struct fail *f)
{
	uint64_t v;
	int r = o->type == OPT_SIZE ? num_parse_size(arg, o->min, o->max, &v) :
				      num_parse_uint(arg, o->min, o->max, &v);

	if (!r && o->pow2 && !num_is_pow2(v))
		r = -EINVAL;
	if (r < 0)
		return bad_number(o, arg, r, f);
	if (o->type == OPT_SIZE)
		*(uint64_t *)value = v;
	else
		*(unsigned int *)value = (unsigned int)v;
	return 0;
}

static int set_word(const struct opt *o, const char *arg, void *value, struct fail *f)
{
	char all[160] = "";
	size_t n = 0;

	for (unsigned int i = 0; o->word(i); i++) {
		if (!strcmp(o->word(i), arg)) {
			*(const char **)value = o->word(i);
			return 0;
		}
		n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", i ? ", " : "", o->word(i));
		if (n >= sizeof(all))
			n = sizeof(all) - 1;
	}
	return fail_set(f, FAIL_USAGE, "--%s: '%s' is none of: %s", o->name, arg, all);
}

static int parse_id(const char *s, int *ret, struct fail *f)
{
	uint64_t v;

	if (num_parse_uint(s, 0, CFG_ID_MAX, &v) < 0)
		return fail_set(f, FAIL_USAGE, "'%s' is not a device id (a number from 0 to %d)", s,
				CFG_ID_MAX);
	*ret = (int)v;
	return 0;
}

static int set_value(const struct opt *o, const char *arg, void *base, struct fail *f)
{
	void *value = (char *)base + o->offset;

	switch (o->type) {
	case OPT_FLAG:
		*(bool *)value = true;
		return 0;
	case OPT_UINT:
	case OPT_SIZE:
		return set_number(o, arg, value, f);
	case OPT_ID:
		return parse_id(arg, value, f);
	case OPT_TEXT:
		if (!*arg)
			return fail_set(f, FAIL_USAGE, "--%s: empty", o->name);
		*(const char **)value = arg;
		return 0;
	case OPT_WORD:
		return set_word(o, arg, value, f);
	}
	return fail_set(f, FAIL_USAGE, "--%s: unknown kind of option", o->name);
}

/* Fills getopt's two tables. */
static void build_getopt(const struct opt *table, size_t n, char *letters, struct option *longs)
{
	char *l = letters;

	*l++ = ':'; /* tell a missing argument from an unknown option */
	for (size_t i = 0; i < n; i++) {
		int has = table[i].type == OPT_FLAG ? no_argument : required_argument;

		longs[i] = (struct option){ table[i].name, has, NULL, LONG_BASE + (int)i };
		if (table[i].letter) {
			*l++ = table[i].letter;
			if (has == required_argument)
				*l++ = ':';
		}
	}
	*l = '\0';
	longs[n] = (struct option){ 0 };
}

static int bad_option(int c, char **argv, const struct option *longs, struct fail *f)
{
	const char *word = argv[optind - 1];

	if (c == ':')
		return fail_set(f, FAIL_USAGE, "%s: needs an argument",
				optopt >= LONG_BASE ? word : (char[]){ '-', (char)optopt, 0 });
	if (optopt >= LONG_BASE)
		return fail_set(f, FAIL_USAGE, "--%s: takes no argument",
				longs[optopt - LONG_BASE].name);
	if (optopt)
		return fail_set(f, FAIL_USAGE, "unknown option '-%c'", optopt);
	return fail_set(f, FAIL_USAGE, "unknown option '%s'", word);
}

/* The word of the option that getopt_long() has just returned. */
static const char *option_word(char **argv)
{
	return argv[optind - (optarg && optarg == argv[optind - 1] ? 2 : 1)];
}

/* What is short for one option today can be short for another one in the next version. */
static bool is_abbreviated(char **argv, const char *name)
{
	return strcspn(option_word(argv) + 2, "=") != strlen(name);
}

/* Table index of what getopt_long() returned. */
static size_t index_of(const struct opt *table, int c)
{
	size_t i = 0;

	if (c >= LONG_BASE)
		return (size_t)(c - LONG_BASE);
	while (table[i].letter != c)
		i++;
	return i;
}

int opt_parse(const struct opt *table, int argc, char **argv, void *base, struct opt_seen *ret_seen,
	      int *ret_operand, struct fail *f)
{
	size_t n = table_len(table);
	char letters[2 * OPT_MAX + 2];
	struct option longs[OPT_MAX + 1];
	struct opt_seen seen = { 0 };
	int c, r;

	if (n > OPT_MAX)
		return fail_set(f, EINVAL, "more than %d options in one table", OPT_MAX);
	build_getopt(table, n, letters, longs);
	opterr = 0;
	optind = 0; /* starts over, also glibc's own state */
	while ((c = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		size_t i;

		if (c == '?' || c == ':')
			return bad_option(c, argv, longs, f);
		i = index_of(table, c);
		if (c >= LONG_BASE && is_abbreviated(argv, table[i].name))
			return fail_set(f, FAIL_USAGE,
					"unknown option '%s' (--%s is not to be abbreviated)",
					option_word(argv), table[i].name);
		r = set_value(&table[i], optarg, base, f);
		if (r < 0)
			return r;
		seen.bits |= 1ULL << i;
	}
	*ret_seen = seen;
	*ret_operand = optind;
	return 0;
}

bool opt_was_seen(const struct opt *table, const struct opt_seen *seen, const char *name)
{
	for (size_t i = 0; table[i].name; i++)
		if (!strcmp(table[i].name, name))
			return seen->bits >> i & 1;
	return false;
}

void opt_print_help(const struct opt *table)
{
	for (const struct opt *o = table; o->name; o++) {
		char left[64], letter[5] = "    ";

		if (o->letter)
			snprintf(letter, sizeof(letter), "-%c, ", o->letter);
		snprintf(left, sizeof(left), "%s--%s%s%s", letter, o->name, o->arg ? " " : "",
			 o->arg ? o->arg : "");
		printf("  %-32s %s\n", left, o->help);
	}
}

const char *opt_type_name(enum opt_type type)
{
	static const char *const names[] = {
		[OPT_FLAG] = "flag", [OPT_UINT] = "number", [OPT_ID] = "id",
		[OPT_SIZE] = "size", [OPT_TEXT] = "text",   [OPT_WORD] = "word",
	};

	return names[type];
}

const char *opt_hint_name(enum opt_hint hint)
{
	static const char *const names[] = {
		[HINT_NONE] = "",     [HINT_DEVICE] = "device",	  [HINT_COLUMN] = "column",
		[HINT_FILE] = "file", [HINT_COMMAND] = "command",
	};

	return names[hint];
}
