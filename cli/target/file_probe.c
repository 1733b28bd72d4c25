/* SPDX-License-Identifier: MIT */
/*
 * File target: what a backing is and can do.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <liburing.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "target/tgt_file.h"
#include "util/fs.h"
#include "util/num.h"

/* IORING_OP_LISTEN of Linux 6.11; 6.15 has the next ones */
#define LAST_OP_BEFORE_MENDED 57

/* A number of the backing's request queue; partitions have theirs in the whole disk. */
static int queue_attr(const struct stat *st, const char *attr, uint64_t *ret)
{
	char path[FS_PATH_MAX];
	unsigned int maj = major(st->st_rdev), min = minor(st->st_rdev);

	if (fs_read_u64(fs_path(path, "/sys/dev/block/%u:%u/queue/%s", maj, min, attr), ret) == 0)
		return 0;
	return fs_read_u64(fs_path(path, "/sys/dev/block/%u:%u/../queue/%s", maj, min, attr), ret);
}

static void probe_bdev(struct backing *b, const struct stat *st)
{
	unsigned int phys = 0;
	int logical = 0;
	uint64_t v;

	if (ioctl(b->fd, BLKSSZGET, &logical) == 0 && logical > 0)
		b->block_size = (uint64_t)logical;
	if (ioctl(b->fd, BLKPBSZGET, &phys) == 0 && phys)
		b->phys_block_size = phys;
	if (queue_attr(st, "dma_alignment", &v) == 0)
		b->dio_mem_align = (uint32_t)v + 1;
	if (queue_attr(st, "discard_max_bytes", &b->discard_max) == 0)
		b->can_discard = b->discard_max > 0;
	if (queue_attr(st, "discard_granularity", &v) == 0 && v)
		b->discard_granularity = v;
	if (queue_attr(st, "write_zeroes_max_bytes", &b->zero_max) == 0)
		b->can_zero = b->zero_max > 0;
	if (queue_attr(st, "max_segments", &v) == 0)
		b->max_segments = (uint32_t)v;
	if (queue_attr(st, "max_segment_size", &v) == 0)
		b->max_segment_size = (uint32_t)v;
}

int file_probe(struct backing *b, const char *path, struct fail *f)
{
	struct stat st;

	if (fstat(b->fd, &st) < 0)
		return fail_errno(f, errno, "cannot look at %s", path);
	b->block_size = 512;
	b->phys_block_size = 4096;
	b->dio_mem_align = 512;
	b->discard_granularity = (uint64_t)st.st_blksize;
	if (!b->is_bdev) {
		b->size = (uint64_t)st.st_size;
		return 0;
	}
	if (ioctl(b->fd, BLKGETSIZE64, &b->size) < 0)
		return fail_errno(f, errno, "cannot get the size of %s", path);
	probe_bdev(b, &st);
	return 0;
}

/* Smallest block that can be read directly, where statx does not tell: found by reading. */
static uint64_t probe_alignment(const struct backing *b)
{
	static _Alignas(4096) char buf[4096];
	uint64_t align = b->block_size;

	while (align < sizeof(buf) && pread(b->fd, buf, align, 0) < 0)
		align *= 2;
	return align;
}

/* Alignment that direct I/O on the open file needs; false: it cannot. Linux 6.1 for statx. */
bool file_probe_direct(struct backing *b, uint64_t *ret_offset_align)
{
	struct statx sx;
	int flags = fcntl(b->fd, F_GETFL);

	if (fcntl(b->fd, F_SETFL, flags | O_DIRECT) < 0)
		return false;
	*ret_offset_align = probe_alignment(b);
	if (statx(b->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) == 0 &&
	    sx.stx_mask & STATX_DIOALIGN) {
		if (!sx.stx_dio_offset_align) {
			fcntl(b->fd, F_SETFL, flags);
			return false;
		}
		*ret_offset_align = sx.stx_dio_offset_align;
		b->dio_mem_align = sx.stx_dio_mem_align;
	}
	return true;
}

/* Made of other block devices, as those of dm and md are: such a one splits requests among them. */
static bool is_stacked(int fd)
{
	char path[FS_PATH_MAX];
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISBLK(st.st_mode))
		return false;
	fs_path(path, "/sys/dev/block/%u:%u/slaves", major(st.st_rdev), minor(st.st_rdev));
	if (fs_has_entries(path))
		return true;
	/* a partition of it */
	fs_path(path, "/sys/dev/block/%u:%u/../slaves", major(st.st_rdev), minor(st.st_rdev));
	return fs_has_entries(path);
}

/*
 * A request of io_uring that is tried without waiting and is split on its way, one part refused because
 * it would wait, the other under way: before Linux 6.14 its completion is lost (seen on 6.12 with dm), and
 * with it the request of the client. Which kernel has it mended shows in what else its io_uring can.
 */
void file_probe_must_wait(struct backing *b)
{
	struct io_uring_probe *probe;

	if (!is_stacked(b->fd))
		return;
	probe = io_uring_get_probe();
	b->must_wait = !probe || probe->last_op <= LAST_OP_BEFORE_MENDED;
	io_uring_free_probe(probe);
}

/* Beyond the end nothing changes: what the file system takes there, it takes everywhere. */
void file_probe_fallocate(struct backing *b)
{
	off_t end = (off_t)num_round_up(b->size, 1 << 20), len = 1 << 16;
	bool punch = fallocate(b->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, end, len) == 0;
	bool zero = punch &&
		    fallocate(b->fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, end, len) == 0;

	/* gives back what the second probe has allocated */
	if (zero)
		fallocate(b->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, end, len);
	b->can_discard = punch;
	b->can_zero = zero;
	b->discard_max = b->zero_max = UINT32_MAX & ~((1ULL << 20) - 1);
}
