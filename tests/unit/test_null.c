/* SPDX-License-Identifier: MIT */
/*
 * Null target: what a read returns after whatever was written, results, checks, parameters.
 */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/queue.h"
#include "target/target.h"

#define DEPTH 4
#define BUF (64 * 1024)
#define STALE 0x5a /* what a write leaves, or what nobody may have touched */

/* ---- a queue whose back end only notes what is completed --------------------------------- */

static struct {
	unsigned int count;
	uint16_t tag;
	int32_t res;
} done;

static void note_complete(struct q *q, uint16_t tag, int32_t res)
{
	(void)q;
	done.count++;
	done.tag = tag;
	done.res = res;
}

static const struct q_backend note_be = { .name = "note", .complete = note_complete };

struct rig {
	struct q_thr thr;
	struct q q;
	struct ublksrv_io_desc desc[DEPTH];
	uint64_t since[DEPTH];
	uint8_t buf[DEPTH * BUF];
};

static int setup(void **state)
{
	static struct st_block block;
	struct rig *r = calloc(1, sizeof(*r));

	r->thr = (struct q_thr){ .be = &note_be, .tgt = &tgt_null, .qs = &r->q, .nr_qs = 1 };
	r->q = (struct q){ .thr = &r->thr,
			   .desc = r->desc,
			   .st = &block,
			   .since = r->since,
			   .depth = DEPTH,
			   .buf = r->buf,
			   .buf_size = BUF,
			   .mode = iobuf_mode(DATA_COPY) };
	r->q.tag_priv = calloc(DEPTH, tgt_null.tag_size);
	memset(&done, 0, sizeof(done));
	*state = r;
	return 0;
}

static int teardown(void **state)
{
	struct rig *r = *state;

	free(r->q.tag_priv);
	free(r);
	return 0;
}

/* One request; returns its result, which comes at once and for the right tag. */
static int32_t io_no_buf(struct rig *r, uint16_t tag, uint32_t op, uint32_t sectors)
{
	struct ublksrv_io_desc d = { .op_flags = op, .nr_sectors = sectors };
	unsigned int before = done.count;

	r->thr.tgt->queue_io(&r->q, tag, &d);
	assert_int_equal(done.count, before + 1);
	assert_int_equal(done.tag, tag);
	return done.res;
}

static int32_t io(struct rig *r, uint16_t tag, uint32_t op, uint32_t sectors)
{
	/* the driver has copied the data of a write before it delivers it */
	if ((op & 0xff) == UBLK_IO_OP_WRITE)
		memset(q_buf(&r->q, tag), STALE, (size_t)sectors << 9);
	return io_no_buf(r, tag, op, sectors);
}

/* Length of the longest start of the tag's buffer that holds only c. */
static size_t run_of(struct rig *r, uint16_t tag, size_t from, uint8_t c)
{
	const uint8_t *p = q_buf(&r->q, tag);
	size_t n = from;

	while (n < BUF && p[n] == c)
		n++;
	return n - from;
}

/* ---- tests ------------------------------------------------------------------------------ */

static void test_results(void **state)
{
	struct rig *r = *state;

	assert_int_equal(io(r, 0, UBLK_IO_OP_READ, 1), 512);
	assert_int_equal(io(r, 1, UBLK_IO_OP_READ, 128), 65536);
	assert_int_equal(io(r, 2, UBLK_IO_OP_WRITE, 1), 512);
	assert_int_equal(io(r, 3, UBLK_IO_OP_WRITE, 128), 65536);
	assert_int_equal(io(r, 0, UBLK_IO_OP_FLUSH, 0), 0);
	assert_int_equal(io(r, 0, UBLK_IO_OP_DISCARD, 8192), 0);
	assert_int_equal(io(r, 0, UBLK_IO_OP_WRITE_ZEROES, 8192), 0);
	/* flags above the operation (FUA, NOUNMAP, …) change nothing */
	assert_int_equal(io(r, 0, UBLK_IO_OP_READ | 0xffffff00, 8), 4096);
	assert_int_equal(io(r, 0, UBLK_IO_OP_WRITE | 1U << 13, 8), 4096);
	assert_int_equal(io(r, 0, UBLK_IO_OP_WRITE_ZEROES | 1U << 15, 8), 0);
}

static void test_unknown_operations(void **state)
{
	struct rig *r = *state;

	for (uint32_t op = 0; op < 256; op++) {
		bool known = op == UBLK_IO_OP_READ || op == UBLK_IO_OP_WRITE ||
			     op == UBLK_IO_OP_FLUSH || op == UBLK_IO_OP_DISCARD ||
			     op == UBLK_IO_OP_WRITE_ZEROES;

		if (!known)
			assert_int_equal(io(r, 1, op, 8), -EOPNOTSUPP);
	}
}

/* A buffer that no write has used is not touched: its pages stay away. */
static void test_read_of_fresh_buffer(void **state)
{
	struct rig *r = *state;

	memset(r->buf, STALE, sizeof(r->buf));
	assert_int_equal(io(r, 0, UBLK_IO_OP_READ, 128), BUF);
	assert_int_equal(run_of(r, 0, 0, STALE), BUF);
}

static void test_read_after_write(void **state)
{
	struct rig *r = *state;

	assert_int_equal(io(r, 2, UBLK_IO_OP_WRITE, 16), 8192);
	assert_int_equal(io(r, 2, UBLK_IO_OP_READ, 128), BUF);
	assert_int_equal(run_of(r, 2, 0, 0), BUF);
}

/* Only what was written is cleared, and only once. */
static void test_only_the_dirty_part(void **state)
{
	struct rig *r = *state;
	uint8_t *p = q_buf(&r->q, 1);

	assert_int_equal(io(r, 1, UBLK_IO_OP_WRITE, 8), 4096);
	memset(p, STALE, BUF);
	assert_int_equal(io(r, 1, UBLK_IO_OP_READ, 1), 512);
	assert_int_equal(run_of(r, 1, 0, 0), 4096);
	assert_int_equal(run_of(r, 1, 4096, STALE), BUF - 4096);
	memset(p, STALE, BUF);
	assert_int_equal(io(r, 1, UBLK_IO_OP_READ, 128), BUF);
	assert_int_equal(run_of(r, 1, 0, STALE), BUF);
}

/* A short read in between clears all that a longer read would show later. */
static void test_short_read_then_long(void **state)
{
	struct rig *r = *state;

	assert_int_equal(io(r, 0, UBLK_IO_OP_WRITE, 100), 51200);
	assert_int_equal(io(r, 0, UBLK_IO_OP_READ, 1), 512);
	assert_int_equal(run_of(r, 0, 0, 0), BUF);
	assert_int_equal(io(r, 0, UBLK_IO_OP_READ, 100), 51200);
	assert_int_equal(run_of(r, 0, 0, 0), BUF);
}

/* The longest write since the last read counts, not the newest. */
static void test_several_writes(void **state)
{
	struct rig *r = *state;

	assert_int_equal(io(r, 3, UBLK_IO_OP_WRITE, 64), 32768);
	assert_int_equal(io(r, 3, UBLK_IO_OP_WRITE, 1), 512);
	assert_int_equal(io(r, 3, UBLK_IO_OP_FLUSH, 0), 0);
	assert_int_equal(io(r, 3, UBLK_IO_OP_DISCARD, 64), 0);
	assert_int_equal(io(r, 3, 77, 64), -EOPNOTSUPP);
	assert_int_equal(io(r, 3, UBLK_IO_OP_READ, 64), 32768);
	assert_int_equal(run_of(r, 3, 0, 0), BUF);
}

/* A tag knows nothing of its neighbours. */
static void test_tags_are_apart(void **state)
{
	struct rig *r = *state;

	for (uint16_t tag = 0; tag < DEPTH; tag++)
		assert_int_equal(io(r, tag, UBLK_IO_OP_WRITE, 128), BUF);
	assert_int_equal(io(r, 1, UBLK_IO_OP_READ, 128), BUF);
	assert_int_equal(run_of(r, 0, 0, STALE), BUF);
	assert_int_equal(run_of(r, 1, 0, 0), BUF);
	assert_int_equal(run_of(r, 2, 0, STALE), BUF);
	assert_int_equal(io(r, 2, UBLK_IO_OP_READ, 128), BUF);
	assert_int_equal(run_of(r, 2, 0, 0), BUF);
	assert_int_equal(run_of(r, 3, 0, STALE), BUF);
}

/* Reads without data need no ring entry at all, not even for the request's pages. */
static void test_no_data(void **state)
{
	struct dev_cfg cfg = { .null_data = "none" };
	struct rig *r = *state;

	r->q.mode = iobuf_mode(DATA_ZERO_COPY);
	r->q.buf = NULL;
	r->q.tgt_priv = &cfg;
	/* this one has no ring: any entry would end the test */
	assert_int_equal(io_no_buf(r, 2, UBLK_IO_OP_READ, 16), 16 << 9);
	assert_int_equal(io_no_buf(r, 3, UBLK_IO_OP_WRITE, 8), 8 << 9);
	assert_int_equal(io_no_buf(r, 2, UBLK_IO_OP_FLUSH, 0), 0);
}

static void test_check(void **state)
{
	struct dev_cfg cfg = { .block_size = 512 };
	struct fail f = { 0 };

	(void)state;
	assert_int_equal(tgt_null.check(&cfg, &f), 0);
	assert_true(cfg.size == 268435456000); /* 250 GiB */
	cfg.size = 1536;
	assert_int_equal(tgt_null.check(&cfg, &f), 0);
	assert_true(cfg.size == 1536);
	cfg.block_size = 4096;
	cfg.size = 8192 + 512;
	assert_int_equal(tgt_null.check(&cfg, &f), -FAIL_USAGE);
	assert_int_equal(f.err, FAIL_USAGE);
	assert_non_null(strstr(f.text, "8704"));
	assert_non_null(strstr(f.text, "4096"));
}

static void test_params(void **state)
{
	struct dev_cfg cfg = { .block_size = 4096 };
	struct ublk_params p = { .types = UBLK_PARAM_TYPE_BASIC, .basic = { .logical_bs_shift = 12 } };

	(void)state;
	tgt_null.params(NULL, &cfg, &p);
	assert_int_equal(p.types, UBLK_PARAM_TYPE_BASIC | UBLK_PARAM_TYPE_DISCARD);
	assert_int_equal(p.discard.discard_granularity, 4096);
	assert_int_equal(p.discard.max_discard_segments, 1);
	assert_true(p.discard.max_discard_sectors > 0);
	assert_true(p.discard.max_write_zeroes_sectors > 0);
	/* bytes of a request are 32 bits wide in the block layer */
	assert_true((uint64_t)p.discard.max_discard_sectors << 9 <= UINT32_MAX);
	assert_true((uint64_t)p.discard.max_write_zeroes_sectors << 9 <= UINT32_MAX);
	assert_int_equal(p.basic.logical_bs_shift, 12);
}

static void test_table_of_targets(void **state)
{
	unsigned int n = 0;

	(void)state;
	assert_ptr_equal(tgt_find("null"), &tgt_null);
	assert_null(tgt_find("nul"));
	assert_null(tgt_find(""));
	assert_null(tgt_find("NULL"));
	for (; tgt_at(n); n++) {
		const struct tgt_ops *t = tgt_at(n);

		assert_string_equal(tgt_name_at(n), t->name);
		assert_ptr_equal(tgt_find(t->name), t);
		/* no slot is empty */
		assert_true(t->summary && t->options && t->check && t->params && t->queue_io &&
			    t->io_done);
	}
	assert_int_equal(n, 2);
	/* second names come behind the names */
	assert_string_equal(tgt_name_at(n), "loop");
	assert_ptr_equal(tgt_find("loop"), &tgt_file);
	assert_null(tgt_name_at(n + 1));
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_results),
		TEST(test_unknown_operations),
		TEST(test_read_of_fresh_buffer),
		TEST(test_read_after_write),
		TEST(test_only_the_dirty_part),
		TEST(test_short_read_then_long),
		TEST(test_several_writes),
		TEST(test_tags_are_apart),
		TEST(test_no_data),
		cmocka_unit_test(test_check),
		cmocka_unit_test(test_params),
		cmocka_unit_test(test_table_of_targets),
	};

	return cmocka_run_group_tests_name("null", tests, NULL, NULL);
}
