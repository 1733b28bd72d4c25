/* SPDX-License-Identifier: MIT */
/*
 * Batch back end against a model of the driver: thousands of turns of several threads on several
 * queues, deliveries, late answers, partial commits and ended fetches by chance. No result is lost,
 * sent twice, mixed up, or given for a request that the thread does not have.
 * UNIT: tests/unit/rig.o
 */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>

#include "rig_batch.h"
#include "target/target.h"

#define THREADS_MAX 3
#define DEPTH_MAX 4096
#define EVENTS_MAX 64

/* A request: not there, waiting in the driver, with a thread's target, answered. */
enum tag_state { IDLE, PENDING, WITH_TARGET, ANSWERED };

struct tag {
	enum tag_state state;
	unsigned int thread; /* that got it */
	int32_t result;	     /* of ANSWERED */
	unsigned int given;  /* how often it was delivered, and how often answered */
	unsigned int taken;
};

/* One thread's part of a queue, as the driver knows it. */
struct port {
	bool armed;
	uint64_t fetch_ud;
	bool committing; /* a COMMIT's completion is due */
	uint64_t commit_ud;
	unsigned int taken; /* its elements that were taken */
};

static struct model {
	unsigned int threads, queues, depth;
	size_t buf;
	struct rig *rig[THREADS_MAX];
	struct port port[THREADS_MAX][RIG_QS];
	struct tag tag[RIG_QS][DEPTH_MAX];
	unsigned int busy[THREADS_MAX];
	bool lazy; /* the target answers at once or later, by chance; else at once */
	bool calm; /* little is asked for */
	int32_t next_result;
	uint64_t rnd;
	/* how often each thing happened: a test that never gets there shows nothing */
	unsigned int partial, singles, many, ended, delivered;
} m;

static unsigned int chance(unsigned int n)
{
	m.rnd ^= m.rnd << 13;
	m.rnd ^= m.rnd >> 7;
	m.rnd ^= m.rnd << 17;
	return (unsigned int)(m.rnd >> 33) % n;
}

/* ---- target ----------------------------------------------------------------------------- */

static void answer(struct q *q, uint16_t tag)
{
	struct tag *t = &m.tag[q->slot][tag];

	t->state = ANSWERED;
	t->result = m.next_result++;
	q_complete(q, tag, t->result);
}

static void model_io(struct q *q, uint16_t tag, const struct ublksrv_io_desc *desc)
{
	struct tag *t = &m.tag[q->slot][tag];

	unit_check(tag < m.depth);
	unit_check(desc == &q->desc[tag]);
	unit_check(t->state == PENDING);
	unit_check(q->thr == &m.rig[t->thread]->thr);
	t->state = WITH_TARGET;
	t->given++;
	if (!m.lazy || chance(2))
		answer(q, tag);
}

static const struct tgt_ops model_tgt = { .name = "model", .queue_io = model_io };

static void answer_some(unsigned int thread)
{
	for (unsigned int s = 0; s < m.queues; s++)
		for (unsigned int tag = 0; tag < m.depth; tag++) {
			struct tag *t = &m.tag[s][tag];

			if (t->state == WITH_TARGET && t->thread == thread && (!m.lazy || !chance(3)))
				answer(&m.rig[thread]->qs[s], (uint16_t)tag);
		}
}

/* ---- driver: what it gives --------------------------------------------------------------- */

struct event {
	uint64_t ud;
	int32_t res;
	uint32_t flags;
};

static struct event events[EVENTS_MAX];
static unsigned int nr_events;

static void event(uint64_t ud, int32_t res, uint32_t flags)
{
	unit_check(nr_events < EVENTS_MAX);
	events[nr_events++] = (struct event){ .ud = ud, .res = res, .flags = flags };
}

/* Some new requests of a queue go to the thread, in one completion. False: there were none. */
static bool hand_out(unsigned int thread, unsigned int s)
{
	struct port *p = &m.port[thread][s];
	unsigned int most = m.calm ? 1 : m.depth < 40 ? m.depth : 40;
	unsigned int want = 1 + chance(most), n = 0, fit;
	unsigned int from = chance(m.depth);
	uint32_t flags = 0;
	uint16_t tags[64];

	for (unsigned int i = 0; i < m.depth && n < want; i++) {
		unsigned int tag = (from + i) % m.depth;

		if (m.tag[s][tag].state == IDLE && chance(4))
			tags[n++] = (uint16_t)tag;
	}
	if (!n)
		return false;
	fit = rig_put_tags(m.rig[thread], s, tags, n, &flags);
	if (!fit) {
		p->armed = false;
		event(p->fetch_ud, -ENOBUFS, 0);
		m.ended++;
		return false;
	}
	for (unsigned int i = 0; i < fit; i++) {
		m.tag[s][tags[i]].state = PENDING;
		m.tag[s][tags[i]].thread = thread;
	}
	m.busy[thread] += fit;
	m.delivered += fit;
	p->armed = chance(10) != 0; /* now and then the last completion of a FETCH */
	m.ended += !p->armed;
	event(p->fetch_ud, (int32_t)(2 * fit), flags | (p->armed ? IORING_CQE_F_MORE : 0));
	return true;
}

static void gather(unsigned int thread, unsigned int s)
{
	struct port *p = &m.port[thread][s];

	if (p->committing && chance(3)) {
		event(p->commit_ud, (int32_t)(p->taken * (m.buf ? 16 : 8)), 0);
		m.busy[thread] -= p->taken;
		p->committing = false;
	}
	for (unsigned int i = chance(m.calm ? 2 : 4); i && p->armed && hand_out(thread, s); i--)
		;
	if (p->armed && !chance(20)) {
		p->armed = false;
		event(p->fetch_ud, -ENOBUFS, 0);
		m.ended++;
	}
}

static void post_events(unsigned int thread)
{
	for (unsigned int i = 0; i < nr_events; i++)
		rig_cqe(m.rig[thread], events[i].ud, events[i].res, events[i].flags);
	nr_events = 0;
}

/* ---- driver: what it takes --------------------------------------------------------------- */

/* One element of a COMMIT that the driver takes. */
static void take_element(unsigned int thread, unsigned int s, const struct io_uring_sqe *sqe,
			 unsigned int i)
{
	const struct ublk_elem_header *e = elem_of(sqe, i);
	const struct q *q = &m.rig[thread]->qs[s];
	struct tag *t;

	unit_check(e->tag < m.depth);
	t = &m.tag[s][e->tag];
	unit_check(t->state == ANSWERED && t->thread == thread);
	unit_check(e->result == t->result);
	unit_check(!m.buf || addr_of(sqe, i) == (uintptr_t)q_buf(q, e->tag));
	t->state = IDLE;
	t->taken++;
}

static void take_commit(unsigned int thread, const struct io_uring_sqe *sqe)
{
	unsigned int s = ud_slot(sqe->user_data), n = cmd_of(sqe)->nr_elem, k;
	struct port *p = &m.port[thread][s];
	bool skip = sqe->flags & IOSQE_CQE_SKIP_SUCCESS;

	unit_check(n >= 1 && n <= m.depth);
	check_entry(sqe, OP_COMMIT, s, skip ? IOSQE_CQE_SKIP_SUCCESS : 0, n, m.buf);
	unit_check(!p->committing); /* one at a time */
	unit_check(!skip || n == 1);
	/* as the driver: all, or those in front of one that it cannot take now */
	k = skip || chance(2) ? n : 1 + chance(n);
	for (unsigned int i = 0; i < k; i++)
		take_element(thread, s, sqe, i);
	m.partial += k < n;
	m.many += n > 1;
	m.singles += skip;
	if (skip) {
		m.busy[thread]--;
		return;
	}
	p->committing = true;
	p->commit_ud = sqe->user_data;
	p->taken = k;
}

static void take_fetch(unsigned int thread, const struct io_uring_sqe *sqe)
{
	unsigned int s = ud_slot(sqe->user_data);
	struct port *p = &m.port[thread][s];

	check_entry(sqe, OP_FETCH, s, 0, 0, m.buf);
	unit_check(!p->armed);
	p->armed = true;
	p->fetch_ud = sqe->user_data;
}

static void take_entries(unsigned int thread)
{
	struct io_uring_sqe sqes[2 * RIG_QS];
	unsigned int commits[RIG_QS] = { 0 }, n = rig_take(m.rig[thread], sqes, 2 * m.queues);

	for (unsigned int i = 0; i < n; i++) {
		unsigned int s = ud_slot(sqes[i].user_data);

		unit_check(s < m.queues);
		if (sqes[i].cmd_op == OP_FETCH) {
			take_fetch(thread, &sqes[i]);
			continue;
		}
		unit_check(sqes[i].cmd_op == OP_COMMIT);
		unit_check(++commits[s] == 1);
		take_commit(thread, &sqes[i]);
	}
}

/* ---- turns ------------------------------------------------------------------------------ */

static void check_counters(unsigned int thread)
{
	const struct q_thr *t = &m.rig[thread]->thr;
	unsigned int live = 0;

	for (unsigned int s = 0; s < m.queues; s++)
		live += m.port[thread][s].armed;
	unit_check(t->live == live);
	unit_check(t->busy == m.busy[thread]);
	unit_check(!t->stop && !t->fail.err);
}

static void turn(unsigned int thread, bool feed)
{
	for (unsigned int i = 0, s = chance(m.queues); i < m.queues; i++, s = (s + 1) % m.queues) {
		struct port *p = &m.port[thread][s];

		if (feed) {
			gather(thread, s);
		} else if (p->committing) {
			event(p->commit_ud, (int32_t)(p->taken * (m.buf ? 16 : 8)), 0);
			m.busy[thread] -= p->taken;
			p->committing = false;
		}
	}
	post_events(thread);
	answer_some(thread);
	be_batch.turn_end(&m.rig[thread]->thr);
	take_entries(thread);
	for (unsigned int s = 0; s < m.queues; s++)
		unit_check(m.port[thread][s].armed); /* at the end of a turn always */
	check_counters(thread);
}

static void start(void)
{
	for (unsigned int t = 0; t < m.threads; t++) {
		struct rig *r = armed(m.queues, m.depth, m.buf);

		m.rig[t] = r;
		r->thr.tgt = &model_tgt;
		for (unsigned int s = 0; s < m.queues; s++)
			m.port[t][s] = (struct port){ .armed = true, .fetch_ud = fetch_ud[s] };
	}
}

/* Everything that is under way comes to its end; then the device goes. */
static void finish(void)
{
	m.lazy = false;
	for (unsigned int i = 0; i < 2 * m.depth + 4; i++)
		for (unsigned int t = 0; t < m.threads; t++)
			turn(t, false);
	for (unsigned int s = 0; s < m.queues; s++)
		for (unsigned int tag = 0; tag < m.depth; tag++) {
			unit_check(m.tag[s][tag].state == IDLE);
			unit_check(m.tag[s][tag].given == m.tag[s][tag].taken);
		}
	for (unsigned int t = 0; t < m.threads; t++) {
		struct io_uring_sqe none;

		for (unsigned int s = 0; s < m.queues; s++)
			rig_cqe(m.rig[t], m.port[t][s].fetch_ud, UBLK_IO_RES_ABORT, 0);
		be_batch.turn_end(&m.rig[t]->thr);
		unit_check(rig_take(m.rig[t], &none, 0) == 0);
		unit_check(m.rig[t]->thr.live + m.rig[t]->thr.busy == 0);
		rig_free(m.rig[t]);
	}
}

static void model_case(unsigned int threads, unsigned int queues, unsigned int depth, size_t buf,
		       unsigned int turns)
{
	uint64_t seed = UINT64_C(0x9e3779b97f4a7c15) * (threads * 100 + queues * 10 + depth);

	memset(&m, 0, sizeof(m));
	m.threads = threads;
	m.queues = queues;
	m.depth = depth;
	m.buf = buf;
	m.rnd = seed;
	start();
	for (unsigned int i = 0; i < turns; i++) {
		unit_case("%u threads, %u queues, depth %u, turn %u", threads, queues, depth, i);
		m.calm = i / 50 % 3 == 0;
		m.lazy = !m.calm;
		turn(chance(threads), true);
	}
	unit_case("%u threads, %u queues, depth %u, end", threads, queues, depth);
	finish();
	unit_case("%u threads, %u queues, depth %u: %u requests, %u fetches ended, %u COMMITs "
		  "of many, %u partial, %u of one",
		  threads, queues, depth, m.delivered, m.ended, m.many, m.partial, m.singles);
	unit_check(m.delivered > turns / 4 && m.ended > turns / 40);
	unit_check(m.singles > 20);
	unit_check(depth == 1 || (m.many > turns / 20 && m.partial > turns / 80));
}

static void test_one_thread(void **state)
{
	(void)state;
	model_case(1, 1, 1, BUF, 5000);
	model_case(1, 1, 2, 0, 5000);
	model_case(1, 1, 16, BUF, 20000);
	model_case(1, 1, 128, 0, 5000);
}

static void test_several_queues(void **state)
{
	(void)state;
	model_case(1, 2, 8, BUF, 10000);
	model_case(1, 5, 16, 0, 5000);
}

static void test_several_threads(void **state)
{
	(void)state;
	model_case(3, 1, 16, BUF, 10000);
	model_case(3, 3, 32, 0, 6000);
}

static void test_deep(void **state)
{
	(void)state;
	model_case(2, 1, 4096, 0, 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_thread),
		cmocka_unit_test(test_several_queues),
		cmocka_unit_test(test_several_threads),
		cmocka_unit_test(test_deep),
	};

	return cmocka_run_group_tests_name("batch_model", tests, NULL, NULL);
}
