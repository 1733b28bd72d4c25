/* SPDX-License-Identifier: MIT */
/*
 * What a device is asked to be: plain data, filled by the command line or a record, read by
 * server, engine and targets.
 */
#ifndef CFG_H
#define CFG_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define CFG_ID_ANY (-1)

enum data_mode {
	DATA_COPY, /* the driver copies between request and server buffer */
};

struct dev_cfg {
	int id; /* CFG_ID_ANY: the driver chooses */
	const char *target; /* name of a target, static */
	bool batch;
	unsigned int queues;  /* 0: default */
	unsigned int depth;
	unsigned int threads; /* 0: default */
	uint64_t size;	      /* bytes */
	uint64_t block_size;  /* logical, bytes */
	uint64_t phys_block_size; /* bytes, 0: as block_size */
	uint64_t max_io;	  /* bytes of one request */
	bool read_only;
	bool no_partscan;
	enum data_mode mode;
	/* how it is served, not what it is */
	bool foreground;
	unsigned int timeout_s; /* deadline of each control command and wait */
};

#endif
