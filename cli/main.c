/* SPDX-License-Identifier: MIT */
/*
 * Command table, global options, the dispatcher, and the one mapping from errors to exit
 * statuses.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "target/target.h"
#include "util/cleanup.h"

static const struct cmd *const commands[] = {
	&cmd_add,	   &cmd_del,  &cmd_list,  &cmd_recover, &cmd_restart,
	&cmd_quiesce,	   &cmd_stop, &cmd_start, &cmd_resize,	&cmd_show,
	&cmd_set_affinity, &cmd_stat, &cmd_bench, &cmd_feature, &cmd_help,
};

/* clang-format off: one option, one entry */
const struct opt cmd_common_options[] = {
	{ .name = "verbose",
	  .type = OPT_FLAG,
	  .offset = offsetof(struct cmd_common, verbose),
	  .help = "say more on stderr" },
	{ .name = "help",
	  .letter = 'h',
	  .type = OPT_FLAG,
	  .offset = offsetof(struct cmd_common, help),
	  .help = "print this help" },
	OPT_END
};
/* clang-format on */

const struct cmd *cmd_at(unsigned int n)
{
	return n < ARRAY_SIZE(commands) ? commands[n] : NULL;
}

const struct cmd *cmd_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(commands[i]->name, name))
			return commands[i];
	return NULL;
}

/* Options whose offsets count from base on in the command's configuration. */
static size_t append(struct opt *table, size_t n, const struct opt *more, size_t base)
{
	for (; more->name && n < OPT_MAX; more++) {
		table[n] = *more;
		table[n++].offset += base;
	}
	table[n] = (struct opt)OPT_END;
	return n;
}

void cmd_merge_options(const struct cmd *c, struct opt table[OPT_MAX + 1])
{
	size_t n = append(table, 0, c->options, 0);

	if (c->flags & CMD_TARGET_OPTIONS)
		for (unsigned int i = 0; tgt_at(i); i++)
			n = append(table, n, tgt_at(i)->options, c->target_offset);
	append(table, n, cmd_common_options, 0);
}

/* ---- exit status ------------------------------------------------------------------------ */

static const struct {
	int status;
	const char *meaning;
	int errs[4]; /* the errors that lead to it; 0 ends */
} statuses[] = {
	{ 0, "done", { 0 } },
	{ 1, "failed", { 0 } },
	{ 2, "wrong usage", { FAIL_USAGE } },
	{ 3, "kernel, driver or build cannot do it", { FAIL_UNSUPPORTED, EOPNOTSUPP, ENOSYS } },
	{ 4, "no such device", { ENODEV } },
	{ 5, "busy, or exists already", { EBUSY, EEXIST } },
	{ 6, "no permission", { EACCES, EPERM } },
	{ 7, "timed out", { ETIME, ETIMEDOUT } },
	{ 128, "128+N: ended by signal N", { 0 } },
};

const char *cmd_exit_status(unsigned int n, int *ret_status)
{
	if (n >= ARRAY_SIZE(statuses))
		return NULL;
	*ret_status = statuses[n].status;
	return statuses[n].meaning;
}

static int status_of(int err)
{
	if (!err)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++)
		for (size_t k = 0; k < ARRAY_SIZE(statuses[i].errs) && statuses[i].errs[k]; k++)
			if (statuses[i].errs[k] == err)
				return statuses[i].status;
	return 1;
}

/* ---- dispatcher ------------------------------------------------------------------------- */

static int check_operands(const struct cmd *c, int n, char **operands, struct fail *f)
{
	if (n < c->min_operands)
		return fail_set(f, FAIL_USAGE, "operand missing: %s", c->operands);
	if (n > c->max_operands)
		return fail_set(f, FAIL_USAGE, "unexpected operand '%s'", operands[c->max_operands]);
	return 0;
}

static int run_command(const struct cmd *c, int argc, char **argv, struct fail *f)
{
	struct opt table[OPT_MAX + 1];
	_cleanup_free_ void *cfg = malloc(c->cfg_size);
	struct opt_seen seen;
	struct cmd_args a = { .cfg = cfg, .options = table, .seen = &seen };
	int first, r;

	if (!cfg)
		return fail_errno(f, ENOMEM, "cannot start");
	memcpy(cfg, c->cfg_defaults, c->cfg_size);
	cmd_merge_options(c, table);
	r = opt_parse(table, argc, argv, cfg, &seen, &first, f);
	if (r < 0)
		return r;
	if (((struct cmd_common *)cfg)->help) {
		cmd_print_usage(c);
		return 0;
	}
	msg_set_verbose(((struct cmd_common *)cfg)->verbose);
	a.operands = argv + first;
	a.nr_operands = argc - first;
	r = check_operands(c, a.nr_operands, a.operands, f);
	return r < 0 ? r : c->run(&a, f);
}

/* Words in front of a command. */
static int run_global(const char *word, const char *next, struct fail *f)
{
	if (next && *word == '-')
		return fail_set(f, FAIL_USAGE, "unexpected '%s' behind %s", next, word);
	if (!strcmp(word, "--help") || !strcmp(word, "-h"))
		cmd_print_overview();
	else if (!strcmp(word, "--version") || !strcmp(word, "-V"))
		cmd_print_version();
	else if (!strcmp(word, "--dump-cli"))
		return cmd_dump_cli(f);
	else
		return fail_set(f, FAIL_USAGE, "unknown %s '%s' (see 'ublkctl help')",
				*word == '-' ? "option" : "command", word);
	return 0;
}

/* A result that could not be written is a failure like any other. */
static int check_stdout(int r, struct fail *f)
{
	int bad = ferror(stdout);

	errno = 0;
	if ((fflush(stdout) || bad) && r >= 0)
		return fail_errno(f, errno ? errno : EIO, "cannot write to standard output");
	return r;
}

/*
 * A descriptor from 0 to 2 that the caller has closed would be the next file's, a backing's for example, and
 * get the messages. What stands there instead fails as a closed one does: it is opened the other way.
 */
static void fill_stdio(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDONLY);
	while (fd >= 0 && fd <= 2);
	if (fd > 2)
		close(fd);
}

int main(int argc, char **argv)
{
	struct fail f = { 0 };
	const struct cmd *c;
	int r;

	fill_stdio();
	/* a limit on file sizes is an error of the write, not the end */
	signal(SIGXFSZ, SIG_IGN);
	if (argc < 2) {
		msg_error("which command? (see 'ublkctl help')");
		return status_of(FAIL_USAGE);
	}
	c = cmd_find(argv[1]);
	if (c) {
		msg_set_command(c->name);
		r = run_command(c, argc - 1, argv + 1, &f);
	} else {
		r = run_global(argv[1], argc > 2 ? argv[2] : NULL, &f);
	}
	r = check_stdout(r, &f);
	if (r < 0 && *f.text)
		msg_error("%s", f.text);
	return status_of(-r);
}
