/* SPDX-License-Identifier: MIT */
/*
 * A new device with a server in the background.
 */
#ifndef LAUNCH_H
#define LAUNCH_H

#include <stdint.h>
#include <sys/types.h>

#include "cfg.h"
#include "msg.h"

struct launched {
	int id;
	pid_t pid; /* of the server */
	uint64_t cookie;
};

/*
 * Starts the server and waits until its disk can be used. cfg was checked (target, driver). Warnings of
 * the server are printed. 0, or -errno with a text: then nothing of the device is left, or the text
 * says what.
 */
int launch(struct dev_cfg *cfg, struct launched *ret, struct fail *f);
/* For a device that nobody was told of: it is deleted, with what its target made. */
void launch_undo(const struct dev_cfg *cfg, const struct launched *l);

#endif
