/* SPDX-License-Identifier: MIT */
/*
 * A diagram of the results, drawn by gnuplot.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "util/cleanup.h"

static const char *terminal_of(const char *path)
{
	const char *end = strrchr(path, '.');

	if (end && !strcmp(end, ".svg"))
		return "svg size 900,500 background 'white'";
	return end && !strcmp(end, ".png") ? "png size 900,500" : NULL;
}

static bool has_program(const char *name)
{
	_cleanup_free_ char *copy = strdup(getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
	char *rest = NULL, *dir;

	for (dir = copy ? strtok_r(copy, ":", &rest) : NULL; dir; dir = strtok_r(NULL, ":", &rest)) {
		_cleanup_free_ char *path = NULL;

		if (asprintf(&path, "%s/%s", dir, name) >= 0 && access(path, X_OK) == 0)
			return true;
	}
	return false;
}

/* The file, or one in its folder. False with errno. */
static bool can_write(const char *path)
{
	const char *end = strrchr(path, '/');
	_cleanup_free_ char *dir = end ? strndup(path, (size_t)(end - path) + 1) : strdup(".");

	if (access(path, F_OK) == 0)
		return access(path, W_OK) == 0;
	return dir && access(dir, W_OK | X_OK) == 0;
}

int bench_check_plot(const char *path, struct fail *f)
{
	if (!terminal_of(path))
		return fail_set(f, FAIL_USAGE, "--plot: '%s' ends neither in .svg nor in .png", path);
	if (strpbrk(path, "\n\r"))
		return fail_set(f, FAIL_USAGE, "--plot: a line break in a name cannot be drawn to");
	if (!has_program("gnuplot"))
		return fail_set(f, FAIL_UNSUPPORTED,
				"--plot needs gnuplot, which is not installed (Debian: gnuplot-nox)");
	return can_write(path) ? 0 : fail_errno(f, errno, "--plot: cannot write %s", path);
}

/* In single quotes gnuplot knows one special character. */
static void put_quoted(FILE *out, const char *text)
{
	putc('\'', out);
	for (; *text; text++)
		fprintf(out, *text == '\'' ? "''" : "%c", *text);
	putc('\'', out);
}

static const struct bench_row *
find_row(const struct bench_row *rows, size_t n, const char *mode, int batch)
{
	for (size_t i = 0; i < n; i++)
		if (rows[i].batch == batch && !strcmp(rows[i].data_mode, mode))
			return &rows[i];
	return NULL;
}

static void put_value(FILE *out, const struct bench_row *r)
{
	if (r)
		fprintf(out, " %.0f", bench_iops(r));
	else
		fputs(" NaN", out);
}

/* A line for each mode, with both paths in it. */
static void put_data(FILE *out, const struct bench_row *rows, size_t n)
{
	fputs("$data << END\n", out);
	for (size_t i = 0; i < n; i++) {
		const struct bench_row *r = &rows[i];

		if (r->batch < 0 || find_row(rows, i, r->data_mode, !r->batch))
			continue;
		fprintf(out, "\"%s\"", r->data_mode);
		put_value(out, find_row(rows, n, r->data_mode, 0));
		put_value(out, find_row(rows, n, r->data_mode, 1));
		putc('\n', out);
	}
	fputs("END\n", out);
}

/*
 * The bars of the paths that were measured: gnuplot refuses a column without a number.
 */
static void put_bars(FILE *out, const struct bench_row *rows, size_t n)
{
	static const char *const bars[] = { "2:xtic(1) title 'per-I/O'", "3:xtic(1) title 'batch'" };
	const char *before = "plot";

	for (int batch = 0; batch < 2; batch++) {
		size_t i = 0;

		while (i < n && rows[i].batch != batch)
			i++;
		if (i == n)
			continue;
		fprintf(out, "%s $data using %s", before, bars[batch]);
		before = ",";
	}
}

int bench_plot(const char *path, const struct bench_row *rows, size_t n, struct fail *f)
{
	FILE *out;

	/* if it ends early, its status tells */
	signal(SIGPIPE, SIG_IGN);
	out = popen("exec gnuplot", "we");
	if (!out)
		return fail_errno(f, errno, "cannot run gnuplot");
	fprintf(out, "set terminal %s\nset output ", terminal_of(path));
	put_quoted(out, path);
	fputs("\nset style data histograms\nset style fill solid 0.8\nset yrange [0:*]\n"
	      "set ylabel 'requests per second'\nset grid y\nset key outside top center horizontal\n",
	      out);
	put_data(out, rows, n);
	put_bars(out, rows, n);
	if (n && rows[0].batch < 0) {
		fprintf(out, ", %.0f with lines title ", bench_iops(&rows[0]));
		put_quoted(out, rows[0].target);
	}
	fputs("\n", out);
	return pclose(out) ? fail_set(f, EIO, "gnuplot could not draw %s", path) : 0;
}
