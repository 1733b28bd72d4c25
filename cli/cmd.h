/* SPDX-License-Identifier: MIT */
/*
 * Subcommands: one descriptor each, one dispatcher (main.c) that checks what they declare.
 */
#ifndef CMD_H
#define CMD_H

#include <stdbool.h>
#include <stddef.h>

#include "ctrl/ctrl.h"
#include "msg.h"
#include "opt.h"
#include "out/col.h"

/* Head of every command's configuration: the options that all commands have. */
struct cmd_common {
	bool help, verbose;
};

struct dev_view;

struct cmd_args {
	void *cfg; /* the command's configuration, options applied */
	char **operands;
	int nr_operands;
	const struct opt *options; /* table that was parsed, for opt_was_seen() */
	const struct opt_seen *seen;
};

#define CMD_OPERANDS_ANY 1000000

/* Capability flags */
#define CMD_TARGET_OPTIONS (1U << 0) /* the options of all targets belong to it */

struct cmd {
	const char *name, *summary;
	const char *operands; /* for the usage line, NULL when it takes none */
	int min_operands, max_operands;
	enum opt_hint operand_hint;
	const struct opt *options;
	unsigned int flags;
	size_t target_offset; /* of the struct dev_cfg that target options go to, in cfg */
	size_t cfg_size;
	const void *cfg_defaults; /* cfg_size bytes */
	/* columns of its output, NULL when it has none */
	const struct col *(*columns)(size_t *ret_count);
	/* 0 or -errno; a text in f is printed by the dispatcher, an empty one was printed already */
	int (*run)(const struct cmd_args *a, struct fail *f);
};

extern const struct cmd cmd_add, cmd_del, cmd_list, cmd_recover, cmd_quiesce, cmd_restart, cmd_stop,
	cmd_start, cmd_resize, cmd_show, cmd_set_affinity, cmd_stat, cmd_bench, cmd_feature,
	cmd_help;

/* n-th command, NULL behind the last. */
const struct cmd *cmd_at(unsigned int n);
const struct cmd *cmd_find(const char *name);
extern const struct opt cmd_common_options[];
/* Table of all options of a command: its own, those of targets, the common ones. */
void cmd_merge_options(const struct cmd *c, struct opt table[OPT_MAX + 1]);

/* cmd_help.c: texts on stdout */
void cmd_print_usage(const struct cmd *c);
void cmd_print_overview(void);
void cmd_print_version(void);
int cmd_dump_cli(struct fail *f);

/* cmd_common.c: what several commands do alike */

#define CMD_TIMEOUT_DEFAULT 30 /* s */
#define CMD_TIMEOUT_MAX 86400

/* Options that several commands have, with the offset of the value in the command's configuration. */
#define CMD_OPT_TIMEOUT(at, text)                                                                  \
	{                                                                                          \
		.name = "timeout", .type = OPT_UINT, .arg = "SEC", .offset = (at), .min = 1,       \
		.max = CMD_TIMEOUT_MAX, .help = (text)                                             \
	}
#define CMD_OPT_WAIT(at, text)                                                                     \
	{                                                                                          \
		.name = "wait", .type = OPT_UINT, .arg = "SEC", .offset = (at), .min = 0,          \
		.max = CMD_TIMEOUT_MAX, .help = (text)                                             \
	}
#define CMD_OPT_FOREGROUND(at, text)                                                               \
	{                                                                                          \
		.name = "foreground", .type = OPT_FLAG, .offset = (at), .help = (text)             \
	}
/* Those of a table with columns; out is the offset of a struct out_opts. */
#define CMD_OPTS_TABLE(out)                                                                        \
	{ .name = "columns",                                                                       \
	  .letter = 'o',                                                                           \
	  .type = OPT_TEXT,                                                                        \
	  .arg = "LIST",                                                                           \
	  .offset = (out) + offsetof(struct out_opts, columns),                                    \
	  .hint = HINT_COLUMN,                                                                     \
	  .help = "columns: A,B or +A,B to add to the default ones" },                             \
		{ .name = "json",                                                                  \
		  .type = OPT_FLAG,                                                                \
		  .offset = (out) + offsetof(struct out_opts, json),                               \
		  .help = "print JSON" },                                                          \
		{ .name = "raw",                                                                   \
		  .type = OPT_FLAG,                                                                \
		  .offset = (out) + offsetof(struct out_opts, raw),                                \
		  .help = "one blank between columns, blanks in values escaped" },                 \
		{ .name = "noheadings",                                                            \
		  .type = OPT_FLAG,                                                                \
		  .offset = (out) + offsetof(struct out_opts, noheadings),                         \
		  .help = "no header line" },                                                      \
	{                                                                                          \
		.name = "bytes", .type = OPT_FLAG,                                                 \
		.offset = (out) + offsetof(struct out_opts, bytes), .help = "sizes in bytes"       \
	}

/* The ids of all operands, each once, malloc()ed; one that is no id is wrong usage. */
int cmd_ids(const struct cmd_args *a, int **ret_ids, size_t *ret_count, struct fail *f);
/* The same, or those of all devices; one of the two must be asked for. */
int cmd_ids_or_all(const struct cmd_args *a, bool all, int **ret_ids, size_t *ret_count,
		   struct fail *f);
/*
 * fn in a process of its own, which goes on alone after timeout_s: for commands that wait in the driver
 * where no signal reaches them. 0, fn's -errno with its text, or -ETIME.
 */
int cmd_in_helper(int (*fn)(void *arg, struct fail *f), void *arg, unsigned int timeout_s,
		  struct fail *f);
/* fn for each id, all are tried, each failure is printed; the first one's error. */
int cmd_each(const int *ids, size_t n, int (*fn)(int id, const void *arg, struct fail *f),
	     const void *arg, struct fail *f);
/* Of the devices those that want() says yes to; others, and those that are gone, are taken out. */
int cmd_keep(int *ids, size_t *count, bool (*want)(const struct dev_view *v),
	     unsigned int timeout_s, struct fail *f);
/* The path of a device's disk on stdout. */
int cmd_print_path(int id, struct fail *f);
/* Prints one device as `list --json` does. */
int cmd_print_device(int id, struct fail *f);
/* exit statuses with their meaning, for --dump-cli; NULL behind the last */
const char *cmd_exit_status(unsigned int n, int *ret_status);

#endif
