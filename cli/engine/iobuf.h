/* SPDX-License-Identifier: MIT */
/*
 * Data modes: how the data of a request moves between driver and server.
 */
#ifndef ENGINE_IOBUF_H
#define ENGINE_IOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cfg.h"

struct iobuf_mode {
	const char *name;
	uint64_t flags;	  /* UBLK_F_… that select it */
	bool server_buf;  /* each tag has a buffer of max_io bytes in the server */
	bool commit_addr; /* commits carry its address: the driver copies */
};

const struct iobuf_mode *iobuf_mode(enum data_mode mode);

/*
 * Buffers of one queue: depth × size bytes, reserved and zero, no page touched until it is
 * used. NULL without memory. iobuf_free() gives them back.
 */
void *iobuf_alloc(unsigned int depth, size_t size);
void iobuf_free(void *buf, unsigned int depth, size_t size);

#endif
