/* SPDX-License-Identifier: MIT */
/*
 * A server that gets ready: what it asks for, what it tells, how it ends; in the foreground too.
 * UNIT: tests/unit/world.o tests/unit/world_fake.o
 */
#include "unit.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev/record.h"
#include "serve.h"
#include "util/fs.h"
#include "version.h"
#include "world.h"

#define READY "ns open add record params cpus cpus engine start info2 record"
#define RUNNING READY " root"
#define ENDED RUNNING " finish info2 unlink cdev close"
/* by a signal: there is nothing to ask */
#define DELETED RUNNING " finish unlink cdev close"

static void start_ready(const struct dev_cfg *cfg, struct world_run *run, struct daemon_msg *m)
{
	world_start(cfg, false, run);
	assert_true(world_message(run, m));
	unit_case("message %u %d '%s', trace '%s'", m->kind, m->err, m->text, world->trace);
	unit_check(m->kind == DAEMON_READY);
}

static void finish_clean(struct world_run *run, const char *trace)
{
	world_finish(run);
	unit_case("result %d, trace '%s' instead of '%s', companion '%s', fds '%s'", world->result,
		  world->trace, trace, world->companion, world->fds_left);
	unit_check(!strcmp(world->trace, trace));
	unit_check(!strstr(world->trace, "stop"));
}

/* ---- background ------------------------------------------------------------------------- */

static void test_life(void **state)
{
	struct dev_cfg cfg = world_cfg();
	struct world_run run;
	struct daemon_msg m;

	(void)state;
	start_ready(&cfg, &run, &m);
	assert_int_equal(m.id, WORLD_ID);
	assert_string_equal(m.text, "");
	/* nothing more is said, and the pipe does not keep the caller waiting */
	assert_false(world_message(&run, &m));
	world_end_device();
	finish_clean(&run, ENDED);
	assert_int_equal(world->result, 0);
	assert_int_equal(world_records(), 0);
	assert_string_equal(world->companion, "open ns root close");
	assert_false(world->child_left);
	assert_string_equal(world->fds_left, "");
}

static void test_what_is_asked_for(void **state)
{
	struct dev_cfg cfg = world_cfg();
	struct world_run run;
	struct daemon_msg m;
	const struct ublk_param_basic *b = &world->params.basic;

	(void)state;
	cfg.id = 0;
	cfg.read_only = true;
	cfg.no_partscan = true;
	cfg.block_size = 4096;
	cfg.phys_block_size = 8192;
	start_ready(&cfg, &run, &m);
	assert_int_equal(world->added.dev_id, 0);
	assert_int_equal(world->added.nr_hw_queues, 2);
	assert_int_equal(world->added.queue_depth, 64);
	assert_int_equal(world->added.max_io_buf_bytes, 512 * 1024);
	assert_int_equal(world->added.ublksrv_pid, run.pid);
	assert_true(world->added.flags == (UBLK_F_CMD_IOCTL_ENCODE | UBLK_F_NO_AUTO_PART_SCAN));
	assert_int_equal(world->start_pid, run.pid);
	assert_int_equal(world->params.len, sizeof(struct ublk_params));
	assert_int_equal(world->params.types, UBLK_PARAM_TYPE_BASIC | UBLK_PARAM_TYPE_DISCARD);
	assert_int_equal(b->attrs, UBLK_ATTR_READ_ONLY);
	assert_int_equal(b->logical_bs_shift, 12);
	assert_int_equal(b->physical_bs_shift, 13);
	assert_int_equal(b->max_sectors, 1024);
	assert_true(b->dev_sectors == (1 << 30) / 512);
	assert_int_equal(world->eng.queues, 2);
	assert_int_equal(world->eng.depth, 64);
	assert_int_equal(world->eng.threads, 2);
	assert_int_equal(world->eng.max_io, 512 * 1024);
	assert_false(world->eng.batch);
	assert_true(world->eng_has_cdev);
	assert_int_equal(world->affinity_cpus, 1);
	world_end_device();
	finish_clean(&run, ENDED);
}

static void test_wanted_flags(void **state)
{
	struct dev_cfg cfg = world_cfg();

	(void)state;
	assert_true(serve_wanted_flags(&cfg) == UBLK_F_CMD_IOCTL_ENCODE);
	cfg.batch = true;
	assert_true(serve_wanted_flags(&cfg) == (UBLK_F_CMD_IOCTL_ENCODE | UBLK_F_BATCH_IO));
}

static void test_record(void **state)
{
	struct dev_cfg cfg = world_cfg();
	struct world_run run;
	struct daemon_msg m;
	struct record rec;
	int dir;

	(void)state;
	start_ready(&cfg, &run, &m);
	dir = rec_open_dir(false);
	assert_true(dir >= 0);
	assert_int_equal(rec_read(dir, WORLD_ID, &rec), 0);
	assert_int_equal(world_records(), 1);
	assert_int_equal(rec.cfg.id, WORLD_ID); /* the driver's choice */
	assert_int_equal(rec.cfg.queues, 2);
	assert_int_equal(rec.cfg.depth, 64);
	assert_int_equal(rec.cfg.threads, 2);
	assert_true(rec.cfg.size == 1 << 30);
	assert_string_equal(rec.target, "null");
	assert_string_equal(rec.version, UBLKCTL_VERSION);
	assert_int_equal(rec.pid, run.pid);
	assert_true(rec.pid_start && rec.pid_start == fs_pid_start(run.pid));
	assert_true(rec_server_alive(&rec));
	/* what tells this device from the next one with its id */
	assert_true(rec.cookie && rec.cookie == world->added.ublksrv_flags);
	assert_int_equal(strlen(rec.created), strlen("2026-01-02T03:04:05Z"));
	assert_int_equal(rec.created[19], 'Z');
	close(dir);
	world_end_device();
	finish_clean(&run, ENDED);
}

/* A device that lost its threads is still there: so is its record. */
static void test_engine_fails(void **state)
{
	struct dev_cfg cfg = world_cfg();
	struct world_run run;
	struct daemon_msg m;

	(void)state;
	world->plan.fail_op = STEP_ENGINE_END;
	world->plan.fail_err = ENOLINK;
	start_ready(&cfg, &run, &m);
	world_end_device();
	finish_clean(&run, RUNNING " finish! cdev close");
	assert_int_equal(world->result, -ENOLINK);
	assert_int_equal(world_records(), 1);
	assert_string_equal(world->fds_left, "");
	assert_string_equal(world->companion, "open ns root close");
}

/* ---- what the driver gives instead -------------------------------------------------------- */

static void test_lowered(void **state)
{
	struct dev_cfg cfg = world_cfg();
	struct world_run run;
	struct daemon_msg m;
	struct record rec;
	int dir;

	(void)state;
	world->plan.queues = 1;
	world->plan.depth = 32;
	world->plan.max_io = 65536;
	start_ready(&cfg, &run, &m);
	assert_non_null(strstr(m.text, "granted 1 of 2 queues"));
	assert_non_null(strstr(m.text, "a depth of 32, not 64"));
	assert_int_equal(world->eng.queues, 1);
	assert_int_equal(world->eng.depth, 32);
	assert_int_equal(world->eng.threads, 1); /* one per queue on the per-I/O path */
	assert_int_equal(world->eng.max_io, 65536);
	assert_int_equal(world->params.basic.max_sectors, 128);
	dir = rec_open_dir(false);
	assert_int_equal(rec_read(dir, WORLD_ID, &rec), 0);
	assert_int_equal(rec.cfg.queues, 1);
	assert_int_equal(rec.cfg.depth, 32);
	assert_int_equal(rec.cfg.threads, 1);
	assert_true(rec.cfg.max_io == 65536);
	close(dir);
	world_end_device();
	finish_clean(&run, "ns open add record params cpus engine start info2 record root finish info2 "
			   "unlink cdev close");
}

static void test_lowered_one(void **state)
{
	struct dev_cfg cfg = world_cfg();
	struct world_run run;
	struct daemon_msg m;

	(void)state;
	cfg.batch = true;
	cfg.threads = 5;
	world->plan.depth = 16;
	start_ready(&cfg, &run, &m);
	assert_string_equal(m.text, "the driver granted a depth of 16, not 64");
	assert_int_equal(world->eng.threads, 5); /* any number on the batch path */
	assert_true(world->eng.batch);
	world_end_device();
	finish_clean(&run, ENDED);
	world_again();
	cfg.batch = false;
	cfg.threads = 2;
	world->plan.queues = 1;
	start_ready(&cfg, &run, &m);
	assert_string_equal(m.text, "the driver granted 1 of 2 queues");
	world_end_device();
	world_finish(&run);
}

/* Steps that are allowed to fail. */
static void test_tolerated(void **state)
{
	static const struct {
		uint32_t op;
		int err;
		const char *trace;
	} cases[] = {
		{ STEP_NAMESPACE, EPERM,
		  /* in somebody else's namespace it would be everybody's root */
		  "ns! open add record params cpus cpus engine start info2 record finish info2 "
		  "unlink cdev close" },
		{ STEP_ROOT, EPERM, READY " root! finish info2 unlink cdev close" },
		/* more CPUs than fit: the threads keep theirs */
		{ UBLK_U_CMD_GET_QUEUE_AFFINITY, EINVAL,
		  "ns open add record params cpus! cpus! engine start info2 record root finish info2 "
		  "unlink cdev close" },
	};
	struct dev_cfg cfg = world_cfg();

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct world_run run;
		struct daemon_msg m;

		world_again();
		world->plan.fail_op = cases[i].op;
		world->plan.fail_err = cases[i].err;
		start_ready(&cfg, &run, &m);
		world_end_device();
		finish_clean(&run, cases[i].trace);
		assert_int_equal(world->result, 0);
		assert_int_equal(world->affinity_cpus, cases[i].err == EINVAL ? 0 : 1);
	}
}

/* udev makes the node some time after ADD_DEV: the server waits for it. */
static void test_late_node(void **state)
{
	struct dev_cfg cfg = world_cfg();
	struct world_run run;
	struct daemon_msg m;

	(void)state;
	cfg.timeout_s = 3600;
	assert_int_equal(world_remove("/dev/ublkc0"), 0);
	world_start(&cfg, false, &run);
	/* what is before it is done meanwhile */
	while (world_records() < 1)
		sched_yield();
	assert_int_equal(world_put("/dev/ublkc0", ""), 0);
	assert_true(world_message(&run, &m));
	assert_int_equal(m.kind, DAEMON_READY);
	assert_true(world->eng_has_cdev);
	world_end_device();
	finish_clean(&run, ENDED);
}

/* ---- signals ---------------------------------------------------------------------------- */

/* The companion deletes the device, never the server; and the server ends as always. */
static void test_signals(void **state)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP };
	struct dev_cfg cfg = world_cfg();

	(void)state;
	for (size_t i = 0; i < COUNT_OF(signals); i++) {
		struct world_run run;
		struct daemon_msg m;

		world_again();
		start_ready(&cfg, &run, &m);
		assert_int_equal(kill(run.pid, signals[i]), 0);
		finish_clean(&run, DELETED);
		assert_int_equal(world->result, 0);
		assert_string_equal(world->companion, "open ns root info2 stop info2 del close");
		assert_int_equal(world_records(), 0);
		assert_string_equal(world->fds_left, "");
	}
}

/* Somebody was faster, and the id is another device's by now. */
static void test_id_reused(void **state)
{
	struct dev_cfg cfg = world_cfg();
	struct world_run run;
	struct daemon_msg m;

	(void)state;
	world->plan.id_reused = true;
	start_ready(&cfg, &run, &m);
	assert_int_equal(kill(run.pid, SIGTERM), 0);
	while (!strstr(world->companion, "info2 info2"))
		sched_yield();
	world_end_device();
	finish_clean(&run, DELETED);
	assert_string_equal(world->companion, "open ns root info2 info2 close");
}

/* Signals from before the device is ready wait, and all of them ask for one thing. */
static void test_early_signals(void **state)
{
	struct dev_cfg cfg = world_cfg();
	struct world_run run;
	struct daemon_msg m;

	(void)state;
	world->plan.signals[0] = SIGTERM;
	world->plan.signals[1] = SIGINT;
	start_ready(&cfg, &run, &m);
	finish_clean(&run, DELETED);
	assert_int_equal(world->result, 0);
	assert_string_equal(world->companion, "open ns root info2 stop info2 del close");
}

/* A service manager, or Ctrl-C, signals both: the companion is there for it all the same. */
static void test_signals_to_both(void **state)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP };
	struct dev_cfg cfg = world_cfg();

	(void)state;
	for (size_t i = 0; i < COUNT_OF(signals); i++) {
		struct world_run run;
		struct daemon_msg m;

		world_again();
		start_ready(&cfg, &run, &m);
		while (!world->companion_pid)
			sched_yield();
		assert_int_equal(kill(world->companion_pid, signals[i]), 0);
		assert_int_equal(kill(run.pid, signals[i]), 0);
		finish_clean(&run, DELETED);
		assert_string_equal(world->companion, "open ns root info2 stop info2 del close");
	}
}

/* ---- foreground ------------------------------------------------------------------------- */

static void test_foreground(void **state)
{
	struct dev_cfg cfg = world_cfg();
	struct world_run run;

	(void)state;
	world->plan.queues = 1;
	world_start(&cfg, true, &run);
	assert_string_equal(world_read(run.out, "\n"), "/dev/ublkb0\n");
	world_end_device();
	assert_string_equal(world_read(run.out, NULL), ""); /* and nothing else */
	assert_string_equal(world_errors(run.err), "ublkctl: the driver granted 1 of 2 queues\n");
	world_finish(&run);
	assert_int_equal(world->result, 0);
	assert_string_equal(world->fds_left, "");
}

static void test_foreground_fails(void **state)
{
	struct dev_cfg cfg = world_cfg();
	struct world_run run;

	(void)state;
	world->plan.fail_op = UBLK_U_CMD_START_DEV;
	world->plan.fail_err = EINVAL;
	world_start(&cfg, true, &run);
	assert_string_equal(world_read(run.out, NULL), "");
	assert_string_equal(world_errors(run.err),
			    "ublkctl: cannot start device 0: Invalid argument\n");
	world_finish(&run);
	assert_int_equal(world->result, -EINVAL);
	assert_string_equal(world->fds_left, "");
	assert_int_equal(world_records(), 0);
}

/* Nobody can read the path: nobody would know of the device. */
static void test_foreground_without_stdout(void **state)
{
	struct dev_cfg cfg = world_cfg();
	struct world_run run;
	int status;

	(void)state;
	world->plan.caller_goes = true;
	world_start(&cfg, true, &run);
	assert_int_equal(waitpid(run.pid, &status, WUNTRACED), run.pid);
	assert_true(WIFSTOPPED(status));
	close(run.out);
	assert_int_equal(kill(run.pid, SIGCONT), 0);
	assert_non_null(strstr(world_read(run.err, NULL), "nobody waits for it"));
	run.out = dup(run.err);
	finish_clean(&run, READY " finish cdev unlink del close");
	assert_int_equal(world->result, -EPIPE);
	assert_int_equal(world_records(), 0);
}

/* The companion could not do its work: the user is told how to go on, the device stays. */
static void test_no_companion(void **state)
{
	struct dev_cfg cfg = world_cfg();
	struct world_run run;

	(void)state;
	world->plan.fail_op = STEP_COMPANION_OPEN;
	world->plan.fail_err = EMFILE;
	world->plan.wait_companion = true;
	world_start(&cfg, true, &run);
	assert_string_equal(world_read(run.out, "\n"), "/dev/ublkb0\n");
	assert_int_equal(kill(run.pid, SIGTERM), 0);
	assert_non_null(strstr(world_read(run.err, "no companion process"), "no companion process"));
	assert_int_equal(world_records(), 1);
	world_end_device();
	finish_clean(&run, ENDED);
	assert_string_equal(world->companion, "open!");
	assert_int_equal(world->result, 0);
}

static void test_flusher(void **state)
{
	struct dev_cfg cfg = world_cfg();
	struct world_run run;

	(void)state;
	world->plan.flusher_errno = EPERM;
	world_start(&cfg, true, &run);
	assert_string_equal(world_read(run.out, "\n"), "/dev/ublkb0\n");
	world_end_device();
	assert_non_null(strstr(world_read(run.err, NULL),
			       "no I/O flushers (Operation not permitted)"));
	world_finish(&run);
	assert_int_equal(world->result, 0);
}

static void test_notify(void **state)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct dev_cfg cfg = world_cfg();
	struct world_run run;
	char text[64] = "";

	(void)state;
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/notify", world->root);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	setenv("NOTIFY_SOCKET", sa.sun_path, 1);
	world_start(&cfg, true, &run);
	unsetenv("NOTIFY_SOCKET");
	assert_int_equal(recv(fd, text, sizeof(text), 0), 7);
	assert_memory_equal(text, "READY=1", 7);
	/* not before the device is there */
	assert_non_null(strstr(world->trace, READY));
	world_end_device();
	world_finish(&run);
	assert_string_equal(world->fds_left, "");
	assert_true(recv(fd, text, sizeof(text), MSG_DONTWAIT) < 0); /* once */
	close(fd);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_life),
		TEST(test_what_is_asked_for),
		TEST(test_wanted_flags),
		TEST(test_record),
		TEST(test_engine_fails),
		TEST(test_lowered),
		TEST(test_lowered_one),
		TEST(test_tolerated),
		TEST(test_late_node),
		TEST(test_signals),
		TEST(test_id_reused),
		TEST(test_early_signals),
		TEST(test_signals_to_both),
		TEST(test_foreground),
		TEST(test_foreground_fails),
		TEST(test_foreground_without_stdout),
		TEST(test_no_companion),
		TEST(test_flusher),
		TEST(test_notify),
	};

	alarm(200); /* a server that hangs ends the test */
	return cmocka_run_group_tests_name("serve_run", tests, NULL, NULL);
}
