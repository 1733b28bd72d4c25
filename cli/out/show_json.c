/* SPDX-License-Identifier: MIT */
/*
 * show: the tree of names and values that both of its writers print.
 */
#include <inttypes.h>
#include <stdio.h>

#include "abi/ublk_abi.h"
#include "dev/affinity.h"
#include "out/show_int.h"
#include "util/cleanup.h"
#include "util/cpulist.h"

static void add(struct json_object *o, const char *key, struct json_object *v)
{
	json_object_object_add(o, key, v);
}

static struct json_object *number(int64_t n)
{
	return json_object_new_int64(n);
}

/* -1 is not known */
static struct json_object *known(int64_t n)
{
	return n < 0 ? NULL : number(n);
}

static struct json_object *boolean(int n)
{
	return n < 0 ? NULL : json_object_new_boolean(n);
}

/* All 64 bits: readers of JSON lose integers above 2^53. */
static struct json_object *mask(uint64_t m)
{
	char text[24];

	snprintf(text, sizeof(text), "0x%" PRIx64, m);
	return json_object_new_string(text);
}

static struct json_object *cpu_list(const cpu_set_t *set)
{
	char text[CPULIST_TEXT];

	return CPU_COUNT(set) ? json_object_new_string(cpulist_format(set, text)) : NULL;
}

/* ---- parameters ------------------------------------------------------------------------- */

static struct json_object *basic(const struct ublk_param_basic *p)
{
	struct json_object *o = json_object_new_object();

	add(o, "attrs", number(p->attrs));
	add(o, "logical_bs_shift", number(p->logical_bs_shift));
	add(o, "physical_bs_shift", number(p->physical_bs_shift));
	add(o, "io_opt_shift", number(p->io_opt_shift));
	add(o, "io_min_shift", number(p->io_min_shift));
	add(o, "max_sectors", number(p->max_sectors));
	add(o, "chunk_sectors", number(p->chunk_sectors));
	add(o, "dev_sectors", number((int64_t)p->dev_sectors));
	add(o, "virt_boundary_mask", mask(p->virt_boundary_mask));
	return o;
}

static struct json_object *discard(const struct ublk_param_discard *p)
{
	struct json_object *o = json_object_new_object();

	add(o, "discard_alignment", number(p->discard_alignment));
	add(o, "discard_granularity", number(p->discard_granularity));
	add(o, "max_discard_sectors", number(p->max_discard_sectors));
	add(o, "max_write_zeroes_sectors", number(p->max_write_zeroes_sectors));
	add(o, "max_discard_segments", number(p->max_discard_segments));
	return o;
}

static struct json_object *devt(const struct ublk_param_devt *p)
{
	struct json_object *o = json_object_new_object();

	add(o, "char_major", number(p->char_major));
	add(o, "char_minor", number(p->char_minor));
	add(o, "disk_major", number(p->disk_major));
	add(o, "disk_minor", number(p->disk_minor));
	return o;
}

static struct json_object *zoned(const struct ublk_param_zoned *p)
{
	struct json_object *o = json_object_new_object();

	add(o, "max_open_zones", number(p->max_open_zones));
	add(o, "max_active_zones", number(p->max_active_zones));
	add(o, "max_zone_append_sectors", number(p->max_zone_append_sectors));
	return o;
}

static struct json_object *dma_align(const struct ublk_param_dma_align *p)
{
	struct json_object *o = json_object_new_object();

	add(o, "alignment", number(p->alignment));
	return o;
}

static struct json_object *segment(const struct ublk_param_segment *p)
{
	struct json_object *o = json_object_new_object();

	add(o, "seg_boundary_mask", mask(p->seg_boundary_mask));
	add(o, "max_segment_size", number(p->max_segment_size));
	add(o, "max_segments", number(p->max_segments));
	return o;
}

/* The driver's names, a group that was never set is null. */
static struct json_object *parameters(const struct ublk_params *p)
{
	struct json_object *o = json_object_new_object();
	const uint32_t t = p->types;

	add(o, "basic", t & UBLK_PARAM_TYPE_BASIC ? basic(&p->basic) : NULL);
	add(o, "discard", t & UBLK_PARAM_TYPE_DISCARD ? discard(&p->discard) : NULL);
	add(o, "devt", t & UBLK_PARAM_TYPE_DEVT ? devt(&p->devt) : NULL);
	add(o, "zoned", t & UBLK_PARAM_TYPE_ZONED ? zoned(&p->zoned) : NULL);
	add(o, "dma_align", t & UBLK_PARAM_TYPE_DMA_ALIGN ? dma_align(&p->dma) : NULL);
	add(o, "segment", t & UBLK_PARAM_TYPE_SEGMENT ? segment(&p->seg) : NULL);
	return o;
}

/* ---- queues and threads ----------------------------------------------------------------- */

/* By the numbers that the engine had: a thread may have ended meanwhile. */
static bool serves(const struct show *s, const struct srv_thread *t, unsigned int q)
{
	unsigned int threads =
		s->view->threads > 0 ? (unsigned int)s->view->threads : (unsigned int)s->nr_threads;

	return t->index >= 0 && cfg_serves(threads, s->nr_queues, (unsigned int)t->index, q);
}

static struct json_object *queue(const struct show *s, unsigned int q, const cpu_set_t *own)
{
	struct json_object *o = json_object_new_object(), *tids = NULL;

	if (s->threads)
		tids = json_object_new_array();
	for (size_t i = 0; s->threads && i < s->nr_threads; i++)
		if (serves(s, &s->threads[i], q))
			json_object_array_add(tids, number(s->threads[i].tid));
	add(o, "queue", number(q));
	add(o, "cpus", cpu_list(&s->cpus[q]));
	add(o, "affinity", own ? cpu_list(&own[q]) : NULL);
	add(o, "threads", tids);
	return o;
}

static struct json_object *queue_map(const struct show *s)
{
	_cleanup_free_ cpu_set_t *own = calloc(s->nr_queues + 1, sizeof(*own));
	struct json_object *a = json_object_new_array();

	if (own && s->view->has_record)
		aff_apply(s->view->rec.affinity, s->nr_queues, own);
	for (unsigned int q = 0; q < s->nr_queues; q++)
		json_object_array_add(a, queue(s, q, own));
	return a;
}

static struct json_object *io_threads(const struct show *s)
{
	struct json_object *a = json_object_new_array();

	for (size_t i = 0; i < s->nr_threads; i++) {
		const struct srv_thread *t = &s->threads[i];
		struct json_object *o = json_object_new_object(), *qs = json_object_new_array();

		for (unsigned int q = 0; q < s->nr_queues; q++)
			if (serves(s, t, q))
				json_object_array_add(qs, number(q));
		add(o, "thread", known(t->index));
		add(o, "tid", number(t->tid));
		add(o, "queues", qs);
		add(o, "cpus", cpu_list(&t->cpus));
		add(o, "io_flusher", boolean(t->flusher));
		json_object_array_add(a, o);
	}
	return a;
}

/* ---- the rest --------------------------------------------------------------------------- */

static struct json_object *record(const struct show *s)
{
	struct json_object *o = json_object_new_object();

	add(o, "path", out_json_text(s->record_path));
	add(o, "trusted", boolean(!s->record_fault));
	add(o, "reason", s->record_fault ? out_json_text(s->record_fault) : NULL);
	return o;
}

static struct json_object *holders(const struct show *s)
{
	struct json_object *a = json_object_new_array();

	if (s->holder)
		json_object_array_add(a, out_json_text(s->holder));
	return a;
}

static struct json_object *server(const struct srv_proc *p)
{
	const char state[2] = { p->state, '\0' };
	struct json_object *o = json_object_new_object();

	add(o, "pid", number(p->pid));
	add(o, "process_state", json_object_new_string(state));
	add(o, "own_mount_namespace", boolean(p->own_ns));
	add(o, "oom_score_adj", p->has_oom_adj ? number(p->oom_adj) : NULL);
	add(o, "locked_memory", known(p->locked));
	add(o, "rss", known(p->rss));
	add(o, "threads", known(p->threads));
	return o;
}

static struct json_object *log_tail(const struct show_log *log)
{
	struct json_object *a = json_object_new_array();

	for (unsigned int i = 0; i < log->count; i++)
		json_object_array_add(a, out_json_text(log->line[i]));
	return a;
}

struct json_object *show_tree(const struct show *s)
{
	size_t nr_cols;
	const struct col *cols = col_device(&nr_cols);
	struct json_object *o = out_json_row(cols, nr_cols, s->view);

	add(o, "parameters", s->params ? parameters(s->params) : NULL);
	add(o, "queue_map", s->nr_queues ? queue_map(s) : NULL);
	add(o, "io_threads", s->threads ? io_threads(s) : NULL);
	add(o, "record", record(s));
	add(o, "holders", s->has_holder ? holders(s) : NULL);
	add(o, "server", s->server ? server(s->server) : NULL);
	add(o, "log", s->log ? log_tail(s->log) : NULL);
	return o;
}
