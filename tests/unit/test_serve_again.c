/* SPDX-License-Identifier: MIT */
/*
 * A device outlives its server: what a server leaves when its device is taken from it or stopped, the
 * way up of the next one, and that a next one that fails leaves the device as it was.
 * UNIT: tests/unit/world.o tests/unit/world_fake.o
 */
#include "unit.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/iobuf.h"
#include "world.h"

#define FIRST "ns open add record params cpus cpus engine start info2 record root finish info2"
#define T_ADOPT "ns open info2"
#define T_RECOVERY T_ADOPT " recovery"
#define T_OPENED " info2"
#define T_ENGINE T_OPENED " cpus cpus engine"

static struct record rec;

static void read_record(void)
{
	int dir = rec_open_dir(false);

	assert_true(dir >= 0);
	assert_int_equal(rec_read(dir, WORLD_ID, &rec), 0);
	close(dir);
}

/* One server, from start to the end that the caller chooses. */
static void first_server(void (*end)(void), const char *rest)
{
	struct dev_cfg cfg = world_cfg();
	struct world_run run;
	struct daemon_msg m;
	char whole[WORLD_TRACE];

	world_again();
	cfg.recovery = RECOVERY_QUEUE;
	world_start(&cfg, false, &run);
	assert_true(world_message(&run, &m));
	assert_int_equal(m.kind, DAEMON_READY);
	read_record();
	end();
	world_finish(&run);
	snprintf(whole, sizeof(whole), FIRST "%s", rest);
	assert_string_equal(world->trace, whole);
	assert_int_equal(world->result, 0);
}

static void stop_as_told(void)
{
	int dir = rec_open_dir(false);

	assert_true(dir >= 0);
	rec.stopped = true;
	assert_int_equal(rec_write(dir, &rec), 0);
	close(dir);
	world_end_device();
}

/* The next server; its trace begins anew. */
static void start_next(enum serve_how how, struct world_run *run)
{
	rec.cfg.target = "null";
	rec.cfg.null_data = rec.null_data;
	rec.cfg.recovery = RECOVERY_QUEUE;
	rec.cfg.timeout_s = 5;
	world->trace[0] = world->companion[0] = '\0';
	world->finished = false;
	world->plan.how = how;
	world->plan.known = &rec;
	world_start(&rec.cfg, false, run);
}

static void next_works(enum serve_how how, const char *trace)
{
	struct record before = rec, now;
	struct world_run run;
	struct daemon_msg m;

	start_next(how, &run);
	assert_true(world_message(&run, &m));
	unit_case("'%s', trace '%s'", m.text, world->trace);
	unit_check(m.kind == DAEMON_READY);
	read_record();
	now = rec;
	unit_check(now.cookie == before.cookie);
	unit_check(!strcmp(now.created, before.created));
	unit_check(now.pid == run.pid && now.pid != before.pid);
	unit_check(!now.stopped);
	unit_check(!strcmp(now.recovery, "queue"));
	unit_check(world->start_pid == run.pid);
	world_end_device();
	world_finish(&run);
	assert_string_equal(world->trace, trace);
	assert_int_equal(world->result, 0);
	assert_int_equal(world_records(), 0);
	assert_string_equal(world->fds_left, "");
}

static void next_fails(enum serve_how how, uint32_t what, const char *text, const char *trace)
{
	char before[4096], after[4096];
	struct world_run run;
	struct daemon_msg m;
	char *json = rec_to_json(&rec);

	world->plan.fail_op = what;
	world->plan.fail_err = EPERM;
	snprintf(before, sizeof(before), "%s", json);
	free(json);
	start_next(how, &run);
	assert_true(world_message(&run, &m));
	unit_case("'%s' instead of '%s', trace '%s' instead of '%s'", m.text, text, world->trace,
		  trace);
	unit_check(m.kind == DAEMON_FAILED);
	unit_check(!strcmp(m.text, text));
	world_finish(&run);
	unit_check(!strcmp(world->trace, trace));
	unit_check(world->result == -EPERM);
	unit_check(!world->fds_left[0]);
	unit_check(!world->child_left);
	/* neither device nor record is touched */
	read_record();
	json = rec_to_json(&rec);
	snprintf(after, sizeof(after), "%s", json);
	free(json);
	unit_check(!strcmp(before, after));
	world->plan.fail_op = 0;
}

static void test_quiesced(void **state)
{
	(void)state;
	first_server(world_quiesce, " cdev close");
	assert_int_equal(world_records(), 1);
	next_works(SERVE_RECOVER, T_RECOVERY T_ENGINE
		   " recovered info2 record root finish info2 unlink cdev close");
}

static void test_recovery_is_waited_for(void **state)
{
	(void)state;
	first_server(world_quiesce, " cdev close");
	world->plan.busy_times = 3;
	next_works(SERVE_RECOVER, T_ADOPT
		   " recovery recovery recovery recovery" T_ENGINE
		   " recovered info2 record root finish info2 unlink cdev close");
}

static void test_stopped(void **state)
{
	(void)state;
	first_server(stop_as_told, " cdev close");
	assert_int_equal(world_records(), 1);
	next_works(SERVE_START, T_ADOPT T_OPENED
		   " params cpus cpus engine start info2 record root finish info2 unlink cdev close");
}

static void ask_to_leave(void)
{
	while (!strstr(world->trace, " root"))
		usleep(1000);
	kill(world->server, SERVE_SIG_LEAVE);
}

/* `quiesce` asks the server. */
static void test_asked_to_leave(void **state)
{
	struct dev_cfg cfg = world_cfg();
	struct world_run run;
	struct daemon_msg m;

	(void)state;
	world_again();
	world_start(&cfg, false, &run);
	assert_true(world_message(&run, &m));
	read_record();
	ask_to_leave();
	world_finish(&run);
	assert_string_equal(world->trace,
			    "ns open add record params cpus cpus engine start info2 record root leave "
			    "finish info2 cdev close");
	assert_int_equal(world_records(), 1);
	/* its companion has nothing to do */
	assert_string_equal(world->companion, "open ns root close");
}

/* Nobody said `stop`: the record of a device that was deleted goes. */
static void test_deleted(void **state)
{
	(void)state;
	first_server(world_end_device, " unlink cdev close");
	assert_int_equal(world_records(), 0);
}

static void test_failures(void **state)
{
	(void)state;
	first_server(world_quiesce, " cdev close");
	next_fails(SERVE_RECOVER, UBLK_U_CMD_GET_DEV_INFO,
		   "cannot look at device 0: Operation not permitted", "ns open info2! info! close");
	next_fails(SERVE_RECOVER, UBLK_U_CMD_START_USER_RECOVERY,
		   "cannot recover device 0: Operation not permitted", T_ADOPT " recovery! close");
	next_fails(SERVE_RECOVER, STEP_ENGINE, "I/O thread 1: cannot fake it: Operation not permitted",
		   T_RECOVERY T_ENGINE "! cdev close");
	next_fails(SERVE_RECOVER, UBLK_U_CMD_END_USER_RECOVERY,
		   "cannot recover device 0: Operation not permitted",
		   T_RECOVERY T_ENGINE " recovered! finish cdev close");
	world->ended = true;
	next_fails(SERVE_START, UBLK_U_CMD_SET_PARAMS,
		   "cannot set the parameters of device 0: Operation not permitted",
		   T_ADOPT T_OPENED " params! cdev close");
	next_fails(SERVE_START, UBLK_U_CMD_START_DEV, "cannot start device 0: Operation not permitted",
		   T_ADOPT T_OPENED " params cpus cpus engine"
				    " start! finish cdev close");
}

/* The id is another device's by now. */
static void test_another_device(void **state)
{
	struct world_run run;
	struct daemon_msg m;

	(void)state;
	first_server(world_quiesce, " cdev close");
	world->added.ublksrv_flags++;
	start_next(SERVE_RECOVER, &run);
	assert_true(world_message(&run, &m));
	assert_string_equal(m.text, "device 0 is gone");
	assert_int_equal(m.err, ENODEV);
	world_finish(&run);
	assert_string_equal(world->trace, T_ADOPT " close");
}

/* The world's disk has no queue: that is said with the good news, and only where a disk is new. */
static void test_queue_settings(void **state)
{
	static const struct {
		void (*end)(void);
		const char *rest;
		enum serve_how how;
		const char *text;
	} cases[] = {
		{ stop_as_told, " cdev close", SERVE_START,
		  "queue/scheduler is not set to none: No such file or directory; "
		  "queue/nomerges is not set to 2: No such file or directory" },
		{ world_quiesce, " cdev close", SERVE_RECOVER, "" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct world_run run;
		struct daemon_msg m;

		first_server(cases[i].end, cases[i].rest);
		rec.cfg.scheduler = "none";
		rec.cfg.queue_attr = "nomerges=2";
		start_next(cases[i].how, &run);
		assert_true(world_message(&run, &m));
		assert_int_equal(m.kind, DAEMON_READY);
		assert_string_equal(m.text, cases[i].text);
		read_record();
		assert_string_equal(rec.scheduler, "none");
		assert_string_equal(rec.queue_attr, "nomerges=2");
		world_end_device();
		world_finish(&run);
	}
}

/* How it is served comes from the record; what was got for it is written there. */
static void test_io_settings(void **state)
{
	static const struct {
		enum huge_pages got;
		const char *text, *word;
	} cases[] = {
		{ HUGE_TRANSPARENT, "", "transparent" },
		{ HUGE_NONE,
		  "no huge pages for I/O buffers: too few are reserved (vm.nr_hugepages), and transparent ones are off",
		  "none" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct world_run run;
		struct daemon_msg m;

		first_server(world_quiesce, " cdev close");
		rec.cfg.hugepages = true;
		rec.cfg.poll_us = 50;
		world->plan.huge = cases[i].got;
		start_next(SERVE_RECOVER, &run);
		assert_true(world_message(&run, &m));
		assert_int_equal(m.kind, DAEMON_READY);
		assert_string_equal(m.text, cases[i].text);
		assert_true(world->eng.huge_bufs);
		assert_int_equal(world->eng.poll_us, 50);
		read_record();
		assert_string_equal(rec.hugepages, cases[i].word);
		assert_int_equal(rec.cfg.poll_us, 50);
		world_end_device();
		world_finish(&run);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_quiesced),	   TEST(test_recovery_is_waited_for),
		TEST(test_stopped),	   TEST(test_asked_to_leave),
		TEST(test_deleted),	   TEST(test_failures),
		TEST(test_another_device), TEST(test_queue_settings),
		TEST(test_io_settings),
	};

	alarm(200); /* a server that hangs ends the test */
	return cmocka_run_group_tests_name("serve_again", tests, NULL, NULL);
}
