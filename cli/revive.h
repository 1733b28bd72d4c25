/* SPDX-License-Identifier: MIT */
/*
 * A device that is there gets a server again, from what its record says: recover, restart, start.
 */
#ifndef REVIVE_H
#define REVIVE_H

#include <stdbool.h>

#include "dev/dev.h"
#include "serve.h"

/*
 * The record of a device that dev_probe() looked at, with a configuration that is complete. Refuses,
 * with the reason: no record, one that others could have written, another device's, a target or mode
 * that this build or the device does not have, a backing that is not the same any more.
 * timeout_s is the new server's deadline. Texts of the configuration point into *ret.
 */
int revive_load(const struct dev_view *v, unsigned int timeout_s, struct record *ret, struct fail *f);

/*
 * Starts the server in the background and waits until it answers, or serves in the foreground (then
 * until the device ends). On failure the device is as before.
 */
int revive_serve(const struct record *rec, enum serve_how how, bool foreground, struct fail *f);

/*
 * Waits until the driver says that the server is gone and the device can get another: at most until
 * deadline (fs_now_ms()). Fills v anew. -ETIME; -ENODEV: the device went instead.
 */
int revive_wait(struct ctrl *c, struct dev_view *v, int64_t deadline, struct fail *f);

#endif
