/* SPDX-License-Identifier: MIT */
/*
 * Records of devices: what is written comes back, what cannot be trusted does not.
 */
#include "unit.h"

#include <errno.h>
#include <json-c/json.h>
#include <sys/wait.h>

#include "dev/record.h"
#include "tmpdir.h"
#include "util/fs.h"

struct ctx {
	char root[64];
	int dir; /* of records; no path root is set */
};

static const struct record sample = {
	.cfg = {
		.id = 7,
		.batch = true,
		.queues = 4,
		.depth = 4096,
		.threads = 3,
		.size = 268435456000,
		.block_size = 512,
		.phys_block_size = 4096,
		.max_io = 512 * 1024,
		.read_only = false,
		.no_partscan = true,
	},
	.target = "null",
	.pid = 4321,
	.pid_start = 987654321,
	.cookie = 0xfedcba9876543210ULL, /* above INT64_MAX: JSON numbers could not hold it */
	.created = "2026-01-02T03:04:05Z",
	.version = "1.2.3",
};

static int setup(void **state)
{
	static struct ctx c;

	unsetenv("UBLKCTL_SYSROOT");
	tmpdir_make(c.root);
	c.dir = open(c.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*state = &c;
	return c.dir < 0;
}

static int teardown(void **state)
{
	struct ctx *c = *state;

	unsetenv("UBLKCTL_SYSROOT");
	close(c->dir);
	tmpdir_remove(c->root);
	return 0;
}

static void assert_same(const struct record *a, const struct record *b)
{
	assert_int_equal(a->cfg.id, b->cfg.id);
	assert_int_equal(a->cfg.batch, b->cfg.batch);
	assert_int_equal(a->cfg.queues, b->cfg.queues);
	assert_int_equal(a->cfg.depth, b->cfg.depth);
	assert_int_equal(a->cfg.threads, b->cfg.threads);
	assert_true(a->cfg.size == b->cfg.size);
	assert_true(a->cfg.block_size == b->cfg.block_size);
	assert_true(a->cfg.phys_block_size == b->cfg.phys_block_size);
	assert_true(a->cfg.max_io == b->cfg.max_io);
	assert_int_equal(a->cfg.read_only, b->cfg.read_only);
	assert_int_equal(a->cfg.no_partscan, b->cfg.no_partscan);
	assert_string_equal(a->target, b->target);
	assert_int_equal(a->pid, b->pid);
	assert_true(a->pid_start == b->pid_start);
	assert_true(a->cookie == b->cookie);
	assert_string_equal(a->created, b->created);
	assert_string_equal(a->version, b->version);
}

static void test_round_trip(void **state)
{
	struct ctx *c = *state;
	struct record in = sample, out;
	struct stat st;

	assert_int_equal(rec_write(c->dir, &in), 0);
	assert_int_equal(rec_read(c->dir, 7, &out), 0);
	assert_same(&in, &out);

	in.cfg.batch = in.cfg.no_partscan = false;
	in.cfg.read_only = true;
	in.cfg.queues = in.cfg.depth = in.cfg.threads = 1;
	in.cfg.size = 512;
	in.cookie = 1;
	in.pid = 0;
	in.pid_start = 0;
	assert_int_equal(rec_write(c->dir, &in), 0);
	assert_int_equal(rec_read(c->dir, 7, &out), 0);
	assert_same(&in, &out);

	/* one file of a fixed name, readable by all, whatever the umask */
	assert_int_equal(tmpdir_count(c->dir), 1);
	umask(077);
	assert_int_equal(rec_write(c->dir, &in), 0);
	umask(022);
	assert_int_equal(fstatat(c->dir, "7.json", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0644);
}

static void test_text_form(void **state)
{
	char *text = rec_to_json(&sample);
	struct json_object *o = json_tokener_parse(text), *v;

	(void)state;
	assert_non_null(o);
	assert_true(json_object_object_get_ex(o, "schema", &v));
	assert_int_equal(json_object_get_int(v), REC_SCHEMA);
	assert_true(json_object_object_get_ex(o, "size", &v));
	assert_true(json_object_is_type(v, json_type_int));
	assert_true(json_object_get_int64(v) == 268435456000);
	assert_true(json_object_object_get_ex(o, "batch", &v));
	assert_true(json_object_is_type(v, json_type_boolean));
	assert_true(json_object_object_get_ex(o, "cookie", &v));
	assert_string_equal(json_object_get_string(v), "0xfedcba9876543210");
	json_object_put(o);
	free(text);
}

/* One member of a good record replaced by JSON text, or taken out. */
static void put_with(struct ctx *c, const char *key, const char *json)
{
	char *text = rec_to_json(&sample);
	struct json_object *o = json_tokener_parse(text);
	const char *out;

	json_object_object_del(o, key);
	if (json)
		json_object_object_add(o, key, json_tokener_parse(json));
	out = json_object_to_json_string(o);
	tmpdir_put(c->dir, "7.json", out, strlen(out));
	json_object_put(o);
	free(text);
}

/* Refused with err, and the caller's record stays as it was. */
static void refused(struct ctx *c, int err)
{
	struct record out, before;
	int r;

	memset(&out, 0x5a, sizeof(out));
	memcpy(&before, &out, sizeof(out));
	r = rec_read(c->dir, 7, &out);
	if (r != err)
		fail_msg("%s: result %d instead of %d", unit_case_text, r, err);
	if (memcmp(&out, &before, sizeof(out)))
		fail_msg("%s: the caller's record was touched", unit_case_text);
}

/* JSON that is no value of the member */
static const struct {
	const char *key, *json;
} bad_members[] = {
	{ "schema", "0" },
	{ "schema", "2" },
	{ "schema", "\"1\"" },
	{ "id", "8" },
	{ "id", "-1" },
	{ "id", "4294967303" },
	{ "id", "7.0" },
	{ "id", "null" },
	{ "queues", "0" },
	{ "queues", "4097" },
	{ "queues", "4294967297" },
	{ "queues", "-1" },
	{ "depth", "0" },
	{ "depth", "4097" },
	{ "depth", "\"128\"" },
	{ "threads", "0" },
	{ "threads", "4097" },
	{ "size", "511" },
	{ "size", "-512" },
	{ "size", "1e9" },
	{ "size", "true" },
	{ "size", "9223372036854775808" },
	{ "size", "99999999999999999999" },
	{ "block_size", "256" },
	{ "block_size", "2097152" },
	{ "physical_block_size", "0" },
	{ "max_io", "2048" },
	{ "max_io", "33554433" },
	{ "batch", "1" },
	{ "batch", "\"true\"" },
	{ "read_only", "null" },
	{ "no_partscan", "[]" },
	{ "pid", "-1" },
	{ "pid", "2147483648" },
	{ "pid", "{}" },
	{ "pid_start", "-1" },
	{ "cookie", "1" },
	{ "cookie", "\"0x12zz\"" },
	{ "cookie", "\"\"" },
	{ "cookie", "\"0x00000000000000000000000000000001\"" },
	{ "cookie", "\"0x0123456789abcdefg\"" },
	{ "cookie", "\"0123456789abcdef\"" },
	{ "target", "5" },
	{ "created", "[]" },
	{ "target", "\"0123456789012345678901234567890123456789\"" },
	{ "version", "{\"a\":1}" },
};

static const char *const needed_members[] = {
	"schema",     "id",
	"target",     "batch",
	"queues",     "depth",
	"threads",    "size",
	"max_io",     "pid",
	"pid_start",  "cookie",
	"block_size", "physical_block_size",
	"created",    "version",
	"read_only",  "no_partscan",
};

static void test_bad_members(void **state)
{
	struct ctx *c = *state;

	for (size_t i = 0; i < COUNT_OF(bad_members); i++) {
		unit_case("\"%s\": %s", bad_members[i].key, bad_members[i].json);
		put_with(c, bad_members[i].key, bad_members[i].json);
		refused(c, -EPROTO);
	}
	for (size_t i = 0; i < COUNT_OF(needed_members); i++) {
		unit_case("without \"%s\"", needed_members[i]);
		put_with(c, needed_members[i], NULL);
		refused(c, -EPROTO);
	}
}

/* Younger than schema 1: what is set comes back, older records are believed without it. */
static void test_affinity(void **state)
{
	struct ctx *c = *state;
	struct record in = sample, out;

	snprintf(in.affinity, sizeof(in.affinity), "0=0-3,5:3=1");
	assert_int_equal(rec_write(c->dir, &in), 0);
	assert_int_equal(rec_read(c->dir, 7, &out), 0);
	assert_string_equal(out.affinity, "0=0-3,5:3=1");
	put_with(c, "affinity", NULL);
	assert_int_equal(rec_read(c->dir, 7, &out), 0);
	assert_string_equal(out.affinity, "");
	put_with(c, "affinity", "[\"0=1\"]");
	refused(c, -EPROTO);
}

/* The same, of two. */
static void test_queue_settings(void **state)
{
	struct ctx *c = *state;
	struct record in = sample, out;

	snprintf(in.scheduler, sizeof(in.scheduler), "none");
	snprintf(in.queue_attr, sizeof(in.queue_attr), "nomerges=2,iostats=0");
	assert_int_equal(rec_write(c->dir, &in), 0);
	assert_int_equal(rec_read(c->dir, 7, &out), 0);
	assert_string_equal(out.scheduler, "none");
	assert_string_equal(out.queue_attr, "nomerges=2,iostats=0");
	put_with(c, "scheduler", NULL);
	assert_int_equal(rec_read(c->dir, 7, &out), 0);
	assert_string_equal(out.scheduler, "");
	put_with(c, "queue_attr", NULL);
	assert_int_equal(rec_read(c->dir, 7, &out), 0);
	assert_string_equal(out.queue_attr, "");
}

/* The same, of how its I/O is served. */
static void test_io_settings(void **state)
{
	struct ctx *c = *state;
	struct record in = sample, out;

	in.cfg.poll_us = 50;
	snprintf(in.hugepages, sizeof(in.hugepages), "transparent");
	assert_int_equal(rec_write(c->dir, &in), 0);
	assert_int_equal(rec_read(c->dir, 7, &out), 0);
	assert_int_equal(out.cfg.poll_us, 50);
	assert_string_equal(out.hugepages, "transparent");
	put_with(c, "poll_us", NULL);
	assert_int_equal(rec_read(c->dir, 7, &out), 0);
	assert_int_equal(out.cfg.poll_us, 0);
	put_with(c, "hugepages", NULL);
	assert_int_equal(rec_read(c->dir, 7, &out), 0);
	assert_string_equal(out.hugepages, "");
	put_with(c, "poll_us", "10001");
	refused(c, -EPROTO);
}

/* Newer tools may add members without a new schema. */
static void test_unknown_member(void **state)
{
	struct ctx *c = *state;
	struct record out;

	put_with(c, "from_the_future", "{\"a\": [1, 2, 3]}");
	assert_int_equal(rec_read(c->dir, 7, &out), 0);
	assert_same(&sample, &out);
}

static void test_garbage(void **state)
{
	static const char *const texts[] = {
		"",
		" ",
		"\n",
		"{",
		"}",
		"{}",
		"[]",
		"null",
		"7",
		"\"text\"",
		"{\"id\": 7",
		"\xff\xfe\x00",
		"{\"id\": 7}}",
		"not json at all",
	};
	struct ctx *c = *state;
	char *good = rec_to_json(&sample), big[200];

	for (size_t i = 0; i < COUNT_OF(texts); i++) {
		unit_case("text %zu '%s'", i, texts[i]);
		tmpdir_put(c->dir, "7.json", texts[i], strlen(texts[i]));
		refused(c, -EPROTO);
	}
	/* every proper start of a good one, but for the end that says nothing */
	for (size_t n = 0; n < strlen(good) - 1; n += 7) {
		unit_case("the first %zu bytes", n);
		tmpdir_put(c->dir, "7.json", good, n);
		refused(c, -EPROTO);
	}
	memset(big, 0, sizeof(big));
	unit_case("zeros");
	tmpdir_put(c->dir, "7.json", big, sizeof(big));
	refused(c, -EPROTO);
	free(good);
}

static void test_trailing_text(void **state)
{
	struct ctx *c = *state;
	char *good = rec_to_json(&sample), text[2048];
	struct record out;

	snprintf(text, sizeof(text), "%s \n\t\n", good);
	tmpdir_put(c->dir, "7.json", text, strlen(text));
	assert_int_equal(rec_read(c->dir, 7, &out), 0);
	snprintf(text, sizeof(text), "%s\n}", good);
	unit_case("a brace behind");
	tmpdir_put(c->dir, "7.json", text, strlen(text));
	refused(c, -EPROTO);
	snprintf(text, sizeof(text), "%s%s", good, good);
	unit_case("twice");
	tmpdir_put(c->dir, "7.json", text, strlen(text));
	refused(c, -EPROTO);
	free(good);
}

static void test_too_large_and_deep(void **state)
{
	struct ctx *c = *state;
	char *good = rec_to_json(&sample);
	size_t len = strlen(good), max = 64 * 1024;
	char *text = malloc(max + 1);
	struct record out;

	/* blanks up to the limit are no harm, one byte more is too much */
	memset(text, ' ', max + 1);
	memcpy(text, good, len);
	tmpdir_put(c->dir, "7.json", text, max);
	assert_int_equal(rec_read(c->dir, 7, &out), 0);
	unit_case("64 KiB and a byte");
	tmpdir_put(c->dir, "7.json", text, max + 1);
	refused(c, -EFBIG);
	unit_case("60,000 brackets");
	memset(text, '[', max);
	tmpdir_put(c->dir, "7.json", text, 60000);
	refused(c, -EPROTO);
	unit_case("braces in braces");
	for (size_t i = 0; i + 5 <= 60000; i += 5)
		memcpy(text + i, "{\"a\":", 5);
	tmpdir_put(c->dir, "7.json", text, 60000);
	refused(c, -EPROTO);
	free(text);
	free(good);
}

static void test_wrong_kind_of_file(void **state)
{
	static const mode_t modes[] = { 0664, 0646, 0666, 0622, 0777 };
	struct ctx *c = *state;
	struct record other = sample;

	unit_case("no file");
	refused(c, -ENOENT);
	assert_int_equal(rec_write(c->dir, &sample), 0);
	for (size_t i = 0; i < COUNT_OF(modes); i++) {
		unit_case("mode %#o", modes[i]);
		assert_int_equal(fchmodat(c->dir, "7.json", modes[i], 0), 0);
		refused(c, -EPERM);
	}
	assert_int_equal(unlinkat(c->dir, "7.json", 0), 0);

	other.cfg.id = 8;
	assert_int_equal(rec_write(c->dir, &other), 0);
	unit_case("symlink to a good record");
	assert_int_equal(symlinkat("8.json", c->dir, "7.json"), 0);
	refused(c, -EPERM);
	assert_int_equal(unlinkat(c->dir, "7.json", 0), 0);
	unit_case("record of another id");
	assert_int_equal(renameat(c->dir, "8.json", c->dir, "7.json"), 0);
	refused(c, -EPROTO);
	assert_int_equal(unlinkat(c->dir, "7.json", 0), 0);
	unit_case("fifo");
	assert_int_equal(mkfifoat(c->dir, "7.json", 0644), 0);
	refused(c, -EPERM);
	assert_int_equal(unlinkat(c->dir, "7.json", 0), 0);
	unit_case("directory");
	assert_int_equal(mkdirat(c->dir, "7.json", 0755), 0);
	refused(c, -EPERM);
}

/* In a child with other ids: 0 when rec_read() gave what was expected. */
static int read_as(struct ctx *c, uid_t uid, int want)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		struct record out;

		if (setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
			_exit(2);
		_exit(rec_read(c->dir, 7, &out) != want);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void test_owner(void **state)
{
	struct ctx *c = *state;

	if (geteuid()) {
		print_message("only root can give files away\n");
		skip();
	}
	assert_int_equal(chmod(c->root, 0755), 0);
	assert_int_equal(rec_write(c->dir, &sample), 0);
	assert_int_equal(read_as(c, 12345, 0), 0); /* root's: believed by all */
	assert_int_equal(fchownat(c->dir, "7.json", 12345, 12345, 0), 0);
	unit_case("a user's record, read by root");
	refused(c, -EPERM);
	assert_int_equal(read_as(c, 12345, 0), 0); /* one's own */
	assert_int_equal(read_as(c, 54321, -EPERM), 0);
	/* below a path root, a recorded tree, the owner is whoever checked it out */
	setenv("UBLKCTL_SYSROOT", c->root, 1);
	assert_int_equal(read_as(c, 54321, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
		cmocka_unit_test(test_text_form),
		cmocka_unit_test_setup_teardown(test_bad_members, setup, teardown),
		cmocka_unit_test_setup_teardown(test_affinity, setup, teardown),
		cmocka_unit_test_setup_teardown(test_queue_settings, setup, teardown),
		cmocka_unit_test_setup_teardown(test_io_settings, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unknown_member, setup, teardown),
		cmocka_unit_test_setup_teardown(test_garbage, setup, teardown),
		cmocka_unit_test_setup_teardown(test_trailing_text, setup, teardown),
		cmocka_unit_test_setup_teardown(test_too_large_and_deep, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_kind_of_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_owner, setup, teardown),
	};

	umask(022);
	return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
