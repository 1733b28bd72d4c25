/* SPDX-License-Identifier: MIT */
/*
 * A server's own mount namespace. The last process of a namespace unmounts what is mounted
 * there while it dies: a server must never be that for its own device, and must not keep file
 * systems of the host busy either.
 */
#ifndef ISOLATE_H
#define ISOLATE_H

/* Own namespace that still follows the host's mounts and unmounts. 0 or -errno (-EPERM). */
int isolate_namespace(void);
/* Into an empty root; the old one is detached. Only open descriptors work from here on. */
int isolate_root(void);

#endif
