/* SPDX-License-Identifier: MIT */
/*
 * help, --version and the machine-readable dump of the whole command line.
 */
#include <errno.h>
#include <json-c/json.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>

#include "cmd.h"
#include "target/target.h"
#include "version.h"

struct help_cfg {
	struct cmd_common common;
};

static const struct opt help_options[] = { OPT_END };
static const struct help_cfg help_defaults;

void cmd_print_overview(void)
{
	printf("Usage: ublkctl COMMAND [OPTION]... [OPERAND]...\n\n"
	       "Manage Linux ublk block devices.\n\nCommands:\n");
	for (unsigned int i = 0; cmd_at(i); i++)
		printf("  %-10s %s\n", cmd_at(i)->name, cmd_at(i)->summary);
	printf("\nTargets of add:\n");
	for (unsigned int i = 0; tgt_at(i); i++)
		printf("  %-10s %s\n", tgt_at(i)->name, tgt_at(i)->summary);
	for (unsigned int i = 0; tgt_at(i); i++)
		if (tgt_at(i)->alias)
			printf("  %-10s the same as %s\n", tgt_at(i)->alias, tgt_at(i)->name);
	printf("\n'ublkctl help COMMAND' tells the options of a command, 'ublkctl --version' the versions.\n");
}

void cmd_print_usage(const struct cmd *c)
{
	printf("Usage: ublkctl %s [OPTION]...%s%s\n\n%c%s.\n\nOptions:\n", c->name,
	       c->operands ? " " : "", c->operands ? c->operands : "", c->summary[0] & ~0x20,
	       c->summary + 1);
	opt_print_help(c->options);
	opt_print_help(cmd_common_options);
	if (c->flags & CMD_TARGET_OPTIONS)
		for (unsigned int i = 0; tgt_at(i); i++) {
			printf("\nOptions with -t %s:\n", tgt_at(i)->name);
			opt_print_help(tgt_at(i)->options);
		}
	if (c->columns) {
		size_t n;
		const struct col *cols = c->columns(&n);

		printf("\nColumns (JSON key, * shown by default):\n");
		col_list(cols, n);
	}
}

void cmd_print_version(void)
{
	struct ctrl c;
	const char *stage;
	uint64_t mask;

	printf("ublkctl %s\n", UBLKCTL_VERSION);
	/* before liburing 2.5 the library cannot say which one is running */
#if defined(IO_URING_VERSION_MAJOR)
	printf("liburing %d.%d (built with %d.%d)\n", io_uring_major_version(),
	       io_uring_minor_version(), IO_URING_VERSION_MAJOR, IO_URING_VERSION_MINOR);
#else
	printf("liburing built with %s\n", LIBURING_BUILD_VERSION);
#endif
	if (ctrl_open(&c, 1000, &stage) < 0)
		return;
	if (ctrl_get_features(&c, &mask) == 0)
		printf("driver mask %#llx\n", (unsigned long long)mask);
	ctrl_close(&c);
}

/* ---- dump ------------------------------------------------------------------------------- */

static void add_text(struct json_object *o, const char *key, const char *text)
{
	json_object_object_add(o, key, text ? json_object_new_string(text) : NULL);
}

static struct json_object *dump_option(const struct opt *opt)
{
	struct json_object *o = json_object_new_object();
	char letter[2] = { opt->letter, '\0' };

	add_text(o, "name", opt->name);
	add_text(o, "letter", opt->letter ? letter : NULL);
	add_text(o, "type", opt_type_name(opt->type));
	add_text(o, "argument", opt->arg);
	add_text(o, "hint", opt_hint_name(opt->hint));
	add_text(o, "help", opt->help);
	if (opt->type == OPT_WORD) {
		struct json_object *words = json_object_new_array();

		for (unsigned int i = 0; opt->word(i); i++)
			json_object_array_add(words, json_object_new_string(opt->word(i)));
		json_object_object_add(o, "words", words);
	}
	return o;
}

static struct json_object *dump_columns(const struct cmd *c)
{
	struct json_object *a = json_object_new_array();
	const struct col *cols;
	size_t n = 0;

	cols = c->columns ? c->columns(&n) : NULL;
	for (size_t i = 0; i < n; i++) {
		struct json_object *o = json_object_new_object();

		add_text(o, "name", cols[i].name);
		add_text(o, "key", cols[i].key);
		add_text(o, "help", cols[i].help);
		json_object_object_add(o, "default", json_object_new_boolean(cols[i].by_default));
		json_object_array_add(a, o);
	}
	return a;
}

static struct json_object *dump_command(const struct cmd *c)
{
	struct json_object *o = json_object_new_object(), *opts = json_object_new_array();
	struct opt table[OPT_MAX + 1];

	cmd_merge_options(c, table);
	for (const struct opt *opt = table; opt->name; opt++)
		json_object_array_add(opts, dump_option(opt));
	add_text(o, "name", c->name);
	add_text(o, "summary", c->summary);
	add_text(o, "operands", c->operands);
	add_text(o, "operand_hint", opt_hint_name(c->operand_hint));
	json_object_object_add(o, "options", opts);
	json_object_object_add(o, "columns", dump_columns(c));
	return o;
}

int cmd_dump_cli(struct fail *f)
{
	struct json_object *root = json_object_new_object(), *cmds = json_object_new_array();
	struct json_object *status = json_object_new_array();
	const char *text;
	int number;

	for (unsigned int i = 0; cmd_at(i); i++)
		json_object_array_add(cmds, dump_command(cmd_at(i)));
	for (unsigned int i = 0; (text = cmd_exit_status(i, &number)); i++) {
		struct json_object *o = json_object_new_object();

		json_object_object_add(o, "status", json_object_new_int(number));
		add_text(o, "meaning", text);
		json_object_array_add(status, o);
	}
	add_text(root, "version", UBLKCTL_VERSION);
	json_object_object_add(root, "commands", cmds);
	json_object_object_add(root, "exit_statuses", status);
	text = json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY);
	number = text ? printf("%s\n", text) : -1;
	json_object_put(root);
	return number < 0 ? fail_errno(f, errno, "cannot print") : 0;
}

static int help_run(const struct cmd_args *a, struct fail *f)
{
	const struct cmd *c;

	if (!a->nr_operands) {
		cmd_print_overview();
		return 0;
	}
	c = cmd_find(a->operands[0]);
	if (!c)
		return fail_set(f, FAIL_USAGE, "unknown command '%s'", a->operands[0]);
	cmd_print_usage(c);
	return 0;
}

const struct cmd cmd_help = {
	.name = "help",
	.summary = "explain commands and options",
	.operands = "[COMMAND]",
	.max_operands = 1,
	.operand_hint = HINT_COMMAND,
	.options = help_options,
	.cfg_size = sizeof(struct help_cfg),
	.cfg_defaults = &help_defaults,
	.run = help_run,
};
