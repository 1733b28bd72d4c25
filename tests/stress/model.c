/* SPDX-License-Identifier: MIT */
#include "model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0x73736572747362ULL /* "bstress" */
#define SPREAD 0x9e3779b97f4a7c15ULL
#define SHOWN 16 /* bytes of a difference */

/* Head of each block of a pattern; the rest of it depends on all three. */
struct head {
	uint64_t magic, block, version;
};

bool model_init(struct model *m, uint64_t size, uint32_t block, uint64_t seed)
{
	*m = (struct model){ .size = size, .block = block, .seed = seed };
	m->image = calloc(1, size);
	m->known = malloc(size / block);
	if (!m->image || !m->known)
		return false;
	memset(m->known, 1, size / block);
	return true;
}

void model_free(struct model *m)
{
	free(m->image);
	free(m->known);
}

void model_pattern(const struct model *m, uint64_t off, uint32_t version, uint8_t *buf, size_t len)
{
	for (size_t at = 0; at < len; at += m->block) {
		struct head h = { MAGIC, (off + at) / m->block, version };
		uint64_t word = (m->seed ^ h.block * SPREAD) + version * (SPREAD << 1 | 1);

		memcpy(buf + at, &h, sizeof(h));
		for (size_t i = sizeof(h); i < m->block; i += sizeof(word)) {
			word += SPREAD;
			memcpy(buf + at + i, &word, sizeof(word));
		}
	}
}

static void set_known(struct model *m, uint64_t off, size_t len, uint8_t known)
{
	memset(m->known + off / m->block, known, len / m->block);
}

void model_put(struct model *m, uint64_t off, const uint8_t *data, size_t len)
{
	memcpy(m->image + off, data, len);
	set_known(m, off, len, 1);
}

void model_zero(struct model *m, uint64_t off, size_t len)
{
	memset(m->image + off, 0, len);
	set_known(m, off, len, 1);
}

void model_forget(struct model *m, uint64_t off, size_t len)
{
	set_known(m, off, len, 0);
}

static void show(const char *label, const uint8_t *p, size_t n)
{
	fprintf(stderr, "%s", label);
	for (size_t i = 0; i < n && i < SHOWN; i++)
		fprintf(stderr, " %02x", p[i]);
	fputc('\n', stderr);
}

/* Whose data it is, when it begins like a pattern. */
static void show_origin(const char *label, const uint8_t *block)
{
	struct head h;

	memcpy(&h, block, sizeof(h));
	if (h.magic == MAGIC)
		fprintf(stderr, "%s version %" PRIu64 " of block %" PRIu64 "\n", label, h.version,
			h.block);
}

static void show_difference(const struct model *m, uint64_t off, const uint8_t *data, const char *what)
{
	const uint8_t *want = m->image + off;
	size_t i = 0, n = 0;

	while (want[i] == data[i])
		i++;
	for (size_t k = i; k < m->block; k++)
		n += want[k] != data[k];
	fprintf(stderr,
		"difference: %s, offset %" PRIu64 " (block %" PRIu64 "), %zu bytes of the block\n",
		what, off + i, off / m->block, n);
	show("  expected:", want + i, m->block - i);
	show("  got:     ", data + i, m->block - i);
	show_origin("  expected is", want);
	show_origin("  got is", data);
}

bool model_check(const struct model *m, uint64_t off, const uint8_t *data, size_t len, const char *what)
{
	for (size_t at = 0; at < len; at += m->block) {
		if (!m->known[(off + at) / m->block] ||
		    memcmp(m->image + off + at, data + at, m->block) == 0)
			continue;
		show_difference(m, off + at, data + at, what);
		return false;
	}
	return true;
}
