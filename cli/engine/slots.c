/* SPDX-License-Identifier: MIT */
/*
 * Slots of a ring's buffer table that the server fills with request pages. They are emptied many
 * at a time, once per turn, by writing nothing over a whole range of the table: that costs less
 * than an UNREGISTER_IO_BUF command for each, and works in every kernel that has the commands.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>

#include "engine/queue.h"

#define RANGE_MAX 256U /* slots emptied by one call */
/* Empty slots may lie between two of a range; when there are more, another call is cheaper. */
#define GAP_MAX 3U
#define WORD_BITS 64U

int slots_init(struct q_thr *t)
{
	const struct iobuf_mode *m = t->qs[0].mode;
	struct q_slots *s = &t->slots;

	if (!m->request_buf || (m->auto_reg && !m->fallback))
		return 0;
	s->nr = t->nr_qs * t->qs[0].depth;
	s->nr_words = (s->nr + WORD_BITS - 1) / WORD_BITS;
	s->full = calloc(s->nr_words, sizeof(*s->full));
	s->done = calloc(s->nr_words, sizeof(*s->done));
	s->filled_in = calloc(s->nr, sizeof(*s->filled_in));
	s->turn = 1;
	/* what looks empty from here may be a slot that the driver has filled */
	s->gap_max = m->auto_reg ? 0 : GAP_MAX;
	return s->full && s->done && s->filled_in ? 0 : -ENOMEM;
}

void slots_fini(struct q_thr *t)
{
	free(t->slots.full);
	free(t->slots.done);
	free(t->slots.filled_in);
	t->slots = (struct q_slots){ 0 };
}

static bool has(const uint64_t *map, unsigned int i)
{
	return map[i / WORD_BITS] >> i % WORD_BITS & 1;
}

/* Last slot of a range that starts with a slot to be emptied: no full one is in it. */
static unsigned int range_end(const struct q_slots *s, unsigned int first)
{
	unsigned int last = first;

	for (unsigned int i = first + 1;
	     i < s->nr && i - last <= s->gap_max + 1 && i - first < RANGE_MAX && !has(s->full, i);
	     i++)
		if (has(s->done, i))
			last = i;
	return last;
}

/* Completes in silence; a slot that was never filled is as empty as wanted. */
static int empty_one(struct q_thr *t, unsigned int slot)
{
	struct io_uring_sqe *sqe = q_sqe(t);
	struct ublksrv_io_cmd *cmd;

	if (!sqe)
		return -EBUSY;
	q_prep_cdev(sqe, UBLK_U_IO_UNREGISTER_IO_BUF, 0, ud_pack(UD_IGNORE, 0, 0, 0));
	sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
	cmd = q_cmd_area(sqe);
	*cmd = (struct ublksrv_io_cmd){ .addr = slot };
	return 0;
}

static int empty_range(struct q_thr *t, unsigned int first, unsigned int n)
{
	static const struct iovec nothing[RANGE_MAX];
	int r;

	/* a command goes with the others, a call costs more than that */
	if (n == 1)
		return empty_one(t, first);
	r = io_uring_register_buffers_update_tag(&t->ring, first, nothing, NULL, n);

	return r < 0 ? r : (unsigned int)r == n ? 0 : -EIO;
}

int slots_empty_done(struct q_thr *t)
{
	struct q_slots *s = &t->slots;
	int r = 0;

	/* or the slot would be filled after it was emptied */
	if (s->early)
		r = io_uring_submit(&t->ring);
	if (r < 0)
		return r;
	s->early = false;
	for (unsigned int w = 0; s->nr_done && w < s->nr_words; w++)
		while (s->done[w]) {
			unsigned int first =
				w * WORD_BITS + (unsigned int)__builtin_ctzll(s->done[w]);
			unsigned int last = range_end(s, first);

			r = empty_range(t, first, last - first + 1);
			if (r < 0)
				return r;
			for (unsigned int i = first; i <= last; i++)
				if (has(s->done, i)) {
					s->done[i / WORD_BITS] &= ~(1ULL << i % WORD_BITS);
					s->nr_done--;
				}
		}
	return 0;
}
