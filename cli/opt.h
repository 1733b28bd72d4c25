/* SPDX-License-Identifier: MIT */
/*
 * Options as data: one descriptor each for parser, range check, help, completion and dump.
 */
#ifndef OPT_H
#define OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "msg.h"

enum opt_type {
	OPT_FLAG, /* bool */
	OPT_UINT, /* unsigned int in [min, max] */
	OPT_ID,	  /* int, a device id */
	OPT_SIZE, /* uint64_t bytes in [min, max], with suffix */
	OPT_TEXT, /* const char *, not empty */
	OPT_WORD, /* const char *, one of words() */
};

/* What the completion offers for an argument. */
enum opt_hint { HINT_NONE, HINT_DEVICE, HINT_COLUMN, HINT_FILE, HINT_COMMAND };

struct opt {
	const char *name; /* long name without dashes */
	char letter;	  /* 0: none */
	enum opt_type type;
	const char *arg; /* name of the argument in the help, NULL for a flag */
	const char *help;
	size_t offset; /* of the value in the caller's structure */
	uint64_t min, max;
	bool pow2; /* only powers of two */
	/* n-th allowed word, NULL at the end */
	const char *(*word)(unsigned int n);
	enum opt_hint hint;
};

#define OPT_END                                                                                    \
	{                                                                                          \
		.name = NULL                                                                       \
	}
#define OPT_MAX 40

/* Which options were on the command line: bit n for the n-th of a table. */
struct opt_seen {
	uint64_t bits;
};

/*
 * Parses argv[1…] against the table, options and operands in any order, "--" ends options.
 * Values go to base + offset. ret_operand indexes the first operand after argv was permuted.
 * -FAIL_USAGE with a text on any error; then base may be half filled.
 */
int opt_parse(const struct opt *table, int argc, char **argv, void *base, struct opt_seen *ret_seen,
	      int *ret_operand, struct fail *f);
bool opt_was_seen(const struct opt *table, const struct opt_seen *seen, const char *name);

/* One help line per option on stdout. */
void opt_print_help(const struct opt *table);
const char *opt_type_name(enum opt_type type);
const char *opt_hint_name(enum opt_hint hint);

#endif
