/* SPDX-License-Identifier: MIT */
/*
 * What the two halves of the file target share: opening (file_open.c) and I/O (tgt_file.c).
 */
#ifndef TARGET_TGT_FILE_H
#define TARGET_TGT_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "cfg.h"
#include "msg.h"
#include "opt.h"
#include "target/target.h"

/* A backing and what was found out about it. */
struct backing {
	int fd;
	bool is_bdev;
	int dir;	     /* by --create: folder of the new file, to remove it again; else -1 */
	uint64_t size;	     /* bytes of the whole backing */
	uint64_t block_size; /* smallest unit of I/O on it in the chosen mode */
	uint64_t phys_block_size;
	uint32_t dio_mem_align; /* bytes, of memory for direct I/O */
	bool must_wait;		/* its reads and writes must not be tried without waiting first */
	bool can_discard, can_zero;
	uint64_t discard_granularity, discard_max, zero_max; /* bytes */
	uint32_t max_segments, max_segment_size;	     /* 0: not known */
	/* what the I/O half needs beside */
	uint64_t offset; /* bytes */
	const char *path;
	int64_t last_log_ms;
};

extern const struct opt file_options[];

/* file_probe.c: size, block sizes, limits of the open backing. 0 or -errno with a text. */
int file_probe(struct backing *b, const char *path, struct fail *f);
/* Switches to direct I/O and tells the alignment of its offsets; false: there is none. */
bool file_probe_direct(struct backing *b, uint64_t *ret_offset_align);
/* Sets must_wait; of no use for buffered I/O. */
void file_probe_must_wait(struct backing *b);
/* What a regular file can: discard and write-zeroes. Changes nothing that is in it. */
void file_probe_fallocate(struct backing *b);

int file_check(struct dev_cfg *cfg, struct fail *f);
int file_same(const struct dev_cfg *cfg, struct fail *f);
int file_resize(const struct dev_cfg *cfg, uint64_t size, struct fail *f);
/* Opens cfg->file into b, claims a block device (O_EXCL); the caller closes what is open. */
int file_open_backing(struct dev_cfg *cfg, struct backing *b, struct fail *f);
/* Writers alone, readers together: a lock of the open file, dropped with the server. */
int file_lock_backing(const struct dev_cfg *cfg, const struct backing *b, struct fail *f);
/* Block size, I/O mode and range; cfg is complete afterwards. */
int file_plan(struct dev_cfg *cfg, struct backing *b, struct fail *f);
/* -ESTALE: st is not of the file whose identity is in cfg. */
int file_check_identity(const struct dev_cfg *cfg, const struct stat *st, struct fail *f);
int file_open(struct dev_cfg *cfg, struct tgt_dev *ret, struct fail *f);
void file_close(struct tgt_dev *dev, bool undo);
void file_params(const struct tgt_dev *dev, const struct dev_cfg *cfg, struct ublk_params *p);

#endif
