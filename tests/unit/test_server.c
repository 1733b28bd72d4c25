/* SPDX-License-Identifier: MIT */
/*
 * What /proc tells of a server, from files as the kernel writes them.
 */
#include "unit.h"

#include <errno.h>
#include <string.h>

#include "cfg.h"
#include "dev/server.h"
#include "tmpdir.h"

#define PID 4242

struct ctx {
	char root[64];
	int dir;
};

static void make_dir(struct ctx *c, const char *path)
{
	assert_int_equal(mkdirat(c->dir, path, 0755), 0);
}

static void put(struct ctx *c, const char *name, const char *text)
{
	tmpdir_put(c->dir, name, text, strlen(text));
}

static int setup(void **state)
{
	static struct ctx c;

	tmpdir_make(c.root);
	c.dir = open(c.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (c.dir < 0)
		return -1;
	setenv("UBLKCTL_SYSROOT", c.root, 1);
	make_dir(&c, "proc");
	make_dir(&c, "proc/4242");
	make_dir(&c, "proc/4242/task");
	*state = &c;
	return 0;
}

static int teardown(void **state)
{
	struct ctx *c = *state;

	unsetenv("UBLKCTL_SYSROOT");
	close(c->dir);
	tmpdir_remove(c->root);
	return 0;
}

static void put_thread(struct ctx *c, int tid, const char *comm, unsigned int flags, const char *cpus)
{
	char name[64], text[256];

	snprintf(name, sizeof(name), "proc/4242/task/%d", tid);
	make_dir(c, name);
	snprintf(name, sizeof(name), "proc/4242/task/%d/stat", tid);
	snprintf(text, sizeof(text),
		 "%d (%s) S 1 4242 4242 0 -1 %u 31 0 0 0 0 0 0 0 20 0 4 0 77 0\n", tid, comm, flags);
	put(c, name, text);
	if (!cpus)
		return;
	snprintf(name, sizeof(name), "proc/4242/task/%d/status", tid);
	snprintf(text, sizeof(text), "Name:\t%s\nCpus_allowed:\tff\nCpus_allowed_list:\t%s\n", comm,
		 cpus);
	put(c, name, text);
}

static void test_process(void **state)
{
	struct ctx *c = *state;
	struct srv_proc p;

	assert_int_equal(srv_read(PID, &p), -ESRCH);
	assert_int_equal(srv_read(0, &p), -ESRCH);
	assert_int_equal(srv_read(-1, &p), -ESRCH);
	put(c, "proc/4242/status",
	    "Name:\tublkctl\nUmask:\t0022\nState:\tT (stopped)\nVmLck:\t     512 kB\n"
	    "VmRSS:\t    2048 kB\nThreads:\t5\n");
	put(c, "proc/4242/oom_score_adj", "-1000\n");
	assert_int_equal(srv_read(PID, &p), 0);
	assert_int_equal(p.pid, PID);
	assert_int_equal(p.state, 'T');
	assert_int_equal(p.locked, 512 * 1024);
	assert_int_equal(p.rss, 2048 * 1024);
	assert_int_equal(p.threads, 5);
	assert_true(p.has_oom_adj);
	assert_int_equal(p.oom_adj, -1000);
	assert_int_equal(p.own_ns, -1);
}

/* No lines about memory, and no right to look at the rest. */
static void test_zombie(void **state)
{
	struct ctx *c = *state;
	struct srv_proc p;

	put(c, "proc/4242/status", "Name:\tVmLck:\nState:\tZ (zombie)\nThreads:\t1\n");
	assert_int_equal(srv_read(PID, &p), 0);
	assert_int_equal(p.state, 'Z');
	assert_int_equal(p.locked, -1);
	assert_int_equal(p.rss, -1);
	assert_false(p.has_oom_adj);
}

static void test_namespace(void **state)
{
	struct ctx *c = *state;
	struct srv_proc p;

	put(c, "proc/4242/status", "State:\tS (sleeping)\n");
	make_dir(c, "proc/4242/ns");
	make_dir(c, "proc/1");
	make_dir(c, "proc/1/ns");
	assert_int_equal(symlinkat("mnt:[4026531841]", c->dir, "proc/1/ns/mnt"), 0);
	assert_int_equal(srv_read(PID, &p), 0);
	assert_int_equal(p.own_ns, -1);
	assert_int_equal(symlinkat("mnt:[4026532999]", c->dir, "proc/4242/ns/mnt"), 0);
	assert_int_equal(srv_read(PID, &p), 0);
	assert_int_equal(p.own_ns, 1);
	assert_int_equal(unlinkat(c->dir, "proc/4242/ns/mnt", 0), 0);
	assert_int_equal(symlinkat("mnt:[4026531841]", c->dir, "proc/4242/ns/mnt"), 0);
	assert_int_equal(srv_read(PID, &p), 0);
	assert_int_equal(p.own_ns, 0);
}

static void test_threads(void **state)
{
	struct ctx *c = *state;
	struct srv_thread *t = NULL;
	size_t n = 99;

	assert_int_equal(srv_threads(77, 3, &t, &n), -ESRCH);
	assert_int_equal(srv_threads(PID, 3, &t, &n), 0);
	assert_int_equal(n, 0);
	free(t);
	put_thread(c, 4242, "ublkctl", 0x400100, "0-7");
	put_thread(c, 4250, "ublk3.10", 0x180000 | 0x400040, "2,4");
	put_thread(c, 4251, "ublk3.2", 0x080000, "0-1");
	put_thread(c, 4252, "ublk3.0", 0x100000, NULL);
	put_thread(c, 4253, "ublk33.1", 0x180000, "0");
	put_thread(c, 4254, "ublk3.", 0x180000, "0");
	put_thread(c, 4255, "ublk3.1x", 0x180000, "0");
	put_thread(c, 4256, "iou-wrk-4250", 0x180000, "0");
	put_thread(c, 4257, ") ublk3.5 (", 0x180000, "0");
	assert_int_equal(srv_threads(PID, 3, &t, &n), 0);
	assert_int_equal(n, 3);
	assert_int_equal(t[0].index, 0);
	assert_int_equal(t[0].tid, 4252);
	assert_false(t[0].flusher);
	assert_int_equal(CPU_COUNT(&t[0].cpus), 0);
	assert_int_equal(t[1].index, 2);
	assert_false(t[1].flusher);
	assert_int_equal(CPU_COUNT(&t[1].cpus), 2);
	assert_int_equal(t[2].index, 10);
	assert_int_equal(t[2].tid, 4250);
	assert_true(t[2].flusher);
	assert_true(CPU_ISSET(2, &t[2].cpus) && CPU_ISSET(4, &t[2].cpus));
	assert_int_equal(CPU_COUNT(&t[2].cpus), 2);
	free(t);
}

/* The kernel keeps 15 characters of a name: thread 4090 of this device looks like 409. */
static void test_cut_name(void **state)
{
	struct ctx *c = *state;
	struct srv_thread *t = NULL;
	size_t n;

	put_thread(c, 4250, "ublk1048575.409", 0, "0");
	put_thread(c, 4251, "ublk1048575.40", 0, "0");
	assert_int_equal(srv_threads(PID, 1048575, &t, &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(t[0].index, -1);
	assert_int_equal(t[1].index, 40);
	free(t);
}

/* cli/engine/engine.c deals out queues so; the real driver's tests compare with the kernel's view. */
static void test_serves(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 4; i++)
		for (unsigned int k = 0; k < 4; k++)
			assert_int_equal(cfg_serves(4, 4, i, k), i == k);
	/* one thread for all, all for one queue */
	assert_true(cfg_serves(1, 4, 0, 3));
	assert_true(cfg_serves(4, 1, 3, 0));
	/* two threads, four queues: 0 and 2, 1 and 3 */
	assert_true(cfg_serves(2, 4, 0, 2) && cfg_serves(2, 4, 1, 3));
	assert_false(cfg_serves(2, 4, 0, 1) || cfg_serves(2, 4, 1, 2));
	/* five threads, two queues */
	assert_true(cfg_serves(5, 2, 4, 0) && cfg_serves(5, 2, 3, 1));
	assert_false(cfg_serves(5, 2, 4, 1));
	assert_false(cfg_serves(0, 2, 0, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_process, setup, teardown),
		cmocka_unit_test_setup_teardown(test_zombie, setup, teardown),
		cmocka_unit_test_setup_teardown(test_namespace, setup, teardown),
		cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cut_name, setup, teardown),
		cmocka_unit_test(test_serves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
