/* SPDX-License-Identifier: MIT */
#include "revive.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "daemon.h"
#include "engine/iobuf.h"
#include "target/target.h"
#include "util/fs.h"

static int read_record(const struct dev_view *v, struct record *ret, struct fail *f)
{
	int r = rec_load(v->id, ret);

	if (r == -ENOENT)
		return fail_set(f, EINVAL, "device %d has no record: it is another tool's", v->id);
	if (r == -EPERM || r == -EACCES)
		return fail_set(f, EPERM,
				"the record of device %d is not to be trusted: others can write to it",
				v->id);
	if (r == -EPROTO || r == -EFBIG)
		return fail_set(
			f, EINVAL,
			"the record of device %d is damaged, or another version's: what it was made with is not known",
			v->id);
	if (r < 0)
		return fail_errno(f, -r, "cannot read the record of device %d", v->id);
	if (!v->cookie || ret->cookie != v->cookie)
		return fail_set(f, EINVAL,
				"device %d is not the one of the record with its id: it is another tool's",
				v->id);
	return 0;
}

/* The words of a record → configuration; -EPROTO for a word that this build does not know. */
static int fill_words(struct record *rec)
{
	struct dev_cfg *c = &rec->cfg;
	const struct tgt_ops *tgt = tgt_find(rec->target);
	int mode = cfg_index(iobuf_mode_name, rec->data_mode);
	int recovery = *rec->recovery ? cfg_index(cfg_recovery_name, rec->recovery) : RECOVERY_OFF;
	int io = *rec->io ? cfg_index(cfg_io_name, rec->io) : IO_AUTO;
	int huge = *rec->hugepages ? cfg_index(cfg_huge_name, rec->hugepages) : HUGE_NONE;

	if (!tgt || mode < 0 || recovery < 0 || io < 0 || huge < 0)
		return -EPROTO;
	c->target = tgt->name;
	c->mode = (enum data_mode)mode;
	c->recovery = (enum recovery)recovery;
	c->io = (enum io_mode)io;
	c->file = *rec->backing ? rec->backing : NULL;
	c->affinity = *rec->affinity ? rec->affinity : NULL;
	c->scheduler = *rec->scheduler ? rec->scheduler : NULL;
	c->queue_attr = *rec->queue_attr ? rec->queue_attr : NULL;
	c->hugepages = *rec->hugepages;
	c->null_data = *rec->null_data ? rec->null_data : NULL;
	c->same_backing = true;
	return 0;
}

int revive_load(const struct dev_view *v, unsigned int timeout_s, struct record *ret, struct fail *f)
{
	int r = read_record(v, ret, f);

	if (r < 0)
		return r;
	if (fill_words(ret) < 0)
		return fail_set(
			f, FAIL_UNSUPPORTED,
			"device %d: its record names a target or mode that this ublkctl does not have",
			v->id);
	if (strcmp(ret->data_mode, v->data_mode) || ret->cfg.batch != (v->batch == 1) ||
	    strcmp(cfg_recovery_name(ret->cfg.recovery), v->recovery))
		return fail_set(f, EINVAL,
				"device %d: its record does not fit what the driver has of it",
				v->id);
	ret->cfg.quiesce = v->flags & UBLK_F_QUIESCE;
	ret->cfg.timeout_s = timeout_s;
	return tgt_find(ret->cfg.target)->same(&ret->cfg, f);
}

struct job {
	const struct record *rec;
	enum serve_how how;
};

static int serve_entry(void *arg, int report_fd)
{
	const struct job *j = arg;

	return serve_again(j->rec, j->how, report_fd) < 0;
}

int revive_serve(const struct record *rec, enum serve_how how, bool foreground, struct fail *f)
{
	struct job j = { .rec = rec, .how = how };
	struct daemon_msg m;
	int r;

	if (foreground)
		return serve_again(rec, how, -1);
	r = daemon_start(serve_entry, &j, (int)rec->cfg.timeout_s * 1000 + SERVE_UNDO_MS, &m, f);
	if (!r && *m.text)
		msg_warn("%s", m.text);
	return r;
}

static bool is_waiting(const struct dev_view *v)
{
	return v->state && (!strcmp(v->state, "quiesced") || !strcmp(v->state, "fail-io"));
}

int revive_wait(struct ctrl *c, struct dev_view *v, int64_t deadline, struct fail *f)
{
	const uint64_t cookie = v->cookie;

	for (;;) {
		int id = v->id, r = dev_look_known(c, id, v, f);

		if (r == -ENODEV || (!r && v->cookie != cookie))
			return fail_set(f, ENODEV, "device %d is gone", id);
		if (r < 0)
			return r;
		if (is_waiting(v))
			return 0;
		if (fs_now_ms() >= deadline)
			return fail_set(
				f, ETIME,
				"device %d: timed out waiting for the end of its server (state %s, process %d)",
				id, v->state ? v->state : "unknown", (int)v->pid);
		fs_sleep_ms(SERVE_POLL_MS);
	}
}
