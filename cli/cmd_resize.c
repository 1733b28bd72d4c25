/* SPDX-License-Identifier: MIT */
/*
 * resize: another size for a device that is in use.
 */
#include <errno.h>
#include <string.h>

#include "cmd.h"
#include "dev/dev.h"
#include "revive.h"
#include "target/target.h"
#include "util/num.h"

struct resize_cfg {
	struct cmd_common common;
	bool force;
	unsigned int timeout_s;
};

#define AT(member) offsetof(struct resize_cfg, member)
#define SIZE_MAX_BYTES ((uint64_t)INT64_MAX & ~4095ULL)

/* clang-format off: one option, one entry */
static const struct opt resize_options[] = {
	{ .name = "force",
	  .letter = 'f',
	  .type = OPT_FLAG,
	  .offset = AT(force),
	  .help = "also make it smaller, which cuts off its end" },
	CMD_OPT_TIMEOUT(AT(timeout_s), "deadline (default: 30)"),
	OPT_END
};
/* clang-format on */

static const struct resize_cfg resize_defaults = { .timeout_s = CMD_TIMEOUT_DEFAULT };

static int check_size(const struct dev_cfg *d, uint64_t size, struct fail *f)
{
	if (size % d->block_size)
		return fail_set(f, FAIL_USAGE,
				"SIZE: %llu bytes are not a multiple of the block size %llu",
				(unsigned long long)size, (unsigned long long)d->block_size);
	return 0;
}

/* What lies behind the new end is lost: never under a user, and only when it is meant. */
static int check_shrink(const struct dev_view *v, uint64_t size, bool force, struct fail *f)
{
	char user[DEV_USER_TEXT];

	if ((uint64_t)v->size <= size)
		return 0;
	if (!force)
		return fail_set(
			f, EINVAL,
			"device %d has %lld bytes: making it smaller cuts off its end and needs --force",
			v->id, (long long)v->size);
	if (dev_may_be_used(v->id, user))
		return fail_set(f, EBUSY, "device %d cannot be made smaller while it is %s", v->id,
				user);
	return 0;
}

static void set_size(struct record *rec, const void *arg)
{
	struct dev_cfg *c = &rec->cfg;

	c->size = *(const uint64_t *)arg;
	/* a backing that was too short was made as long as it has to be */
	if (c->file_size && c->file_size < c->offset + c->size)
		c->file_size = c->offset + c->size;
}

/* For the next server. The device has the new size already. */
static int note_size(const struct record *rec, uint64_t size, struct fail *f)
{
	int r = rec_update(rec->cfg.id, rec->cookie, set_size, &size);

	return r < 0 ? fail_errno(f, -r,
				  "device %d has its new size, but its record could not be written",
				  rec->cfg.id) :
		       0;
}

/* In a helper process: a stop that is stuck, or a quiesce that waits, makes the driver wait as well. */
struct update {
	const struct record *rec;
	uint64_t size;
	bool unprivileged;
};

static int update_size(void *arg, struct fail *f)
{
	const struct update *u = arg;
	struct ctrl c;
	int r = dev_open_ctrl(&c, INT32_MAX, f);

	if (r < 0)
		return r;
	c.unprivileged = u->unprivileged;
	r = ctrl_update_size(&c, (uint32_t)u->rec->cfg.id, u->size);
	ctrl_close(&c);
	/* here: whatever becomes of the caller, the record has the size that the device has */
	return r < 0 ? fail_errno(f, -r, "cannot resize device %d", u->rec->cfg.id) :
		       note_size(u->rec, u->size, f);
}

static int resize(struct ctrl *c, const struct resize_cfg *cfg, int id, uint64_t size, struct fail *f)
{
	struct record rec;
	struct dev_view v;
	struct update u;
	uint64_t mask;
	int r = dev_get_features(c, &mask, f);

	if (!r)
		r = dev_need_features(UBLK_F_UPDATE_SIZE, mask, f);
	if (!r)
		r = dev_look_known(c, id, &v, f);
	if (!r && !v.has_disk)
		r = fail_set(f, EINVAL, "device %d has no disk", id);
	if (!r)
		r = revive_load(&v, cfg->timeout_s, &rec, f);
	if (!r)
		r = check_size(&rec.cfg, size, f);
	if (!r)
		r = check_shrink(&v, size, cfg->force, f);
	if (!r)
		r = tgt_find(rec.cfg.target)->resize(&rec.cfg, size, f);
	if (r < 0)
		return r;
	u = (struct update){ &rec, size, v.flags & UBLK_F_UNPRIVILEGED_DEV };
	return cmd_in_helper(update_size, &u, cfg->timeout_s, f);
}

static int resize_run(const struct cmd_args *a, struct fail *f)
{
	const struct resize_cfg *cfg = a->cfg;
	uint64_t size;
	struct ctrl c;
	int id, r = dev_parse_operand(a->operands[0], &id, f);

	if (!r && num_parse_size(a->operands[1], 512, SIZE_MAX_BYTES, &size) < 0)
		r = fail_set(f, FAIL_USAGE,
			     "SIZE: '%s' is no whole number of bytes, K, M, G... from 512 bytes to 8E",
			     a->operands[1]);
	if (!r)
		r = dev_open_ctrl(&c, (int)cfg->timeout_s * 1000, f);
	if (r < 0)
		return r;
	r = resize(&c, cfg, id, size, f);
	ctrl_close(&c);
	return r;
}

const struct cmd cmd_resize = {
	.name = "resize",
	.summary = "change the size of a device",
	.operands = "ID|/dev/ublkbN SIZE",
	.min_operands = 2,
	.max_operands = 2,
	.operand_hint = HINT_DEVICE,
	.options = resize_options,
	.cfg_size = sizeof(struct resize_cfg),
	.cfg_defaults = &resize_defaults,
	.run = resize_run,
};
