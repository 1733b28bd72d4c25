/* SPDX-License-Identifier: MIT */
/*
 * A new device with a server in the background.
 */
#ifndef LAUNCH_H
#define LAUNCH_H

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

#include "cfg.h"
#include "msg.h"

struct launched {
	int id;
	pid_t pid; /* of the server */
	uint64_t cookie;
	sigset_t before; /* the signals that were blocked before */
};

/*
 * Starts the server and waits until its disk can be used. cfg was checked (target, driver). Warnings of
 * the server are printed. 0, or -errno with a text: then nothing of the device is left, or the text
 * says what. After 0 the signals that end a command are blocked, until the caller has told of the device
 * or undone it.
 */
int launch(struct dev_cfg *cfg, struct launched *ret, struct fail *f);
/* For a device that nobody was told of: it is deleted, with what its target made. */
void launch_undo(const struct dev_cfg *cfg, const struct launched *l);

#endif
