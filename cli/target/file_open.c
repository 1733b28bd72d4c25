/* SPDX-License-Identifier: MIT */
/*
 * File target, before any I/O: the backing is opened, locked, and what of it is served.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "engine/iobuf.h"
#include "opt.h"
#include "target/tgt_file.h"
#include "util/cleanup.h"
#include "util/fs.h"
#include "util/num.h"

/* ---- opening ---------------------------------------------------------------------------- */

static int open_flags(const struct dev_cfg *cfg)
{
	return (cfg->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC;
}

/* A block device is itself, whichever of its nodes is named. */
static void set_identity(struct dev_cfg *cfg, const struct stat *st)
{
	bool is_bdev = S_ISBLK(st->st_mode);

	cfg->file_dev = is_bdev ? st->st_rdev : st->st_dev;
	cfg->file_ino = is_bdev ? 0 : st->st_ino;
}

int file_check_identity(const struct dev_cfg *cfg, const struct stat *st, struct fail *f)
{
	struct dev_cfg now = { 0 };

	set_identity(&now, st);
	if (now.file_dev == cfg->file_dev && now.file_ino == cfg->file_ino)
		return 0;
	return fail_set(f, ESTALE, "%s is not the backing that device %d had: another file is there",
			cfg->file, cfg->id);
}

/* Files of /proc and /sys look regular, and are no storage. */
static bool is_pseudo(const char *path)
{
	struct statfs fs;

	return statfs(path, &fs) == 0 && (fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC);
}

static int open_folder(const char *file)
{
	_cleanup_free_ char *dir = strdup(file);

	if (!dir)
		return -1;
	/* keeps the slash: "/" for a file in the root */
	strrchr(dir, '/')[1] = '\0';
	return open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* O_EXCL claims a block device: EBUSY when it is mounted, swapped to or held. */
int file_open_backing(struct dev_cfg *cfg, struct backing *b, struct fail *f)
{
	struct stat st;
	int flags = open_flags(cfg), ro = 0;

	if (cfg->create) {
		flags |= O_CREAT | O_EXCL;
	} else {
		if (stat(cfg->file, &st) < 0)
			return fail_errno(f, errno, "cannot use %s", cfg->file);
		b->is_bdev = S_ISBLK(st.st_mode);
		if (!cfg->same_backing)
			set_identity(cfg, &st);
		if (S_ISDIR(st.st_mode))
			return fail_errno(f, EISDIR, "cannot use %s", cfg->file);
		if (!b->is_bdev && (!S_ISREG(st.st_mode) || is_pseudo(cfg->file)))
			return fail_set(f, EINVAL, "%s is neither a regular file nor a block device",
					cfg->file);
		if (b->is_bdev && !cfg->read_only && !cfg->force)
			flags |= O_EXCL;
	}
	b->fd = open(cfg->file, flags, 0666 & ~cfg->umask);
	if (b->fd < 0 && errno == EBUSY)
		return fail_set(
			f, EBUSY,
			"%s is in use: mounted, swapped to or held (--force writes to it all the same)",
			cfg->file);
	if (b->fd < 0 && errno == EEXIST)
		return fail_set(f, EEXIST, "--create: %s exists", cfg->file);
	if (b->fd < 0)
		return fail_errno(f, errno, "cannot open %s", cfg->file);
	if (cfg->same_backing && fstat(b->fd, &st) == 0 && file_check_identity(cfg, &st, f) < 0)
		return -f->err;
	if (fstat(b->fd, &st) < 0)
		return fail_errno(f, errno, "cannot use %s", cfg->file);
	if (S_ISBLK(st.st_mode) != b->is_bdev)
		return fail_set(f, EBUSY, "%s: another file has taken its place just now", cfg->file);
	/* of what was opened: the name can be another file's by now */
	if (!cfg->same_backing)
		set_identity(cfg, &st);
	if (b->is_bdev && !cfg->read_only && ioctl(b->fd, BLKROGET, &ro) == 0 && ro)
		return fail_set(f, EACCES, "%s is read only (use --read-only)", cfg->file);
	if (cfg->create)
		b->dir = open_folder(cfg->file);
	return 0;
}

/* Writers alone, readers together: a lock of the open file, dropped with the server. */
int file_lock_backing(const struct dev_cfg *cfg, const struct backing *b, struct fail *f)
{
	struct flock fl = { .l_type = cfg->read_only ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET };

	if (fcntl(b->fd, F_OFD_SETLK, &fl) == 0)
		return 0;
	if (errno == EAGAIN || errno == EACCES)
		return fail_set(f, EBUSY, "%s is attached already", cfg->file);
	/* a file system without locks: said, not hidden */
	msg_warn("%s cannot be locked (%s): nothing keeps others from writing to it", cfg->file,
		 strerror(errno));
	return 0;
}

/* ---- what of it is served ----------------------------------------------------------------- */

/* Effective I/O mode; the file's flags follow. An explicit wish is met or refused. */
static int choose_io(struct dev_cfg *cfg, struct backing *b, struct fail *f)
{
	uint64_t align = 0;
	bool can = false, fits = false;

	if (cfg->io != IO_BUFFERED) {
		can = file_probe_direct(b, &align);
		fits = can && (!cfg->block_size || cfg->block_size >= align) &&
		       cfg->offset % align == 0;
	}
	if (cfg->io == IO_DIRECT && !can)
		return fail_set(f, FAIL_UNSUPPORTED,
				"--io direct: the file system of %s has no direct I/O", cfg->file);
	if (cfg->io == IO_DIRECT && !fits)
		return fail_set(f, FAIL_USAGE,
				"--io direct: block size and offset must be multiples of %llu on %s",
				(unsigned long long)align, cfg->file);
	if (can && !fits)
		fcntl(b->fd, F_SETFL, fcntl(b->fd, F_GETFL) & ~O_DIRECT);
	cfg->io = fits ? IO_DIRECT : IO_BUFFERED;
	if (fits && align > b->block_size)
		b->block_size = align;
	return 0;
}

static int default_size(struct dev_cfg *cfg, const struct backing *b, struct fail *f)
{
	uint64_t rest = b->size - cfg->offset, over = rest % cfg->block_size;

	if (rest < cfg->block_size)
		return fail_set(f, EINVAL,
				"%s has %llu bytes from offset %llu on: less than a block of %llu",
				cfg->file, (unsigned long long)rest, (unsigned long long)cfg->offset,
				(unsigned long long)cfg->block_size);
	if (over)
		msg_warn("the last %llu bytes of %s are no whole block and are left out",
			 (unsigned long long)over, cfg->file);
	cfg->size = rest - over;
	return 0;
}

static int check_range(struct dev_cfg *cfg, const struct backing *b, struct fail *f)
{
	unsigned long long size = cfg->size, offset = cfg->offset, block = cfg->block_size;

	if (offset % block)
		return fail_set(f, FAIL_USAGE,
				"--offset: %llu is not a multiple of the block size %llu", offset,
				block);
	if (!b->size)
		return fail_set(f, EINVAL, "%s is empty", cfg->file);
	if (offset >= b->size)
		return fail_set(f, EINVAL, "offset %llu is at or beyond the end of %s (%llu bytes)",
				offset, cfg->file, (unsigned long long)b->size);
	if (!size)
		return default_size(cfg, b, f);
	if (size % block)
		return fail_set(f, FAIL_USAGE,
				"--size: %llu bytes are not a multiple of the block size %llu",
				size, block);
	if (size > b->size - offset)
		return fail_set(f, EINVAL, "%s ends %llu bytes before --size %llu from offset %llu",
				cfg->file, size - (unsigned long long)(b->size - offset), size,
				offset);
	return 0;
}

/* Block size, I/O mode and range; cfg is complete afterwards. */
int file_plan(struct dev_cfg *cfg, struct backing *b, struct fail *f)
{
	int r = file_probe(b, cfg->file, f);

	if (!r && b->is_bdev && cfg->block_size && cfg->block_size < b->block_size)
		return fail_set(f, FAIL_USAGE, "--block-size: %s has blocks of %llu bytes",
				cfg->file, (unsigned long long)b->block_size);
	if (!r)
		r = choose_io(cfg, b, f);
	if (r < 0)
		return r;
	if (!cfg->block_size)
		cfg->block_size = b->block_size;
	if (cfg->phys_block_size && cfg->phys_block_size < cfg->block_size)
		return fail_set(f, FAIL_USAGE,
				"--physical-block-size: %llu is smaller than the block size %llu of %s",
				(unsigned long long)cfg->phys_block_size,
				(unsigned long long)cfg->block_size, cfg->file);
	if (!cfg->phys_block_size)
		cfg->phys_block_size =
			b->phys_block_size > cfg->block_size ? b->phys_block_size : cfg->block_size;
	return check_range(cfg, b, f);
}

/* ---- in the server -------------------------------------------------------------------------- */

static int open_all(struct dev_cfg *cfg, struct backing *b, struct fail *f)
{
	int r;

	b->path = cfg->file;
	r = file_open_backing(cfg, b, f);
	if (!r)
		r = file_lock_backing(cfg, b, f);
	if (!r && cfg->create && ftruncate(b->fd, (off_t)(cfg->offset + cfg->size)) < 0)
		r = fail_errno(f, errno, "cannot make %s %llu bytes long", cfg->file,
			       (unsigned long long)(cfg->offset + cfg->size));
	if (!r)
		r = file_plan(cfg, b, f);
	if (r < 0)
		return r;
	if (cfg->io == IO_DIRECT)
		file_probe_must_wait(b);
	cfg->file_size = b->size;
	return 0;
}

int file_open(struct dev_cfg *cfg, struct tgt_dev *ret, struct fail *f)
{
	struct backing *b = calloc(1, sizeof(*b));
	int r;

	if (!b)
		return fail_errno(f, ENOMEM, "cannot open %s", cfg->file);
	b->fd = b->dir = -1;
	*ret = (struct tgt_dev){ .priv = b };
	r = open_all(cfg, b, f);
	if (r < 0) {
		file_close(ret, true);
		return r;
	}
	if (!b->is_bdev && !cfg->read_only && !cfg->no_discard)
		file_probe_fallocate(b);
	if (cfg->no_discard || cfg->read_only)
		b->can_discard = b->can_zero = false;
	b->offset = cfg->offset;
	/* work for each read; the backing's owner and root may spare it, others do without */
	fcntl(b->fd, F_SETFL, fcntl(b->fd, F_GETFL) | O_NOATIME);
	ret->fds[0] = b->fd;
	ret->nr_fds = 1;
	/* keeps the quick way of a request, which is for buffers of the table, free of a question */
	ret->plain_bufs = b->must_wait;
	return 0;
}

void file_close(struct tgt_dev *dev, bool undo)
{
	struct backing *b = dev->priv;

	if (!b)
		return;
	/* by descriptor: the server's root may be another one by now */
	if (undo && b->dir >= 0)
		unlinkat(b->dir, strrchr(b->path, '/') + 1, 0);
	if (b->dir >= 0)
		close(b->dir);
	if (b->fd >= 0)
		close(b->fd);
	free(b);
	dev->priv = NULL;
}

/* ---- parameters ----------------------------------------------------------------------------- */

static uint32_t sectors(uint64_t bytes)
{
	return bytes >> 9 > UINT32_MAX >> 9 ? UINT32_MAX >> 9 : (uint32_t)(bytes >> 9);
}

static void zero_copy_limits(const struct backing *b, struct ublk_params *p)
{
	/* the client's own pages go to the backing: its alignment and segments are theirs */
	if (b->dio_mem_align > 1 && b->dio_mem_align <= 4096) {
		p->types |= UBLK_PARAM_TYPE_DMA_ALIGN;
		p->dma.alignment = b->dio_mem_align - 1;
	}
	if (b->is_bdev && b->max_segments && b->max_segment_size >= 4096) {
		p->types |= UBLK_PARAM_TYPE_SEGMENT;
		p->seg.seg_boundary_mask = INT64_MAX;
		p->seg.max_segments =
			b->max_segments > UINT16_MAX ? UINT16_MAX : (uint16_t)b->max_segments;
		p->seg.max_segment_size = b->max_segment_size;
	}
}

void file_params(const struct tgt_dev *dev, const struct dev_cfg *cfg, struct ublk_params *p)
{
	const struct backing *b = dev->priv;

	if (!cfg->read_only)
		p->basic.attrs |= UBLK_ATTR_VOLATILE_CACHE | UBLK_ATTR_FUA;
	if (b->can_discard || b->can_zero) {
		p->types |= UBLK_PARAM_TYPE_DISCARD;
		p->discard.discard_granularity =
			(uint32_t)num_round_up(b->discard_granularity, cfg->block_size);
		p->discard.max_discard_sectors = b->can_discard ? sectors(b->discard_max) : 0;
		p->discard.max_discard_segments = b->can_discard;
		p->discard.max_write_zeroes_sectors = b->can_zero ? sectors(b->zero_max) : 0;
	}
	if (iobuf_mode(cfg->mode)->request_buf && cfg->io == IO_DIRECT)
		zero_copy_limits(b, p);
}
