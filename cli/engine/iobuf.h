/* SPDX-License-Identifier: MIT */
/*
 * Data modes: how the data of a request moves between driver and server. One const table; after
 * start the engine and the targets only call through it.
 */
#ifndef ENGINE_IOBUF_H
#define ENGINE_IOBUF_H

#include <stdbool.h>
#include <stdint.h>

#include "cfg.h"

#define IOBUF_SLOTS_MAX 16384U /* of a ring's buffer table, the kernel's limit */

struct q;
struct ublksrv_io_desc;

struct iobuf_mode {
	const char *name;
	uint64_t flags;	  /* UBLK_F_… that select it */
	bool server_buf;  /* each tag has a buffer of max_io bytes in the server */
	bool commit_addr; /* commits carry its address: the driver copies */
	bool fetch_addr;  /* so do fetches, for the data of the next write */
	bool request_buf; /* request pages are in the ring's buffer table */
	bool auto_reg;	  /* put there by the driver */
	bool fallback;	  /* or by the server where the driver could not */
	bool get_data;	  /* writes are delivered twice, first without their data */
	bool per_io_only; /* the driver's batch path has no such command */
	bool passive;	  /* begin() and end() have nothing to do and need not be called */
	/*
	 * Before a target uses the data of a request: afterwards the data of a write is in the
	 * server's buffer, or the request's pages are in the buffer table. 0 or -errno.
	 */
	int (*begin)(struct q *q, uint16_t tag, const struct ublksrv_io_desc *d);
	/* After a target is done with it: the data of a read is in the request. res or -errno. */
	int32_t (*end)(struct q *q, uint16_t tag, const struct ublksrv_io_desc *d, int32_t res);
};

const struct iobuf_mode *iobuf_mode(enum data_mode mode);
/* for option words: name of the n-th mode, NULL behind the last */
const char *iobuf_mode_name(unsigned int n);

#endif
