/* SPDX-License-Identifier: MIT */
/*
 * Targets: what answers the I/O of a device.
 */
#ifndef TARGET_TARGET_H
#define TARGET_TARGET_H

#include <stddef.h>
#include <stdint.h>

#include "abi/ublk_abi.h"
#include "cfg.h"
#include "msg.h"

struct q;
struct opt;

struct tgt_ops {
	const char *name;
	const char *summary;
	/* own options of `add`; offsets are into struct dev_cfg; ends with OPT_END */
	const struct opt *options;
	size_t tag_size; /* bytes of private state per tag, zero at start */
	/* In the foreground, before any fork, without side effects; completes cfg (size). */
	int (*check)(struct dev_cfg *cfg, struct fail *f);
	/* Fills what the target knows better than the defaults of serve.c. */
	void (*params)(const struct dev_cfg *cfg, struct ublk_params *p);
	/* A request was delivered; q_complete() now or later, from the same thread. */
	void (*queue_io)(struct q *q, uint16_t tag, const struct ublksrv_io_desc *desc);
	/* A ring entry of the target completed. */
	void (*io_done)(struct q *q, uint16_t tag, uint32_t aux, int32_t res);
};

/* NULL for an unknown name. */
const struct tgt_ops *tgt_find(const char *name);
/* n-th target, NULL behind the last. */
const struct tgt_ops *tgt_at(unsigned int n);
/* its name; for option words */
const char *tgt_name_at(unsigned int n);

extern const struct tgt_ops tgt_null;

#endif
