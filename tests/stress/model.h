/* SPDX-License-Identifier: MIT */
/*
 * What a block device must hold: its whole content in memory, block by block known or not.
 */
#ifndef STRESS_MODEL_H
#define STRESS_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model {
	uint64_t size;	/* bytes */
	uint32_t block; /* bytes of a logical block */
	uint64_t seed;
	uint8_t *image;
	uint8_t *known; /* by block: false after a discard that promises nothing */
};

/* All blocks zero and known; false without memory. */
bool model_init(struct model *m, uint64_t size, uint32_t block, uint64_t seed);
void model_free(struct model *m);

/* Data that no other block and no other version has; offset and length are whole blocks. */
void model_pattern(const struct model *m, uint64_t off, uint32_t version, uint8_t *buf, size_t len);

void model_put(struct model *m, uint64_t off, const uint8_t *data, size_t len);
void model_zero(struct model *m, uint64_t off, size_t len);
void model_forget(struct model *m, uint64_t off, size_t len);

/*
 * Compares what was read; false: the first difference is told on stderr. Blocks not known are not
 * compared.
 */
bool model_check(const struct model *m, uint64_t off, const uint8_t *data, size_t len,
		 const char *what);

#endif
