/* SPDX-License-Identifier: MIT */
/*
 * What serve.c (life of a server) and serve_steps.c (the way up) share.
 */
#ifndef SERVE_INT_H
#define SERVE_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "cfg.h"
#include "companion.h"
#include "ctrl/ctrl.h"
#include "dev/record.h"
#include "engine/engine.h"
#include "serve.h"
#include "target/target.h"

/* For what the last server of a device still has while it ends: its backing, its memory. */
#define SERVE_LET_GO_MS 5000

/* How far the ladder was climbed: undo() takes the same steps down. */
enum step { STEP_NONE, STEP_TARGET, STEP_ADDED, STEP_RECORDED, STEP_OPENED, STEP_STARTED };

struct server {
	struct dev_cfg cfg; /* with what the driver granted */
	enum serve_how how;
	const struct tgt_ops *tgt;
	struct tgt_dev dev;
	struct ctrl ctrl;
	int64_t deadline;
	int report_fd;
	enum step step;
	struct ublksrv_ctrl_dev_info info;
	struct record rec;
	int rec_dir, cdev, sig_fd;
	struct companion companion;
	struct eng *eng;
	bool was_stopped; /* in the record that it took over */
	bool own_ns;	  /* its mounts are nobody else's */
	bool undo;	  /* nobody was told of the device: what its target made goes with it */
	char warning[FAIL_TEXT];
};

/* All steps up, from the open target to the device that answers. 0 or -errno with a text. */
int serve_climb(struct server *s, struct fail *f);

#endif
