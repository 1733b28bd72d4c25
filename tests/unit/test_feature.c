/* SPDX-License-Identifier: MIT */
/*
 * The table of driver features, against the kernel's numbers and what kernels were seen to have.
 */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "abi/feature.h"
#include "abi/ublk_abi.h"

/* Bits as include/uapi/linux/ublk_cmd.h numbers them (Linux 7.3). */
static const char *const kernel_names[] = {
	"UBLK_F_SUPPORT_ZERO_COPY",
	"UBLK_F_URING_CMD_COMP_IN_TASK",
	"UBLK_F_NEED_GET_DATA",
	"UBLK_F_USER_RECOVERY",
	"UBLK_F_USER_RECOVERY_REISSUE",
	"UBLK_F_UNPRIVILEGED_DEV",
	"UBLK_F_CMD_IOCTL_ENCODE",
	"UBLK_F_USER_COPY",
	"UBLK_F_ZONED",
	"UBLK_F_USER_RECOVERY_FAIL_IO",
	"UBLK_F_UPDATE_SIZE",
	"UBLK_F_AUTO_BUF_REG",
	"UBLK_F_QUIESCE",
	"UBLK_F_PER_IO_DAEMON",
	"UBLK_F_BUF_REG_OFF_DAEMON",
	"UBLK_F_BATCH_IO",
	"UBLK_F_INTEGRITY",
	"UBLK_F_SAFE_STOP_DEV",
	"UBLK_F_NO_AUTO_PART_SCAN",
	"UBLK_F_SHMEM_ZC",
	"UBLK_F_IO_DESC_SIZE",
};

static void test_names_and_bits(void **state)
{
	const struct abi_feature *t;
	size_t n;

	(void)state;
	t = abi_features(&n);
	assert_int_equal(n, COUNT_OF(kernel_names));
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(t[i].bit, i);
		assert_string_equal(t[i].name, kernel_names[i]);
	}
}

static void test_complete_and_unique(void **state)
{
	const struct abi_feature *t;
	size_t n;

	(void)state;
	t = abi_features(&n);
	for (size_t i = 0; i < n; i++) {
		assert_non_null(t[i].summary);
		assert_true(*t[i].summary);
		assert_true(!t[i].option || *t[i].option);
		for (size_t k = 0; k < i; k++) {
			assert_string_not_equal(t[i].name, t[k].name);
			assert_string_not_equal(t[i].summary, t[k].summary);
		}
	}
}

static void test_by_bit(void **state)
{
	const struct abi_feature *t;
	size_t n;

	(void)state;
	t = abi_features(&n);
	for (unsigned int i = 0; i < n; i++)
		assert_ptr_equal(abi_feature_by_bit(i), &t[i]);
	assert_null(abi_feature_by_bit((unsigned int)n));
	assert_null(abi_feature_by_bit(63));
	assert_null(abi_feature_by_bit(UINT32_MAX));
}

/* "6.16" as 616, "7.0" as 700 */
static unsigned int version(const char *s)
{
	char *end;
	unsigned long major = strtoul(s, &end, 10), minor;

	unit_case("'%s'", s);
	unit_check(end != s && *end == '.');
	s = end + 1;
	minor = strtoul(s, &end, 10);
	unit_check(end != s && !*end && minor < 100);
	return (unsigned int)(major * 100 + minor);
}

/* Masks of GET_FEATURES, read off these kernels. */
static void test_masks_of_kernels(void **state)
{
	static const struct {
		const char *kernel;
		uint64_t mask;
	} seen[] = {
		{ "6.12", 0x1fe },  { "6.16", 0x3fff }, { "6.17", 0x7fff },
		{ "6.18", 0x7fff }, { "7.2", 0xfffff }, { "7.3", 0x1fffff },
	};
	const struct abi_feature *t;
	size_t n;

	(void)state;
	t = abi_features(&n);
	for (size_t k = 0; k < COUNT_OF(seen); k++) {
		uint64_t mask = 0;

		for (size_t i = 0; i < n; i++)
			if (version(t[i].since) <= version(seen[k].kernel))
				mask |= UINT64_C(1) << t[i].bit;
		unit_case("Linux %s: %#llx", seen[k].kernel, (unsigned long long)mask);
		unit_check(mask == seen[k].mask);
	}
}

static void test_flag_values(void **state)
{
	(void)state;
	assert_true(UBLK_F_SUPPORT_ZERO_COPY == 1);
	assert_true(UBLK_F_CMD_IOCTL_ENCODE == 0x40);
	assert_true(UBLK_F_USER_COPY == 0x80);
	assert_true(UBLK_F_BATCH_IO == 0x8000);
	assert_true(UBLK_F_SAFE_STOP_DEV == 0x20000);
	assert_true(UBLK_F_NO_AUTO_PART_SCAN == 0x40000);
	assert_true(UBLK_F_IO_DESC_SIZE == 0x100000);
}

/* What the commands' encoding comes to: direction, size, 'u', number. */
static void test_opcodes(void **state)
{
	(void)state;
	assert_int_equal(UBLK_U_CMD_GET_QUEUE_AFFINITY, 0x80207501);
	assert_int_equal(UBLK_U_CMD_GET_DEV_INFO, 0x80207502);
	assert_int_equal(UBLK_U_CMD_ADD_DEV, 0xc0207504);
	assert_int_equal(UBLK_U_CMD_DEL_DEV, 0xc0207505);
	assert_int_equal(UBLK_U_CMD_START_DEV, 0xc0207506);
	assert_int_equal(UBLK_U_CMD_STOP_DEV, 0xc0207507);
	assert_int_equal(UBLK_U_CMD_SET_PARAMS, 0xc0207508);
	assert_int_equal(UBLK_U_CMD_GET_PARAMS, 0x80207509);
	assert_int_equal(UBLK_U_CMD_GET_DEV_INFO2, 0x80207512);
	assert_int_equal(UBLK_U_CMD_GET_FEATURES, 0x80207513);
	assert_int_equal(UBLK_U_CMD_DEL_DEV_ASYNC, 0x80207514);
	assert_int_equal(UBLK_U_CMD_TRY_STOP_DEV, 0xc0207517);
	assert_int_equal(UBLK_U_IO_FETCH_REQ, 0xc0107520);
	assert_int_equal(UBLK_U_IO_COMMIT_AND_FETCH_REQ, 0xc0107521);
	assert_int_equal(UBLK_U_IO_PREP_IO_CMDS, 0xc0107525);
	assert_int_equal(UBLK_U_IO_COMMIT_IO_CMDS, 0xc0107526);
	assert_int_equal(UBLK_U_IO_FETCH_IO_CMDS, 0xc0107527);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_and_bits), cmocka_unit_test(test_complete_and_unique),
		cmocka_unit_test(test_by_bit),	       cmocka_unit_test(test_masks_of_kernels),
		cmocka_unit_test(test_flag_values),    cmocka_unit_test(test_opcodes),
	};

	return cmocka_run_group_tests_name("feature", tests, NULL, NULL);
}
