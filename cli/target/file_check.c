/* SPDX-License-Identifier: MIT */
/*
 * File target, in the foreground: options and checks; nothing is changed.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "opt.h"
#include "target/tgt_file.h"
#include "util/cleanup.h"
#include "util/fs.h"

#define AT(member) offsetof(struct dev_cfg, member)
#define POS_MAX ((uint64_t)INT64_MAX & ~4095ULL)

/* clang-format off: one option, one entry */
const struct opt file_options[] = {
	{ .name = "file",
	  .letter = 'f',
	  .type = OPT_TEXT,
	  .arg = "PATH",
	  .offset = AT(file),
	  .hint = HINT_FILE,
	  .help = "backing: a regular file or a block device (required)" },
	{ .name = "offset",
	  .type = OPT_SIZE,
	  .arg = "SIZE",
	  .offset = AT(offset),
	  .max = POS_MAX,
	  .help = "where the device starts in the backing (default: 0)" },
	{ .name = "io",
	  .type = OPT_WORD,
	  .arg = "MODE",
	  .word = cfg_io_name,
	  .offset = AT(io_word),
	  .help = "auto, direct or buffered (default: auto, direct where it can be)" },
	{ .name = "create",
	  .type = OPT_FLAG,
	  .offset = AT(create),
	  .help = "make a sparse file of --size; there must be none yet" },
	{ .name = "no-discard",
	  .type = OPT_FLAG,
	  .offset = AT(no_discard),
	  .help = "announce neither discard nor write-zeroes" },
	{ .name = "force",
	  .type = OPT_FLAG,
	  .offset = AT(force),
	  .help = "also to a backing that is mounted, held or a loop device's" },
	OPT_END
};
/* clang-format on */

/* Path of a file that need not exist: its directory must. malloc()ed. */
static char *absolute(const char *path, bool create)
{
	_cleanup_free_ char *copy = NULL, *dir = NULL;
	const char *base;
	char *slash, *abs;

	if (!create)
		return realpath(path, NULL);
	copy = strdup(path);
	slash = copy ? strrchr(copy, '/') : NULL;
	base = slash ? slash + 1 : path;
	if (slash)
		*slash = '\0';
	dir = realpath(!slash ? "." : slash == copy ? "/" : copy, NULL);
	if (!dir || asprintf(&abs, "%s/%s", strcmp(dir, "/") ? dir : "", base) < 0)
		return NULL;
	return abs;
}

/* A loop device writes to the file behind our back; it takes no lock. */
static int check_loop(const struct dev_cfg *cfg, const struct backing *b, struct fail *f)
{
	char path[FS_PATH_MAX], file[4096];
	_cleanup_dir_ DIR *d = opendir(fs_path(path, "/sys/block"));
	struct stat mine, other;
	struct dirent *e;

	if (b->is_bdev || cfg->read_only || cfg->force || fstat(b->fd, &mine) < 0)
		return 0;
	while (d && (e = readdir(d))) {
		fs_path(path, "/sys/block/%.64s/loop/backing_file", e->d_name);
		if (strncmp(e->d_name, "loop", 4) || fs_read_text(path, file, sizeof(file)) < 0 ||
		    stat(file, &other) < 0 || other.st_dev != mine.st_dev ||
		    other.st_ino != mine.st_ino)
			continue;
		return fail_set(f, EBUSY,
				"%s is the backing of %.64s (--force writes to it all the same)",
				cfg->file, e->d_name);
	}
	return 0;
}

static int check_create(struct dev_cfg *cfg, struct fail *f)
{
	_cleanup_free_ char *dir = strdup(cfg->file);
	struct stat st;

	if (lstat(cfg->file, &st) == 0)
		return fail_set(f, EEXIST, "--create: %s exists", cfg->file);
	if (!cfg->size)
		return fail_set(f, FAIL_USAGE, "--create needs --size");
	if (cfg->read_only)
		return fail_set(f, FAIL_USAGE, "--create and --read-only exclude each other");
	if (!dir)
		return fail_errno(f, ENOMEM, "cannot check %s", cfg->file);
	*strrchr(dir, '/') = '\0';
	if (access(*dir ? dir : "/", W_OK | X_OK) < 0)
		return fail_errno(f, errno, "--create: cannot write to %s", *dir ? dir : "/");
	return 0;
}

int file_check(struct dev_cfg *cfg, struct fail *f)
{
	struct backing b = { .fd = -1, .dir = -1 };
	struct dev_cfg trial;
	static char *kept; /* until the process ends */
	char *path;
	int r;

	if (!cfg->file)
		return fail_set(f, FAIL_USAGE, "--file PATH is needed");
	path = absolute(cfg->file, cfg->create);
	if (!path)
		return fail_errno(f, errno, "cannot use %s", cfg->file);
	free(kept);
	kept = path;
	cfg->file = kept;
	cfg->io = cfg->io_word ? (enum io_mode)cfg_index(cfg_io_name, cfg->io_word) : IO_AUTO;
	if (cfg->create)
		return check_create(cfg, f);
	if (cfg->force && cfg->read_only)
		return fail_set(f, FAIL_USAGE, "--force and --read-only exclude each other");
	trial = *cfg;
	r = file_open_backing(&trial, &b, f);
	cfg->file_dev = trial.file_dev;
	cfg->file_ino = trial.file_ino;
	if (!r)
		r = check_loop(&trial, &b, f);
	if (!r)
		r = file_lock_backing(&trial, &b, f);
	if (!r)
		r = file_plan(&trial, &b, f);
	if (!r) {
		/* found again by the server, which is the one that counts; size for the caller */
		cfg->size = trial.size;
		cfg->block_size = trial.block_size;
	}
	if (b.fd >= 0)
		close(b.fd);
	return r;
}

int file_same(const struct dev_cfg *cfg, struct fail *f)
{
	struct stat st;
	int r;

	if (stat(cfg->file, &st) < 0)
		return fail_errno(f, errno, "cannot use %s", cfg->file);
	r = file_check_identity(cfg, &st, f);
	if (!r && S_ISREG(st.st_mode) && (uint64_t)st.st_size < cfg->offset + cfg->size)
		return fail_set(f, ESTALE, "%s has %llu bytes: device %d needs %llu", cfg->file,
				(unsigned long long)st.st_size, cfg->id,
				(unsigned long long)(cfg->offset + cfg->size));
	return r;
}

/* A regular file grows, a sparse end; a block device is as large as it is. */
static int make_room(const struct dev_cfg *cfg, int fd, uint64_t need, struct fail *f)
{
	struct stat st;
	uint64_t have;
	int r;

	if (fstat(fd, &st) < 0)
		return fail_errno(f, errno, "cannot look at %s", cfg->file);
	r = file_check_identity(cfg, &st, f);
	if (r < 0)
		return r;
	have = (uint64_t)st.st_size;
	if (S_ISBLK(st.st_mode) && ioctl(fd, BLKGETSIZE64, &have) < 0)
		return fail_errno(f, errno, "cannot get the size of %s", cfg->file);
	if (have >= need)
		return 0;
	if (S_ISBLK(st.st_mode) || cfg->read_only)
		return fail_set(f, ENOSPC, "%s has %llu bytes: the device would need %llu",
				cfg->file, (unsigned long long)have, (unsigned long long)need);
	if (ftruncate(fd, (off_t)need) < 0)
		return fail_errno(f, errno, "cannot make %s %llu bytes long", cfg->file,
				  (unsigned long long)need);
	return 0;
}

int file_resize(const struct dev_cfg *cfg, uint64_t size, struct fail *f)
{
	_cleanup_fd_ int fd = open(cfg->file, (cfg->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);

	if (fd < 0)
		return fail_errno(f, errno, "cannot open %s", cfg->file);
	if (size > POS_MAX - cfg->offset)
		return fail_set(f, FAIL_USAGE, "SIZE: too large from offset %llu on",
				(unsigned long long)cfg->offset);
	return make_room(cfg, fd, cfg->offset + size, f);
}
