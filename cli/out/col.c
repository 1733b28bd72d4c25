/* SPDX-License-Identifier: MIT */
#include "out/col.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "abi/feature.h"
#include "dev/dev.h"
#include "util/cleanup.h"

/* ---- devices -------------------------------------------------------------------------- */

#define GET_TEXT(fn, member)                                                                       \
	static void fn(const void *row, struct col_value *ret)                                     \
	{                                                                                          \
		ret->text = ((const struct dev_view *)row)->member;                                \
	}
#define GET_NUM(fn, member)                                                                        \
	static void fn(const void *row, struct col_value *ret)                                     \
	{                                                                                          \
		ret->num = ((const struct dev_view *)row)->member;                                 \
	}

GET_NUM(get_id, id)
GET_TEXT(get_name, name)
GET_TEXT(get_target, target)
GET_TEXT(get_state, state)
GET_NUM(get_size, size)
GET_TEXT(get_mode, data_mode)
GET_NUM(get_batch, batch)
GET_NUM(get_queues, queues)
GET_NUM(get_depth, depth)
GET_NUM(get_pid, pid)
GET_NUM(get_threads, threads)
GET_TEXT(get_recovery, recovery)
GET_NUM(get_ro, read_only)
GET_NUM(get_block_size, block_size)
GET_NUM(get_phys_block_size, phys_block_size)
GET_NUM(get_max_io, max_io)
GET_NUM(get_uid, uid)
GET_NUM(get_gid, gid)
GET_TEXT(get_char_device, char_device)
GET_NUM(get_node_missing, node_missing)

static void get_device(const void *row, struct col_value *ret)
{
	const struct dev_view *v = row;

	ret->text = v->has_disk ? v->device : NULL;
}

static void get_created(const void *row, struct col_value *ret)
{
	const struct dev_view *v = row;

	ret->text = v->has_record ? v->rec.created : NULL;
}

/* Texts of the record that are empty where they mean nothing. */
static const char *rec_text(const struct dev_view *v, const char *text)
{
	return v->has_record && *text ? text : NULL;
}

static void get_backing(const void *row, struct col_value *ret)
{
	const struct dev_view *v = row;

	ret->text = rec_text(v, v->rec.backing);
}

static void get_io(const void *row, struct col_value *ret)
{
	const struct dev_view *v = row;

	ret->text = rec_text(v, v->rec.io);
}

static void get_offset(const void *row, struct col_value *ret)
{
	const struct dev_view *v = row;

	ret->num = rec_text(v, v->rec.backing) ? (int64_t)v->rec.cfg.offset : -1;
}

static void get_null_data(const void *row, struct col_value *ret)
{
	const struct dev_view *v = row;

	ret->text = rec_text(v, v->rec.null_data);
}

static void get_affinity(const void *row, struct col_value *ret)
{
	const struct dev_view *v = row;

	ret->text = rec_text(v, v->rec.affinity);
}

static void get_scheduler(const void *row, struct col_value *ret)
{
	const struct dev_view *v = row;

	ret->text = *v->scheduler ? v->scheduler : NULL;
}

static void get_queue_attr(const void *row, struct col_value *ret)
{
	const struct dev_view *v = row;

	ret->text = rec_text(v, v->rec.queue_attr);
}

static void get_poll_us(const void *row, struct col_value *ret)
{
	const struct dev_view *v = row;

	ret->num = v->has_record ? (int64_t)v->rec.cfg.poll_us : -1;
}

static void get_hugepages(const void *row, struct col_value *ret)
{
	const struct dev_view *v = row;

	ret->text = rec_text(v, v->rec.hugepages);
}

static void get_flags(const void *row, struct col_value *ret)
{
	const struct dev_view *v = row;

	ret->has_names = v->has_flags;
	for (unsigned int bit = 0; bit < 64; bit++) {
		const struct abi_feature *feat = abi_feature_by_bit(bit);

		if (!(v->flags >> bit & 1))
			continue;
		snprintf(ret->spare[ret->nr_names], sizeof(ret->spare[0]), "bit%u", bit);
		ret->names[ret->nr_names] = feat ? feat->name : ret->spare[ret->nr_names];
		ret->nr_names++;
	}
}

static const struct col device_cols[] = {
	{ "ID", "id", COL_NUM, true, "device id", get_id },
	{ "NAME", "name", COL_TEXT, true, "kernel name of the disk", get_name },
	{ "DEVICE", "device", COL_TEXT, true, "path of the block device", get_device },
	{ "TYPE", "target", COL_TEXT, true, "target that answers its I/O", get_target },
	{ "STATE", "state", COL_TEXT, true, "live, dead, quiesced or fail-io", get_state },
	{ "SIZE", "size", COL_SIZE, true, "size", get_size },
	{ "MODE", "data_mode", COL_TEXT, true, "how data moves between driver and server", get_mode },
	{ "BATCH", "batch", COL_BOOL, true, "batch I/O path", get_batch },
	{ "QUEUES", "queues", COL_NUM, true, "hardware queues", get_queues },
	{ "DEPTH", "depth", COL_NUM, true, "requests per queue", get_depth },
	{ "PID", "pid", COL_NUM, true, "process id of the server", get_pid },
	{ "BACKING", "backing", COL_TEXT, true, "path of the backing file or device", get_backing },
	{ "THREADS", "threads", COL_NUM, false, "I/O threads of the server", get_threads },
	{ "RECOVERY", "recovery", COL_TEXT, false, "off, queue, reissue or fail-io", get_recovery },
	{ "RO", "read_only", COL_BOOL, false, "read only", get_ro },
	{ "IO", "io", COL_TEXT, false, "direct or buffered I/O on the backing", get_io },
	{ "OFFSET", "offset", COL_SIZE, false, "start of the device in the backing", get_offset },
	{ "BLOCK-SIZE", "block_size", COL_SIZE, false, "logical block size", get_block_size },
	{ "PHYS-BLOCK-SIZE", "physical_block_size", COL_SIZE, false, "physical block size",
	  get_phys_block_size },
	{ "MAX-IO", "max_io", COL_SIZE, false, "largest request", get_max_io },
	{ "NULL-DATA", "null_data", COL_TEXT, false, "what reads of a null device return",
	  get_null_data },
	{ "UID", "uid", COL_NUM, false, "user id of the owner", get_uid },
	{ "GID", "gid", COL_NUM, false, "group id of the owner", get_gid },
	{ "FLAGS", "flags", COL_NAMES, false, "driver features of the device", get_flags },
	{ "CHAR-DEVICE", "char_device", COL_TEXT, false, "path of the server's device",
	  get_char_device },
	{ "NODE-MISSING", "node_missing", COL_BOOL, false, "the disk has no usable node in /dev",
	  get_node_missing },
	{ "CREATED", "created", COL_TEXT, false, "when it was added (RFC 3339, UTC)", get_created },
	{ "AFFINITY", "affinity", COL_TEXT, false, "CPUs of queues that do not have the driver's",
	  get_affinity },
	{ "SCHEDULER", "scheduler", COL_TEXT, false, "I/O scheduler of the disk", get_scheduler },
	{ "QUEUE-ATTR", "queue_attr", COL_TEXT, false, "queue attributes that add was asked to set",
	  get_queue_attr },
	{ "POLL", "poll_us", COL_NUM, false,
	  "microseconds that threads look for work before they sleep", get_poll_us },
	{ "HUGEPAGES", "hugepages", COL_TEXT, false, "what add --hugepages got for I/O buffers",
	  get_hugepages },
};

const struct col *col_device(size_t *ret_count)
{
	*ret_count = ARRAY_SIZE(device_cols);
	return device_cols;
}

/* ---- features ------------------------------------------------------------------------- */

static void feat_bit(const void *row, struct col_value *ret)
{
	ret->num = ((const struct col_feature_row *)row)->bit;
}

static void feat_name(const void *row, struct col_value *ret)
{
	ret->text = ((const struct col_feature_row *)row)->name;
}

static void feat_supported(const void *row, struct col_value *ret)
{
	ret->num = ((const struct col_feature_row *)row)->supported;
}

static void feat_since(const void *row, struct col_value *ret)
{
	ret->text = ((const struct col_feature_row *)row)->since;
}

static void feat_option(const void *row, struct col_value *ret)
{
	ret->text = ((const struct col_feature_row *)row)->option;
}

static void feat_summary(const void *row, struct col_value *ret)
{
	ret->text = ((const struct col_feature_row *)row)->summary;
}

static const struct col feature_cols[] = {
	{ "BIT", "bit", COL_NUM, true, "number of the bit", feat_bit },
	{ "NAME", "name", COL_TEXT, true, "the kernel's name", feat_name },
	{ "SUPPORTED", "supported", COL_BOOL, true, "this driver has it", feat_supported },
	{ "SINCE", "since", COL_TEXT, true, "first kernel", feat_since },
	{ "OPTION", "option", COL_TEXT, true, "option or command that uses it", feat_option },
	{ "SUMMARY", "summary", COL_TEXT, true, "what it is", feat_summary },
};

const struct col *col_feature(size_t *ret_count)
{
	*ret_count = ARRAY_SIZE(feature_cols);
	return feature_cols;
}

/* ---- selection ------------------------------------------------------------------------ */

static int find_col(const struct out *o, const char *name, size_t len)
{
	for (size_t i = 0; i < o->nr_cols; i++)
		if (strlen(o->cols[i].name) == len && !strncasecmp(o->cols[i].name, name, len))
			return (int)i;
	return -1;
}

static size_t select_defaults(const struct out *o, size_t *index)
{
	size_t n = 0;

	for (size_t i = 0; i < o->nr_cols; i++)
		if (o->cols[i].by_default)
			index[n++] = i;
	return n;
}

int col_select(const struct out *o, const char *spec, size_t *ret_index, size_t *ret_count,
	       struct fail *f)
{
	size_t n = 0;

	if (!spec || *spec == '+')
		n = select_defaults(o, ret_index);
	if (spec && *spec == '+')
		spec++;
	while (spec) {
		size_t len = strcspn(spec, ",");
		int i = find_col(o, spec, len);

		if (i < 0)
			return fail_set(f, FAIL_USAGE, "unknown column '%.*s' (see --list-columns)",
					(int)len, spec);
		if (n == OUT_COLS_MAX)
			return fail_set(f, FAIL_USAGE, "more than %d columns", OUT_COLS_MAX);
		ret_index[n++] = (size_t)i;
		spec = spec[len] ? spec + len + 1 : NULL;
	}
	*ret_count = n;
	return 0;
}

void col_list(const struct col *cols, size_t nr_cols)
{
	for (size_t i = 0; i < nr_cols; i++)
		printf("%-16s %-20s %s%s\n", cols[i].name, cols[i].key, cols[i].help,
		       cols[i].by_default ? " *" : "");
}

int out_print(const struct out *o, const struct out_opts *opts, struct fail *f)
{
	return opts->json ? out_json(o, f) : out_table(o, opts, f);
}
