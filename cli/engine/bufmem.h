/* SPDX-License-Identifier: MIT */
/*
 * Memory that the driver writes to: usual or huge pages, reserved only or there from the start, and at
 * addresses that no other process uses.
 */
#ifndef ENGINE_BUFMEM_H
#define ENGINE_BUFMEM_H

#include <stdbool.h>
#include <stddef.h>

#include "cfg.h"

struct bufmem {
	void *p;
	size_t len;	      /* bytes that are mapped: what was asked for or more */
	enum huge_pages huge; /* what was got */
};

/*
 * len bytes of zeros. Usual pages are only reserved, none is touched until it is used; with lock they
 * are all there and locked. huge: from the pool of reserved huge pages, which are there at once and
 * are never swapped; else transparent ones, which come when they are used; else usual ones. 0 or
 * -errno. bufmem_free() gives them back and takes an empty struct too.
 */
int bufmem_alloc(size_t len, bool lock, bool huge, struct bufmem *ret);
/* The same for bookkeeping: usual pages, all there from the start. */
int bufmem_map(size_t len, struct bufmem *ret);
void bufmem_free(struct bufmem *m);

#endif
