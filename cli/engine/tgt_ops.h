/* SPDX-License-Identifier: MIT */
/*
 * What the engine, and everybody else, knows of a target: its vtable.
 */
#ifndef ENGINE_TGT_OPS_H
#define ENGINE_TGT_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/ublk_abi.h"
#include "cfg.h"
#include "msg.h"

struct q;
struct opt;

#define TGT_FDS_MAX 2

/* An open target. */
struct tgt_dev {
	void *priv;
	int fds[TGT_FDS_MAX]; /* registered files of the rings from Q_FILE_TARGET on */
	unsigned int nr_fds;
	bool plain_bufs; /* of this one no server buffers in the rings' buffer tables, fixed_bufs or not */
};

struct tgt_ops {
	const char *name;
	const char *alias; /* second name, or NULL */
	const char *summary;
	/* own options of `add`; offsets are into struct dev_cfg; ends with OPT_END */
	const struct opt *options;
	bool fixed_bufs; /* its I/O wants server buffers in the rings' buffer tables */
	size_t tag_size; /* bytes of private state per tag, zero at start */
	/* In the foreground, before any fork, without side effects; completes cfg (size). */
	int (*check)(struct dev_cfg *cfg, struct fail *f);
	/* Is the backing of a record still that one, and as large? 0 or -errno with a text. */
	int (*same)(const struct dev_cfg *cfg, struct fail *f);
	/*
	 * Makes the backing of a record's device large enough for size (bytes), or says why it is not;
	 * in the foreground, while the server goes on. What is behind the end of the device stays.
	 */
	int (*resize)(const struct dev_cfg *cfg, uint64_t size, struct fail *f);
	/*
	 * In the server, before SET_PARAMS; completes cfg with what was found (I/O mode, identity).
	 * close() frees it; undo: the device never came to be, remove what open() made.
	 */
	int (*open)(struct dev_cfg *cfg, struct tgt_dev *ret, struct fail *f);
	void (*close)(struct tgt_dev *dev, bool undo);
	/* Fills what the target knows better than the defaults of serve.c. */
	void (*params)(const struct tgt_dev *dev, const struct dev_cfg *cfg, struct ublk_params *p);
	/* A request was delivered; q_complete() now or later, from the same thread. */
	void (*queue_io)(struct q *q, uint16_t tag, const struct ublksrv_io_desc *desc);
	/* A ring entry of the target completed. */
	void (*io_done)(struct q *q, uint16_t tag, uint32_t aux, int32_t res);
};

#endif
