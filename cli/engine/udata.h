/* SPDX-License-Identifier: MIT */
/*
 * user_data of the I/O rings: what a completion belongs to. Packed and read here only.
 *
 *   63      56 55          32 31          16 15           0
 *   |  kind   |     aux      |  queue slot  |     tag     |
 */
#ifndef ENGINE_UDATA_H
#define ENGINE_UDATA_H

#include <stdint.h>

enum ud_kind {
	UD_BACKEND, /* aux: the back end's own */
	UD_TARGET,  /* aux: the target's own */
	UD_STOP,    /* the poll on the stop descriptor */
	UD_LEAVE,   /* the poll on the leave descriptor */
	UD_IGNORE,  /* its failure shows elsewhere */
};

#define UD_AUX_MAX ((1U << 24) - 1)

_Static_assert(UD_IGNORE <= UINT8_MAX, "kind fits its 8 bits");

static inline uint64_t ud_pack(enum ud_kind kind, uint32_t aux, uint16_t slot, uint16_t tag)
{
	return (uint64_t)kind << 56 | (uint64_t)(aux & UD_AUX_MAX) << 32 | (uint64_t)slot << 16 | tag;
}

static inline enum ud_kind ud_kind(uint64_t ud)
{
	return (enum ud_kind)(ud >> 56);
}

static inline uint32_t ud_aux(uint64_t ud)
{
	return (uint32_t)(ud >> 32) & UD_AUX_MAX;
}

static inline uint16_t ud_slot(uint64_t ud)
{
	return (uint16_t)(ud >> 16);
}

static inline uint16_t ud_tag(uint64_t ud)
{
	return (uint16_t)ud;
}

#endif
