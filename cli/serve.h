/* SPDX-License-Identifier: MIT */
/*
 * Life of one device server, from ADD_DEV to the end of the device.
 */
#ifndef SERVE_H
#define SERVE_H

#include "cfg.h"
#include "dev/record.h"

enum serve_how {
	SERVE_ADD,     /* a new device */
	SERVE_START,   /* a stopped one gets its disk back */
	SERVE_RECOVER, /* one that lost its server goes on */
};

/* To a server whose caller cannot tell anybody of the device: as SIGTERM, and what was made for it goes too. */
#define SERVE_SIG_UNDO SIGUSR1

/*
 * To a server: it gives the results of what it has and ends, the device waits. On the per-I/O path only
 * after QUIESCE_DEV.
 */
#define SERVE_SIG_LEAVE SIGUSR2

/* Error of serve_again(SERVE_START): the driver takes no second server for a device without a disk. */
#define SERVE_NO_SECOND 1003

/* On top of its deadline: a server that failed in time still takes back what it did. */
#define SERVE_UNDO_MS 20000

/* Pause of the waits for nodes in /dev, and for the driver. */
#define SERVE_POLL_MS 5

/*
 * Serves a device with cfg until it is deleted or a signal asks for its end. Reports READY or
 * FAILED (daemon.h) on report_fd, or as messages when it is -1 (--foreground). Returns 0, or
 * -errno: then no device, record or thread is left.
 */
int serve(const struct dev_cfg *cfg, int report_fd);

/*
 * The same for a device that is there: known is its record, with a configuration that is complete
 * (revive.h). After an error the device is as before.
 */
int serve_again(const struct record *known, enum serve_how how, int report_fd);

/*
 * Whether such a server could start, as far as can be told while the last one of its device goes on: node,
 * record, limits. Changes limits of the calling process. 0 or -errno with a text.
 */
int serve_check(const struct record *known, struct fail *f);

/* A device's flags for ADD_DEV: what cfg asks the driver for. */
uint64_t serve_wanted_flags(const struct dev_cfg *cfg);

#endif
