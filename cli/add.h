/* SPDX-License-Identifier: MIT */
/*
 * A new device, before it is launched: its configuration is completed and checked.
 */
#ifndef ADD_H
#define ADD_H

#include "cfg.h"
#include "msg.h"

#define ADD_MODE_BEST "best" /* a mode_word: which mode it is, the driver decides */

/*
 * Fills in defaults and checks everything that can be checked before a device is made: the words,
 * the target's backing, what the driver has. Changes nothing. 0 or -errno with a text.
 */
int add_prepare(struct dev_cfg *d, struct fail *f);

#endif
