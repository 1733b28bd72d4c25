/* SPDX-License-Identifier: MIT */
/*
 * bench: temporary devices in every data mode, on both I/O paths of the driver, under the same load.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/client.h"
#include "cfg.h"
#include "msg.h"
#include "out/col.h"

/* One kind of device. */
struct bench_cell {
	enum data_mode mode;
	bool batch;
	bool optional; /* left out where the driver lacks it: it was not asked for by name */
};

#define BENCH_CELLS_MAX 32

/* What is to be measured. */
struct bench_plan {
	struct dev_cfg dev;   /* of every device, but for mode and path */
	struct load load;     /* fd and size are filled in for each device */
	const char *rw;	      /* read, mix or write */
	const char *baseline; /* a device beside them, or NULL */
	unsigned int repeat;
	struct bench_cell cells[BENCH_CELLS_MAX];
	size_t nr_cells;
};

/* What one device did, in all rounds. */
struct bench_row {
	const char *target;    /* or the path of the baseline */
	const char *data_mode; /* NULL: the baseline */
	int batch;	       /* -1: the baseline */
	uint64_t ios, ns;
	double iops_min, iops_max; /* of the rounds */
	bool has_cpu;
	uint64_t cpu_ns, cpu_ios; /* of the server, and how many requests it took that for */
	struct hist hist;
	unsigned int block_size;
	double batch_ratio, baseline_ratio; /* NaN: there is nothing to compare with */
};

/* ---- cells.c ---- */

/*
 * "MODE[:batch|:per-io],…" or NULL for everything there is → plan; -FAIL_USAGE with a text for what
 * does not exist. The batch path of a mode is optional unless it was named.
 */
int bench_parse_modes(const char *list, struct bench_plan *p, struct fail *f);
/* Looks at the driver: leaves out what it lacks, or refuses it by name when it was asked for. */
int bench_check_driver(struct bench_plan *p, struct fail *f);

/* ---- run.c ---- */

/*
 * Measures: rows gets one entry for the baseline, if there is one, and one for each cell. All devices
 * are deleted again. 0 or -errno with a text; *ret_signal: SIGINT, SIGTERM or SIGHUP came meanwhile,
 * the rows are incomplete.
 */
int bench_measure(struct bench_plan *p, struct bench_row *rows, int *ret_signal, struct fail *f);
size_t bench_nr_rows(const struct bench_plan *p);

/* ---- report.c ---- */

/* Mean over all rounds; 0 when nothing was counted. */
double bench_iops(const struct bench_row *r);
/* Between the slowest and the fastest round, in percent of the slowest. */
double bench_spread(const struct bench_row *r);
/* Fills in the ratios, and says which differences are smaller than the spread. */
void bench_compare(struct bench_row *rows, size_t n);
const struct col *bench_columns(size_t *ret_count);
int bench_report(const struct bench_plan *p, const struct bench_row *rows, bool json, struct fail *f);

/* ---- plot.c ---- */

/* Is path a name that can be plotted to (-FAIL_USAGE), and gnuplot there (-FAIL_UNSUPPORTED)? */
int bench_check_plot(const char *path, struct fail *f);
int bench_plot(const char *path, const struct bench_row *rows, size_t n, struct fail *f);

#endif
