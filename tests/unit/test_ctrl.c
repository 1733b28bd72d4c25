/* SPDX-License-Identifier: MIT */
/*
 * Control commands: what each one sends, what it makes of the answer.
 */
#include "unit.h"

#include <errno.h>
#include <string.h>

#include "ctrl/ctrl.h"

/* ---- a transport that keeps what it was given --------------------------------------------- */

static struct {
	struct ctrl_cmd cmd[4];
	unsigned int count, closed;
	int timeout_ms;
	void *priv;
	/* answers, one after the other; then 0 */
	int result[4];
	/* goes to the command's buffer, behind the path */
	const void *reply;
	size_t reply_len;
	char path[64];
} wire;

static int wire_submit(void *priv, const struct ctrl_cmd *cmd, int timeout_ms)
{
	unsigned int n = wire.count++;
	char *buf = (char *)(uintptr_t)cmd->hdr.addr;

	assert_true(n < COUNT_OF(wire.cmd));
	wire.cmd[n] = *cmd;
	wire.timeout_ms = timeout_ms;
	wire.priv = priv;
	if (cmd->hdr.dev_path_len)
		snprintf(wire.path, sizeof(wire.path), "%.*s", cmd->hdr.dev_path_len, buf);
	/* a driver may write into the buffer of a command that fails */
	if (wire.reply) {
		assert_int_equal(cmd->hdr.len - cmd->hdr.dev_path_len, wire.reply_len);
		memcpy(buf + cmd->hdr.dev_path_len, wire.reply, wire.reply_len);
	}
	return wire.result[n];
}

static void wire_close(void *priv)
{
	wire.priv = priv;
	wire.closed++;
}

static const struct ctrl_transport wire_ops = { .submit = wire_submit, .close = wire_close };
static int token;

static struct ctrl fresh(void)
{
	memset(&wire, 0, sizeof(wire));
	return (struct ctrl){ .ops = &wire_ops, .priv = &token, .timeout_ms = 4321 };
}

static void sent(uint32_t op, uint32_t id, unsigned int len, uint64_t data)
{
	const struct ctrl_cmd *c = &wire.cmd[wire.count - 1];

	assert_int_equal(c->op, op);
	assert_int_equal(c->hdr.dev_id, id);
	assert_int_equal(c->hdr.queue_id, 0xffff); /* never for a queue */
	assert_int_equal(c->hdr.len, len);
	assert_true(c->hdr.data[0] == data);
	assert_true(!len == !c->hdr.addr);
	assert_int_equal(c->hdr.pad, 0);
	assert_int_equal(c->hdr.reserved, 0);
	assert_int_equal(wire.timeout_ms, 4321);
	assert_ptr_equal(wire.priv, &token);
}

/* ---- commands --------------------------------------------------------------------------- */

static void test_plain_commands(void **state)
{
	static const struct {
		int (*fn)(struct ctrl *, uint32_t);
		uint32_t op;
	} cases[] = {
		{ ctrl_stop_dev, UBLK_U_CMD_STOP_DEV },
		{ ctrl_try_stop_dev, UBLK_U_CMD_TRY_STOP_DEV },
		{ ctrl_del_dev, UBLK_U_CMD_DEL_DEV },
		{ ctrl_del_dev_async, UBLK_U_CMD_DEL_DEV_ASYNC },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct ctrl c = fresh();

		wire.result[1] = -EBUSY;
		wire.result[2] = -ETIME;
		assert_int_equal(cases[i].fn(&c, 77), 0);
		sent(cases[i].op, 77, 0, 0);
		assert_int_equal(cases[i].fn(&c, 77), -EBUSY);
		assert_int_equal(cases[i].fn(&c, 77), -ETIME);
		assert_int_equal(wire.count, 3);
	}
}

static void test_start(void **state)
{
	struct ctrl c = fresh();

	(void)state;
	assert_int_equal(ctrl_start_dev(&c, 3, 4242), 0);
	sent(UBLK_U_CMD_START_DEV, 3, 0, 4242);
	wire.result[1] = -EINVAL;
	assert_int_equal(ctrl_start_dev(&c, 3, 4242), -EINVAL);
}

static void test_features(void **state)
{
	struct ctrl c = fresh();
	uint64_t mask = 0x1fffff, got = 5;

	(void)state;
	wire.reply = &mask;
	wire.reply_len = 8; /* UBLK_FEATURES_LEN: the driver takes no other */
	wire.result[0] = -EOPNOTSUPP;
	assert_int_equal(ctrl_get_features(&c, &got), -EOPNOTSUPP);
	assert_true(got == 5);
	assert_int_equal(ctrl_get_features(&c, &got), 0);
	assert_true(got == 0x1fffff);
	sent(UBLK_U_CMD_GET_FEATURES, 0, 8, 0);
}

static void test_add(void **state)
{
	struct ctrl c = fresh();
	struct ublksrv_ctrl_dev_info info = { .dev_id = UINT32_MAX, .queue_depth = 128 };
	struct ublksrv_ctrl_dev_info granted = { .dev_id = 9, .queue_depth = 64 };

	(void)state;
	wire.reply = &granted;
	wire.reply_len = sizeof(granted);
	wire.result[0] = -EEXIST;
	assert_int_equal(ctrl_add_dev(&c, &info), -EEXIST);
	assert_int_equal(info.dev_id, UINT32_MAX); /* wishes stay wishes */
	assert_int_equal(info.queue_depth, 128);
	assert_int_equal(ctrl_add_dev(&c, &info), 0);
	/* the same id in command and structure, from Linux 6.17 on */
	sent(UBLK_U_CMD_ADD_DEV, UINT32_MAX, 64, 0);
	assert_int_equal(info.dev_id, 9);
	assert_int_equal(info.queue_depth, 64);
}

static struct ublk_params seen_params;

static int params_submit(void *priv, const struct ctrl_cmd *cmd, int timeout_ms)
{
	if (cmd->hdr.len == sizeof(seen_params))
		memcpy(&seen_params, (void *)(uintptr_t)cmd->hdr.addr, sizeof(seen_params));
	return wire_submit(priv, cmd, timeout_ms);
}

static void test_params(void **state)
{
	static const struct ctrl_transport ops = { .submit = params_submit, .close = wire_close };
	struct ublk_params p = { .types = UBLK_PARAM_TYPE_BASIC, .basic = { .dev_sectors = 99 } };
	struct ublk_params driver = { .len = 112, .types = 3 }, got = { .len = 1 };
	struct ctrl c = fresh();

	(void)state;
	c.ops = &ops;
	assert_int_equal(ctrl_set_params(&c, 5, &p), 0);
	sent(UBLK_U_CMD_SET_PARAMS, 5, sizeof(p), 0);
	assert_int_equal(seen_params.len, sizeof(p)); /* filled in for the caller */
	assert_true(seen_params.basic.dev_sectors == 99);
	assert_int_equal(p.len, 0);

	wire.reply = &driver;
	wire.reply_len = sizeof(driver);
	wire.result[1] = -EINVAL;
	assert_int_equal(ctrl_get_params(&c, 5, &got), -EINVAL);
	assert_int_equal(got.len, 1);
	assert_int_equal(ctrl_get_params(&c, 5, &got), 0);
	sent(UBLK_U_CMD_GET_PARAMS, 5, sizeof(got), 0);
	assert_int_equal(seen_params.len, sizeof(got)); /* tells the driver how much fits */
	assert_int_equal(got.len, 112);
}

static void test_affinity(void **state)
{
	struct ctrl c = fresh();
	cpu_set_t set, got;

	(void)state;
	CPU_ZERO(&set);
	CPU_SET(3, &set);
	CPU_ZERO(&got);
	wire.reply = &set;
	wire.reply_len = sizeof(set);
	wire.result[0] = -EINVAL;
	assert_int_equal(ctrl_get_queue_affinity(&c, 2, 7, &got), -EINVAL);
	assert_int_equal(CPU_COUNT(&got), 0);
	assert_int_equal(ctrl_get_queue_affinity(&c, 2, 7, &got), 0);
	sent(UBLK_U_CMD_GET_QUEUE_AFFINITY, 2, sizeof(set), 7);
	assert_true(CPU_EQUAL(&got, &set));
}

/* ---- information -------------------------------------------------------------------------- */

static void test_info(void **state)
{
	struct ublksrv_ctrl_dev_info known = { .dev_id = 12, .state = UBLK_S_DEV_LIVE }, got;
	struct ctrl c = fresh();
	const struct ublksrv_ctrl_cmd *h = &wire.cmd[0].hdr;

	(void)state;
	wire.reply = &known;
	wire.reply_len = sizeof(known);
	assert_int_equal(ctrl_get_dev_info(&c, 1048575, &got), 0);
	assert_int_equal(wire.count, 1);
	assert_int_equal(wire.cmd[0].op, UBLK_U_CMD_GET_DEV_INFO2);
	/* the path of the node in front of the buffer lets a device's owner ask, too */
	assert_string_equal(wire.path, "/dev/ublkc1048575");
	assert_true(h->dev_path_len > strlen("/dev/ublkc1048575"));
	assert_int_equal(h->len, h->dev_path_len + sizeof(known));
	assert_int_equal(h->dev_id, 1048575);
	assert_memory_equal(&got, &known, sizeof(got));
}

static void test_info_without_node(void **state)
{
	static const int errs[] = { ENOENT, EACCES, EINVAL, EOPNOTSUPP };
	struct ublksrv_ctrl_dev_info known = { .dev_id = 12 }, got;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(errs); i++) {
		struct ctrl c = fresh();

		wire.reply = &known;
		wire.reply_len = sizeof(known);
		wire.result[0] = -errs[i];
		memset(&got, 0, sizeof(got));
		assert_int_equal(ctrl_get_dev_info(&c, 12, &got), 0);
		assert_int_equal(wire.count, 2);
		sent(UBLK_U_CMD_GET_DEV_INFO, 12, sizeof(known), 0);
		assert_int_equal(wire.cmd[1].hdr.dev_path_len, 0);
		assert_int_equal(got.dev_id, 12);
	}
}

static void test_info_fails(void **state)
{
	static const struct {
		int first, second, want;
		unsigned int commands;
	} cases[] = {
		{ -ENODEV, 0, -ENODEV, 1 }, /* an answer: no such device */
		{ -ETIME, 0, -ETIME, 1 },   /* a second wait would be as long */
		/* the answer to the question that was in order */
		{ -EACCES, -EINVAL, -EACCES, 2 },
		{ -ENOENT, -ENODEV, -ENODEV, 2 },
	};
	struct ublksrv_ctrl_dev_info known = { .dev_id = 12 };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct ublksrv_ctrl_dev_info got = { .dev_id = 5 };
		struct ctrl c = fresh();

		wire.reply = &known;
		wire.reply_len = sizeof(known);
		wire.result[0] = cases[i].first;
		wire.result[1] = cases[i].second;
		unit_case("%d, then %d", cases[i].first, cases[i].second);
		unit_check(ctrl_get_dev_info(&c, 12, &got) == cases[i].want);
		unit_check(wire.count == cases[i].commands);
		unit_check(got.dev_id == 5);
	}
}

static void test_close(void **state)
{
	struct ctrl c = fresh(), none = { 0 };

	(void)state;
	ctrl_close(&c);
	assert_int_equal(wire.closed, 1);
	assert_ptr_equal(wire.priv, &token);
	ctrl_close(&c); /* once is enough, twice no harm; never opened neither */
	ctrl_close(&none);
	assert_int_equal(wire.closed, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain_commands), cmocka_unit_test(test_start),
		cmocka_unit_test(test_features),       cmocka_unit_test(test_add),
		cmocka_unit_test(test_params),	       cmocka_unit_test(test_affinity),
		cmocka_unit_test(test_info),	       cmocka_unit_test(test_info_without_node),
		cmocka_unit_test(test_info_fails),     cmocka_unit_test(test_close),
	};

	return cmocka_run_group_tests_name("ctrl", tests, NULL, NULL);
}
