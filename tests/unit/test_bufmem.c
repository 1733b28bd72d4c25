/* SPDX-License-Identifier: MIT */
/*
 * Memory of I/O buffers: which pages it asks for, where it starts, what of it is there.
 */
#include "unit.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "engine/bufmem.h"
#include "tmpdir.h"
#include "util/sanitize.h"

/* No processor has such huge pages: nobody can have reserved any. */
#define HUGE_KIB 65536UL
#define HUGE (HUGE_KIB << 10)

static char dir[64];

/* What the kernel says of transparent huge pages; NULL: nothing. */
static void thp(const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/sys/kernel/mm/transparent_hugepage/%s", dir, name);
	unlink(path);
	if (!text)
		return;
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static bool is_zero(const struct bufmem *m, size_t len)
{
	const uint8_t *p = m->p;

	for (size_t i = 0; i < len; i += 512)
		if (p[i])
			return false;
	return p[len - 1] == 0;
}

static size_t pages_there(const struct bufmem *m, size_t page)
{
	static unsigned char map[4096];
	size_t n = 0, all = m->len / page;

	assert_true(all <= sizeof(map));
	assert_int_equal(mincore(m->p, m->len, map), 0);
	for (size_t i = 0; i < all; i++)
		n += map[i] & 1;
	return n;
}

static void test_usual(void **state)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct bufmem m = { 0 };

	(void)state;
	bufmem_free(&m);
	assert_int_equal(bufmem_alloc(64 * page, false, false, &m), 0);
	assert_int_equal(m.huge, HUGE_NONE);
	assert_int_equal(m.len, 64 * page);
	assert_int_equal(pages_there(&m, page), 0);
	((uint8_t *)m.p)[5 * page] = 1;
	assert_int_equal(pages_there(&m, page), 1);
	bufmem_free(&m);
	assert_null(m.p);
}

static void test_locked(void **state)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct bufmem m;
	struct rlimit now;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &now), 0);
	/* under a sanitizer mlock() does nothing */
	if (HAS_SANITIZER || now.rlim_cur < 16 * page)
		skip();
	assert_int_equal(bufmem_alloc(4 * page, true, false, &m), 0);
	assert_int_equal(pages_there(&m, page), 4);
	assert_true(is_zero(&m, m.len));
	bufmem_free(&m);
}

/* With huge pages asked for: from what the kernel says to what is got. */
static void test_transparent(void **state)
{
	static const struct {
		const char *size, *one, *all;
		bool got;
	} cases[] = {
		{ "67108864\n", NULL, "always [madvise] never\n", true },
		{ "67108864\n", NULL, "[always] madvise never\n", true },
		{ "67108864\n", NULL, "always madvise [never]\n", false },
		{ "67108864\n", NULL, NULL, false },
		{ "67108864\n", "always [inherit] madvise never\n", "[always] madvise never\n", true },
		{ "67108864\n", "always [inherit] madvise never\n", "always madvise [never]\n", false },
		{ "67108864\n", "always inherit madvise [never]\n", "[always] madvise never\n", false },
		{ "67108864\n", "always inherit [madvise] never\n", "always madvise [never]\n", true },
	};
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct bufmem m;

		unit_case("case %zu", i);
		thp("hpage_pmd_size", cases[i].size);
		thp("hugepages-65536kB/enabled", cases[i].one);
		thp("enabled", cases[i].all);
		assert_int_equal(bufmem_alloc(3 * page, false, true, &m), 0);
		/* this machine's kernel may have none, whatever the files say */
		if (m.huge == HUGE_TRANSPARENT) {
			unit_check(cases[i].got);
			unit_check(m.len == HUGE && (uintptr_t)m.p % HUGE == 0);
		} else {
			unit_check(m.huge == HUGE_NONE && m.len == 3 * page);
			unit_check(!cases[i].got || madvise(m.p, page, MADV_HUGEPAGE) < 0);
		}
		unit_check(is_zero(&m, 3 * page));
		memset(m.p, 1, 3 * page);
		bufmem_free(&m);
	}
}

static int setup(void **state)
{
	char path[256];
	static const char *const dirs[] = {
		"sys",
		"sys/kernel",
		"sys/kernel/mm",
		"sys/kernel/mm/transparent_hugepage",
		"sys/kernel/mm/transparent_hugepage/hugepages-65536kB",
	};

	(void)state;
	tmpdir_make(dir);
	for (size_t i = 0; i < COUNT_OF(dirs); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, dirs[i]);
		if (mkdir(path, 0755) < 0)
			return -1;
	}
	return setenv("UBLKCTL_SYSROOT", dir, 1);
}

static int teardown(void **state)
{
	(void)state;
	tmpdir_remove(dir);
	return unsetenv("UBLKCTL_SYSROOT");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_usual),
		cmocka_unit_test(test_locked),
		cmocka_unit_test(test_transparent),
	};

	return cmocka_run_group_tests_name("bufmem", tests, setup, teardown);
}
