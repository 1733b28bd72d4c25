/* SPDX-License-Identifier: MIT */
/*
 * user_data of the I/O rings: every field keeps its value and stays out of the others.
 */
#include "unit.h"

#include "engine/udata.h"

static void check(enum ud_kind kind, uint32_t aux, uint16_t slot, uint16_t tag)
{
	uint64_t ud = ud_pack(kind, aux, slot, tag);

	unit_case("kind %d aux %#x slot %#x tag %#x", (int)kind, aux, slot, tag);
	unit_check(ud_kind(ud) == kind);
	unit_check(ud_aux(ud) == aux);
	unit_check(ud_slot(ud) == slot);
	unit_check(ud_tag(ud) == tag);
}

static void test_round_trip(void **state)
{
	static const enum ud_kind kinds[] = { UD_BACKEND, UD_TARGET, UD_STOP };
	static const uint32_t auxs[] = { 0, 1, 0x8000, 0x10000, UD_AUX_MAX - 1, UD_AUX_MAX };
	static const uint16_t shorts[] = { 0, 1, 4095, 0x7fff, 0x8000, 0xffff };

	(void)state;
	for (size_t k = 0; k < COUNT_OF(kinds); k++)
		for (size_t a = 0; a < COUNT_OF(auxs); a++)
			for (size_t s = 0; s < COUNT_OF(shorts); s++)
				for (size_t t = 0; t < COUNT_OF(shorts); t++)
					check(kinds[k], auxs[a], shorts[s], shorts[t]);
}

/* One bit in, one bit out, at its place. */
static void test_bits(void **state)
{
	(void)state;
	assert_true(ud_pack(UD_BACKEND, 0, 0, 0) == 0);
	for (unsigned int i = 0; i < 16; i++) {
		assert_true(ud_pack(UD_BACKEND, 0, 0, (uint16_t)(1U << i)) == UINT64_C(1) << i);
		assert_true(ud_pack(UD_BACKEND, 0, (uint16_t)(1U << i), 0) == UINT64_C(1) << (16 + i));
	}
	for (unsigned int i = 0; i < 24; i++)
		assert_true(ud_pack(UD_BACKEND, 1U << i, 0, 0) == UINT64_C(1) << (32 + i));
	assert_true(ud_pack(UD_TARGET, 0, 0, 0) == UINT64_C(1) << 56);
	assert_true(ud_pack(UD_STOP, 0, 0, 0) == UINT64_C(2) << 56);
	assert_true(ud_pack(UD_STOP, UD_AUX_MAX, 0xffff, 0xffff) == UINT64_C(0x02ffffffffffffff));
}

/* An aux that is too large is cut; it never becomes another kind. */
static void test_too_large_aux(void **state)
{
	uint64_t ud = ud_pack(UD_BACKEND, UD_AUX_MAX + 1, 7, 8);

	(void)state;
	assert_int_equal(ud_kind(ud), UD_BACKEND);
	assert_int_equal(ud_aux(ud), 0);
	assert_int_equal(ud_slot(ud), 7);
	assert_int_equal(ud_tag(ud), 8);
	assert_int_equal(ud_kind(ud_pack(UD_TARGET, UINT32_MAX, 0, 0)), UD_TARGET);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_bits),
		cmocka_unit_test(test_too_large_aux),
	};

	return cmocka_run_group_tests_name("udata", tests, NULL, NULL);
}
