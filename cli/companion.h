/* SPDX-License-Identifier: MIT */
/*
 * Companion of a server: a small process that can delete the server's device while the server
 * goes on answering its I/O. A process that holds its own /dev/ublkcN must not wait for STOP_DEV.
 */
#ifndef COMPANION_H
#define COMPANION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct companion {
	pid_t pid; /* 0: none */
	int fd;	   /* -1: none */
	bool busy; /* it was told to delete the device */
};

/* To be called before the server has threads or descriptors of the device. 0 or -errno. */
int companion_start(struct companion *c, bool unprivileged);
/*
 * Tells it to stop and delete the device, if it still has that cookie; once is enough. 0, or -ESRCH when
 * it is gone.
 */
int companion_delete(struct companion *c, uint32_t id, uint64_t cookie);
/* It outlives the server only while it deletes the device, which waits for the server. */
void companion_dismiss(struct companion *c);

#endif
