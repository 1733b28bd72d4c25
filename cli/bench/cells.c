/* SPDX-License-Identifier: MIT */
/*
 * Which devices bench makes.
 */
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "dev/dev.h"
#include "engine/iobuf.h"
#include "serve.h"

#define PATH_BATCH "batch"
#define PATH_PER_IO "per-io"

static int add_cell(struct bench_plan *p, unsigned int mode, bool batch, bool optional, struct fail *f)
{
	for (size_t i = 0; i < p->nr_cells; i++)
		if (p->cells[i].mode == (enum data_mode)mode && p->cells[i].batch == batch) {
			p->cells[i].optional &= optional;
			return 0;
		}
	if (p->nr_cells == BENCH_CELLS_MAX)
		return fail_set(f, FAIL_USAGE, "--modes: more than %d devices", BENCH_CELLS_MAX);
	p->cells[p->nr_cells++] = (struct bench_cell){ (enum data_mode)mode, batch, optional };
	return 0;
}

/* Both paths, or the one that the word behind the colon says. */
static int add_mode(struct bench_plan *p, unsigned int mode, const char *path, bool optional,
		    struct fail *f)
{
	const bool no_batch = iobuf_mode((enum data_mode)mode)->per_io_only;
	int r = 0;

	if (path && strcmp(path, PATH_BATCH) != 0 && strcmp(path, PATH_PER_IO) != 0)
		return fail_set(f, FAIL_USAGE, "--modes: '%s' is neither %s nor %s", path,
				PATH_PER_IO, PATH_BATCH);
	if (no_batch && path && !strcmp(path, PATH_BATCH))
		return fail_set(f, FAIL_USAGE, "--modes: %s: the batch path has no such command",
				iobuf_mode_name(mode));
	if (!path || !strcmp(path, PATH_PER_IO))
		r = add_cell(p, mode, false, optional, f);
	if (!r && !no_batch && (!path || !strcmp(path, PATH_BATCH)))
		r = add_cell(p, mode, true, !path, f);
	return r;
}

static int add_item(struct bench_plan *p, char *item, struct fail *f)
{
	char *path = strchr(item, ':');
	int mode;

	if (path)
		*path++ = '\0';
	mode = cfg_index(iobuf_mode_name, item);
	if (mode < 0)
		return fail_set(f, FAIL_USAGE, "--modes: '%s' is no data mode", item);
	return add_mode(p, (unsigned int)mode, path, false, f);
}

int bench_parse_modes(const char *list, struct bench_plan *p, struct fail *f)
{
	int r = 0;

	p->nr_cells = 0;
	for (unsigned int m = 0; !r && !list && iobuf_mode_name(m); m++)
		r = add_mode(p, m, NULL, true, f);
	while (!r && list) {
		size_t len = strcspn(list, ",");
		char item[64];

		if (len >= sizeof(item))
			return fail_set(f, FAIL_USAGE, "--modes: '%s' is no data mode", list);
		snprintf(item, sizeof(item), "%.*s", (int)len, list);
		r = add_item(p, item, f);
		list = list[len] ? list + len + 1 : NULL;
	}
	return r;
}

int bench_check_driver(struct bench_plan *p, struct fail *f)
{
	struct ctrl c;
	uint64_t mask;
	size_t n = 0;
	int r = dev_open_ctrl(&c, (int)p->dev.timeout_s * 1000, f);

	if (r < 0)
		return r;
	r = dev_get_features(&c, &mask, f);
	ctrl_close(&c);
	for (size_t i = 0; !r && i < p->nr_cells; i++) {
		struct dev_cfg d = p->dev;

		d.mode = p->cells[i].mode;
		d.batch = p->cells[i].batch;
		if (!(serve_wanted_flags(&d) & ~mask))
			p->cells[n++] = p->cells[i];
		else if (!p->cells[i].optional)
			r = dev_need_features(serve_wanted_flags(&d), mask, f);
	}
	p->nr_cells = n;
	return r;
}
