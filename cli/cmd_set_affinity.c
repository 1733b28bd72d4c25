/* SPDX-License-Identifier: MIT */
/*
 * set-affinity: other CPUs for the I/O threads of queues, now and for every server to come.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "dev/affinity.h"
#include "dev/dev.h"
#include "dev/server.h"
#include "util/cleanup.h"

struct set_affinity_cfg {
	struct cmd_common common;
	unsigned int timeout_s;
};

#define AT(member) offsetof(struct set_affinity_cfg, member)

/* clang-format off: one option, one entry */
static const struct opt set_affinity_options[] = {
	CMD_OPT_TIMEOUT(AT(timeout_s), "deadline (default: 30)"), OPT_END
};
/* clang-format on */

static const struct set_affinity_cfg set_affinity_defaults = { .timeout_s = CMD_TIMEOUT_DEFAULT };

/* What is asked for, and what the threads are to have; all arrays have one entry per queue. */
struct job {
	struct record rec;
	unsigned int queues;
	cpu_set_t *asked; /* empty: not named */
	cpu_set_t *own;	  /* as the record will be; empty: the driver's */
	cpu_set_t *want;  /* own, or the driver's */
	struct srv_thread *threads;
	size_t nr_threads;
};

static void job_free(struct job *j)
{
	free(j->asked);
	free(j->own);
	free(j->want);
	free(j->threads);
}

/* All operands as one text, so that they are one thing to check. */
static int join(const struct cmd_args *a, char *text, struct fail *f)
{
	size_t n = 0;

	for (int i = 1; i < a->nr_operands && n < CFG_AFFINITY_TEXT; i++) {
		cpu_set_t cpus;
		unsigned int q;
		const char *p = a->operands[i];

		if (aff_next(&p, &q, &cpus) == 0)
			return fail_set(f, FAIL_USAGE, "'' is not QUEUE=CPUS (such as 0=0-3,5)");
		n += (size_t)snprintf(text + n, CFG_AFFINITY_TEXT - n, "%s%s", n ? ":" : "",
				      a->operands[i]);
	}
	if (n >= CFG_AFFINITY_TEXT)
		return fail_set(f, FAIL_USAGE, "more than %d characters of QUEUE=CPUS",
				CFG_AFFINITY_TEXT - 1);
	return 0;
}

/* The record and the threads belong to the process that the driver names. */
static int find_threads(const struct dev_view *v, struct job *j, struct fail *f)
{
	int r;

	if (!v->has_record)
		return fail_set(f, EINVAL,
				"device %d has no record that can be believed: its threads are unknown",
				v->id);
	if (v->pid <= 0 || v->pid != v->rec.pid || !rec_server_alive(&v->rec))
		return fail_set(f, EINVAL, "device %d has no running server", v->id);
	j->rec = v->rec;
	r = srv_threads(v->rec.pid, v->id, &j->threads, &j->nr_threads);
	if (r < 0)
		return fail_errno(f, -r, "cannot look at the threads of process %d", v->rec.pid);
	for (size_t i = 0; i < j->nr_threads; i++)
		if (j->threads[i].index != (int)i)
			j->nr_threads = 0;
	if (j->nr_threads != v->rec.cfg.threads)
		return fail_set(
			f, EINVAL,
			"process %d does not have the %u I/O threads of device %d: it starts or ends just now",
			v->rec.pid, v->rec.cfg.threads, v->id);
	return 0;
}

static int fill_sets(struct ctrl *c, const char *text, struct job *j, struct fail *f)
{
	j->asked = calloc(j->queues, sizeof(cpu_set_t));
	j->own = calloc(j->queues, sizeof(cpu_set_t));
	j->want = calloc(j->queues, sizeof(cpu_set_t));
	if (!j->asked || !j->own || !j->want)
		return fail_errno(f, ENOMEM, "cannot set the affinity");
	aff_apply(text, j->queues, j->asked);
	aff_apply(j->rec.affinity, j->queues, j->own);
	aff_apply(text, j->queues, j->own);
	for (unsigned int q = 0; q < j->queues; q++) {
		int r = 0;

		if (CPU_COUNT(&j->own[q]))
			j->want[q] = j->own[q];
		else
			r = ctrl_get_queue_affinity(c, (uint32_t)j->rec.cfg.id, (uint16_t)q,
						    &j->want[q]);
		/* more CPUs than cpu_set_t holds: as at the start, such a queue adds none */
		if (r < 0 && r != -EINVAL)
			return fail_errno(f, -r, "cannot get the CPUs of queue %u", q);
	}
	if (aff_format(j->own, j->queues, j->rec.affinity) < 0)
		return fail_set(f, FAIL_USAGE, "with what is set already more than %d characters",
				CFG_AFFINITY_TEXT - 1);
	return 0;
}

/* The CPUs of all queues of a thread; empty when none of them was named. */
static void thread_cpus(const struct job *j, unsigned int t, cpu_set_t *ret)
{
	bool named = false;

	CPU_ZERO(ret);
	for (unsigned int q = 0; q < j->queues; q++) {
		if (!cfg_serves((unsigned int)j->nr_threads, j->queues, t, q))
			continue;
		named |= CPU_COUNT(&j->asked[q]) > 0;
		CPU_OR(ret, ret, &j->want[q]);
	}
	if (!named)
		CPU_ZERO(ret);
}

/* All or none: the threads that were changed before one failed get back what they had. */
static int set_threads(const struct job *j, struct fail *f)
{
	for (size_t i = 0; i < j->nr_threads; i++) {
		const struct srv_thread *t = &j->threads[i];
		cpu_set_t cpus;
		int err;

		thread_cpus(j, (unsigned int)i, &cpus);
		if (!CPU_COUNT(&cpus) || sched_setaffinity(t->tid, sizeof(cpus), &cpus) == 0)
			continue;
		err = errno;
		while (i--)
			if (CPU_COUNT(&j->threads[i].cpus))
				sched_setaffinity(j->threads[i].tid, sizeof(cpus),
						  &j->threads[i].cpus);
		if (err == EINVAL)
			return fail_set(
				f, EINVAL,
				"I/O thread %d (process %d) may run on none of these CPUs: a cpuset forbids them",
				t->index, t->tid);
		return fail_errno(f, err, "cannot set the CPUs of I/O thread %d (process %d)",
				  t->index, t->tid);
	}
	return 0;
}

static void set_text(struct record *rec, const void *arg)
{
	snprintf(rec->affinity, sizeof(rec->affinity), "%s", (const char *)arg);
}

static int note(const struct record *rec, struct fail *f)
{
	int r = rec_update(rec->cfg.id, rec->cookie, set_text, rec->affinity);

	return r < 0 ? fail_errno(f, -r, "device %d runs so now, but its record could not be written",
				  rec->cfg.id) :
		       0;
}

static int set_affinity(struct ctrl *c, int id, const char *text, struct fail *f)
{
	static struct dev_view v;
	static struct job j;
	int r = dev_look_known(c, id, &v, f);

	c->unprivileged = !r && (v.flags & UBLK_F_UNPRIVILEGED_DEV);
	if (!r && v.queues > 0)
		r = aff_check(text, (unsigned int)v.queues, f);
	if (!r)
		r = find_threads(&v, &j, f);
	j.queues = (unsigned int)v.queues;
	if (!r)
		r = fill_sets(c, text, &j, f);
	if (!r)
		r = set_threads(&j, f);
	if (!r)
		r = note(&j.rec, f);
	job_free(&j);
	return r;
}

static int set_affinity_run(const struct cmd_args *a, struct fail *f)
{
	const struct set_affinity_cfg *cfg = a->cfg;
	char text[CFG_AFFINITY_TEXT];
	struct ctrl c;
	int id, r = dev_parse_operand(a->operands[0], &id, f);

	if (!r)
		r = join(a, text, f);
	if (!r)
		r = aff_check(text, UBLK_MAX_NR_QUEUES, f);
	if (!r)
		r = dev_open_ctrl(&c, (int)cfg->timeout_s * 1000, f);
	if (r < 0)
		return r;
	r = set_affinity(&c, id, text, f);
	ctrl_close(&c);
	return r;
}

const struct cmd cmd_set_affinity = {
	.name = "set-affinity",
	.summary = "set the CPUs of the threads of queues",
	.operands = "ID|/dev/ublkbN QUEUE=CPUS...",
	.min_operands = 2,
	.max_operands = CMD_OPERANDS_ANY,
	.operand_hint = HINT_DEVICE,
	.options = set_affinity_options,
	.cfg_size = sizeof(struct set_affinity_cfg),
	.cfg_defaults = &set_affinity_defaults,
	.run = set_affinity_run,
};
