/* SPDX-License-Identifier: MIT */
/*
 * A new device: its configuration is completed and checked, its server started, its disk awaited.
 */
#ifndef ADD_H
#define ADD_H

#include <sys/types.h>

#include "cfg.h"
#include "daemon.h"
#include "msg.h"

#define ADD_MODE_BEST "best" /* a mode_word: which mode it is, the driver decides */

/*
 * Fills in defaults and checks everything that can be checked before a device is made: the words,
 * the target's backing, what the driver has. Changes nothing. 0 or -errno with a text.
 */
int add_prepare(struct dev_cfg *d, struct fail *f);

/*
 * Starts the server in the background and waits until the disk's node is there. Warnings of the
 * server are printed. 0 with its id and process in *ret, or -errno with a text: nothing is left then.
 */
int add_start(struct dev_cfg *d, struct daemon_msg *ret, struct fail *f);

/* Nobody was told of the device: its server takes it away again, and what was made for it. */
void add_give_up(const struct dev_cfg *d, int id, pid_t server);

#endif
