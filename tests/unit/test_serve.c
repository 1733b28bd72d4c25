/* SPDX-License-Identifier: MIT */
/*
 * The server's ladder, with an error at every step: what is reported, and that each step is taken
 * back in reverse, the device deleted by a process that has closed it, with nothing left.
 * UNIT: tests/unit/world.o tests/unit/world_fake.o
 */
#include "unit.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "world.h"

/* Words of the trace up to each step; two queues have two sets of CPUs. */
#define T_OPEN "ns open"
#define T_ADD T_OPEN " add"
#define T_RECORD T_ADD " record"
#define T_PARAMS T_RECORD " params"
#define T_CPUS T_PARAMS " cpus cpus"
#define T_ENGINE T_CPUS " engine"
#define T_START T_ENGINE " start"
#define T_INFO T_START " info2"
/* and the way down from there */
#define U_ADD " del close"
#define U_RECORD " unlink del close"
#define U_CDEV " cdev" U_RECORD
#define U_ENGINE " finish" U_CDEV

/* What holds after every failure. */
static void check_undone(const char *trace)
{
	unit_check(!strcmp(world->trace, trace));
	unit_check(!strstr(world->trace, "stop"));
	unit_check(!world->fds_left[0]);
	unit_check(!world->child_left);
	unit_check(world_records() <= 0);
	/* the companion had nothing to do */
	unit_check(!strcmp(world->companion, "open ns root close"));
}

/* One server that fails: its only message, its result, its trace. */
static void fails(const struct dev_cfg *cfg, int err, const char *text, const char *trace)
{
	struct world_run run;
	struct daemon_msg m = { 0 }, more;

	world_start(cfg, false, &run);
	assert_true(world_message(&run, &m));
	/* when the caller hears of it, it is over */
	unit_case("%s: message %u %d '%s'; trace '%s' instead of '%s'; fds %s", text, m.kind, m.err,
		  m.text, world->trace, trace, world->fds_left);
	unit_check(m.kind == DAEMON_FAILED);
	unit_check(m.err == err);
	unit_check(!strcmp(m.text, text));
	unit_check(!strcmp(world->trace, trace));
	unit_check(!world_message(&run, &more));
	world_finish(&run);
	unit_case("%s: result %d, trace '%s', companion '%s', fds '%s', %d records", text,
		  world->result, world->trace, world->companion, world->fds_left, world_records());
	unit_check(world->result == -err);
	check_undone(trace);
}

/* Each errno at a step gives that errno, and a text with it at its end. */
static void step_fails(uint32_t what, const char *text, const char *trace)
{
	static const int errs[] = { EPERM, EINVAL, EBUSY, ENOMEM, EIO, EOPNOTSUPP };
	struct dev_cfg cfg = world_cfg();

	for (size_t i = 0; i < COUNT_OF(errs); i++) {
		char whole[FAIL_TEXT];

		/* tolerated: a machine with more CPUs than fit */
		if (what == UBLK_U_CMD_GET_QUEUE_AFFINITY && errs[i] == EINVAL)
			continue;
		world_again();
		world->plan.fail_op = what;
		world->plan.fail_err = errs[i];
		snprintf(whole, sizeof(whole), "%s: %s", text, strerror(errs[i]));
		fails(&cfg, errs[i], whole, trace);
		unit_check(strstr(trace, " del ") ? world->undo_timeout_ms >= 1000 : true);
	}
}

/* ---- commands --------------------------------------------------------------------------- */

static void test_no_control_device(void **state)
{
	(void)state;
	step_fails(STEP_CTRL_OPEN, "cannot open the control device (io_uring)", "ns open!");
}

static void test_add(void **state)
{
	struct dev_cfg cfg = world_cfg();

	(void)state;
	step_fails(UBLK_U_CMD_ADD_DEV, "cannot add a device", T_OPEN " add! close");
	world_again();
	world->plan.fail_op = UBLK_U_CMD_ADD_DEV;
	world->plan.fail_err = EEXIST;
	cfg.id = 17;
	fails(&cfg, EEXIST, "device id 17 is taken", T_OPEN " add! close");
}

static void test_params(void **state)
{
	(void)state;
	step_fails(UBLK_U_CMD_SET_PARAMS, "cannot set the parameters of device 0",
		   T_RECORD " params!" U_CDEV);
}

static void test_affinity(void **state)
{
	(void)state;
	step_fails(UBLK_U_CMD_GET_QUEUE_AFFINITY, "cannot get the CPUs of queue 0",
		   T_PARAMS " cpus!" U_CDEV);
}

static void test_engine(void **state)
{
	(void)state;
	step_fails(STEP_ENGINE, "I/O thread 1: cannot fake it", T_CPUS " engine!" U_CDEV);
}

static void test_start(void **state)
{
	struct dev_cfg cfg = world_cfg();

	(void)state;
	step_fails(UBLK_U_CMD_START_DEV, "cannot start device 0", T_ENGINE " start!" U_ENGINE);
	world_again();
	world->plan.fail_op = UBLK_U_CMD_START_DEV;
	world->plan.fail_err = ETIME;
	fails(&cfg, ETIME, "device 0 did not start in time", T_ENGINE " start!" U_ENGINE);
}

static void test_info(void **state)
{
	struct dev_cfg cfg = world_cfg();

	(void)state;
	/* asked for once more without the path of the node */
	step_fails(UBLK_U_CMD_GET_DEV_INFO, "cannot read back device 0",
		   T_START " info2! info!" U_ENGINE);
	world_again();
	world->plan.fail_op = UBLK_U_CMD_GET_DEV_INFO;
	world->plan.fail_err = ENODEV;
	fails(&cfg, ENODEV, "cannot read back device 0: No such device", T_START " info2!" U_ENGINE);
}

/* An undo that fails changes neither the reason nor the rest of the undo. */
static void test_undo_fails(void **state)
{
	struct dev_cfg cfg = world_cfg();

	(void)state;
	world->plan.fail_op = UBLK_U_CMD_START_DEV;
	world->plan.also_fail_op = UBLK_U_CMD_DEL_DEV;
	world->plan.fail_err = EBUSY;
	fails(&cfg, EBUSY,
	      "cannot start device 0: Device or resource busy; device 0 could not be deleted: "
	      "Device or resource busy",
	      T_ENGINE " start! finish cdev unlink del! close");
}

/* ---- flags that are not granted ----------------------------------------------------------- */

static void test_flags_dropped(void **state)
{
	struct dev_cfg cfg = world_cfg();

	(void)state;
	cfg.batch = true;
	world->plan.drop_at_add = UBLK_F_BATCH_IO;
	fails(&cfg, FAIL_UNSUPPORTED, "the driver did not grant UBLK_F_BATCH_IO for device 0",
	      T_ADD U_ADD);
	world_again();
	world->plan.drop_at_info = UBLK_F_BATCH_IO;
	fails(&cfg, FAIL_UNSUPPORTED, "the driver did not grant UBLK_F_BATCH_IO for device 0",
	      T_INFO U_ENGINE);
	world_again();
	cfg.batch = false;
	cfg.no_partscan = true;
	world->plan.drop_at_add = UBLK_F_NO_AUTO_PART_SCAN;
	fails(&cfg, FAIL_UNSUPPORTED,
	      "the driver did not grant UBLK_F_NO_AUTO_PART_SCAN for device 0", T_ADD U_ADD);
}

/* ---- files ------------------------------------------------------------------------------ */

static void test_no_record_folder(void **state)
{
	struct dev_cfg cfg = world_cfg();

	(void)state;
	assert_int_equal(world_remove("/run"), 0);
	fails(&cfg, ENOENT,
	      "cannot use the record directory /run/ublkctl: No such file or directory", T_ADD U_ADD);
	world_again();
	assert_int_equal(world_put("/run/ublkctl", "a file"), 0);
	fails(&cfg, ENOTDIR, "cannot use the record directory /run/ublkctl: Not a directory",
	      T_ADD U_ADD);
}

/* The record's name is taken by something that no file can replace. */
static void test_record_not_writable(void **state)
{
	struct dev_cfg cfg = world_cfg();
	char path[128];

	(void)state;
	snprintf(path, sizeof(path), "%s/run/ublkctl", world->root);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/run/ublkctl/0.json", world->root);
	assert_int_equal(mkdir(path, 0755), 0);
	{
		struct world_run run;
		struct daemon_msg m = { 0 };

		world_start(&cfg, false, &run);
		assert_true(world_message(&run, &m));
		world_finish(&run);
		assert_int_equal(m.kind, DAEMON_FAILED);
		assert_int_equal(m.err, EISDIR);
		assert_string_equal(m.text, "cannot write the record of device 0: Is a directory");
		assert_string_equal(world->trace, T_ADD " record!" U_ADD);
		assert_string_equal(world->fds_left, "");
		assert_int_equal(world_records(), 1); /* what stood there, no temporary file */
	}
}

/* The second writing of the record, when the device already runs. */
static void test_record_not_written_again(void **state)
{
	struct dev_cfg cfg = world_cfg();

	(void)state;
	world->plan.no_more_files = true;
	fails(&cfg, EFBIG, "cannot write the record of device 0: File too large", T_INFO U_ENGINE);
}

static void test_no_char_device(void **state)
{
	struct dev_cfg cfg = world_cfg();
	char path[128], text[FAIL_TEXT];

	(void)state;
	assert_int_equal(world_remove("/dev/ublkc0"), 0);
	snprintf(path, sizeof(path), "%s/dev/ublkc0", world->root);
	snprintf(text, sizeof(text), "cannot open %s: No such file or directory", path);
	fails(&cfg, ENOENT, text, T_RECORD U_RECORD);
	world_again();
	assert_int_equal(world_remove("/dev/ublkc0"), 0);
	snprintf(path, sizeof(path), "%s/dev/ublkc0", world->root);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(text, sizeof(text), "cannot open %s: Is a directory", path);
	cfg.timeout_s = 3600; /* no reason to wait */
	fails(&cfg, EISDIR, text, T_RECORD U_RECORD);
}

/* ---- the caller has gone ------------------------------------------------------------------ */

static void test_caller_gone(void **state)
{
	struct dev_cfg cfg = world_cfg();
	struct world_run run;
	int status;

	(void)state;
	world->plan.caller_goes = true;
	world_start(&cfg, false, &run);
	assert_int_equal(waitpid(run.pid, &status, WUNTRACED), run.pid);
	assert_true(WIFSTOPPED(status));
	close(run.report);
	run.report = -1;
	assert_int_equal(kill(run.pid, SIGCONT), 0);
	world_finish(&run);
	unit_case("trace '%s', fds '%s'", world->trace, world->fds_left);
	assert_int_equal(world->result, -EPIPE);
	check_undone(T_INFO " record" U_ENGINE);
}

/* It goes while something fails: nobody hears of it, the undo is the same. */
static void test_caller_gone_and_error(void **state)
{
	struct dev_cfg cfg = world_cfg();
	struct world_run run;
	int status;

	(void)state;
	world->plan.caller_goes = true;
	world->plan.fail_op = UBLK_U_CMD_GET_DEV_INFO;
	world->plan.fail_err = EIO;
	world_start(&cfg, false, &run);
	assert_int_equal(waitpid(run.pid, &status, WUNTRACED), run.pid);
	close(run.report);
	run.report = -1;
	assert_int_equal(kill(run.pid, SIGCONT), 0);
	world_finish(&run);
	unit_case("trace '%s', fds '%s'", world->trace, world->fds_left);
	assert_int_equal(world->result, -EIO);
	check_undone(T_START " info2! info!" U_ENGINE);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_no_control_device),
		TEST(test_add),
		TEST(test_params),
		TEST(test_affinity),
		TEST(test_engine),
		TEST(test_start),
		TEST(test_info),
		TEST(test_undo_fails),
		TEST(test_flags_dropped),
		TEST(test_no_record_folder),
		TEST(test_record_not_writable),
		TEST(test_record_not_written_again),
		TEST(test_no_char_device),
		TEST(test_caller_gone),
		TEST(test_caller_gone_and_error),
	};

	alarm(200); /* a server that hangs ends the test */
	return cmocka_run_group_tests_name("serve", tests, NULL, NULL);
}
