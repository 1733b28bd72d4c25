/* SPDX-License-Identifier: MIT */
/*
 * feature: what this driver can do, and which option uses it.
 */
#include <json-c/json.h>
#include <stdio.h>

#include "abi/feature.h"
#include "cmd.h"
#include "dev/dev.h"
#include "util/cleanup.h"

struct feature_cfg {
	struct cmd_common common;
	struct out_opts out;
};

/* clang-format off: one option, one entry */
static const struct opt feature_options[] = {
	{ .name = "json",
	  .type = OPT_FLAG,
	  .offset = offsetof(struct feature_cfg, out.json),
	  .help = "print JSON" },
	OPT_END
};
/* clang-format on */

static const struct feature_cfg feature_defaults;

#define FEATURE_BITS 64

static void mask_to_json(void *root, const void *arg)
{
	char text[24];

	/* as a text: readers lose integers above 2^53 */
	snprintf(text, sizeof(text), "%#llx", *(const unsigned long long *)arg);
	json_object_object_add(root, "mask", json_object_new_string(text));
}

static size_t fill_rows(uint64_t mask, struct col_feature_row *rows)
{
	size_t n = 0;

	for (unsigned int bit = 0; bit < FEATURE_BITS; bit++) {
		const struct abi_feature *feat = abi_feature_by_bit(bit);
		bool has = mask >> bit & 1;

		if (feat)
			rows[n++] = (struct col_feature_row){
				bit, has, feat->name, feat->since, feat->option, feat->summary
			};
		else if (has)
			rows[n++] = (struct col_feature_row){ .bit = bit, .supported = true };
	}
	return n;
}

static void report_mask(uint64_t mask)
{
	size_t known;

	abi_features(&known);
	printf("\ndriver mask: %#llx\n", (unsigned long long)mask);
	for (unsigned int bit = (unsigned int)known; bit < FEATURE_BITS; bit++)
		if (mask >> bit & 1)
			msg_hint("bit %u (%#llx) is newer than this build", bit, 1ULL << bit);
}

static int feature_run(const struct cmd_args *a, struct fail *f)
{
	struct feature_cfg *cfg = a->cfg;
	struct col_feature_row rows[FEATURE_BITS];
	unsigned long long mask64;
	struct out o = { .json_array = "features",
			 .rows = rows,
			 .row_size = sizeof(rows[0]),
			 .json_extra = mask_to_json,
			 .json_extra_arg = &mask64 };
	struct ctrl c;
	uint64_t mask;
	int r = dev_open_ctrl(&c, CMD_TIMEOUT_DEFAULT * 1000, f);

	if (r < 0)
		return r;
	r = dev_get_features(&c, &mask, f);
	ctrl_close(&c);
	if (r < 0)
		return r;
	mask64 = mask;
	o.cols = col_feature(&o.nr_cols);
	o.nr_rows = fill_rows(mask, rows);
	r = out_print(&o, &cfg->out, f);
	if (!r && !cfg->out.json)
		report_mask(mask);
	return r;
}

const struct cmd cmd_feature = {
	.name = "feature",
	.summary = "show what the driver can do",
	.options = feature_options,
	.cfg_size = sizeof(struct feature_cfg),
	.cfg_defaults = &feature_defaults,
	.columns = col_feature,
	.run = feature_run,
};
