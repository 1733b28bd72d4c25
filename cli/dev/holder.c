/* SPDX-License-Identifier: MIT */
/*
 * Who uses a disk: mounts, swap, stacked devices, loop devices, open descriptors.
 */
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "dev/dev.h"
#include "util/cleanup.h"
#include "util/fs.h"

#define NODES_MAX 256 /* the disk and its partitions (the kernel's DISK_MAX_PARTS) */
#define MNTNS_MAX 64

/* Device numbers of the disk and its partitions. */
struct nodes {
	char disk[32]; /* name of the whole disk, also when it is gone */
	size_t count;
	dev_t dev[NODES_MAX];
	char name[NODES_MAX][32];
};

static bool nodes_has(const struct nodes *n, dev_t dev)
{
	for (size_t i = 0; i < n->count; i++)
		if (n->dev[i] == dev)
			return true;
	return false;
}

static void nodes_add(struct nodes *n, const char *dir, const char *name)
{
	char path[FS_PATH_MAX], text[32];
	unsigned int maj, min;

	if (n->count == NODES_MAX ||
	    fs_read_text(fs_path(path, "%s/dev", dir), text, sizeof(text)) < 0 ||
	    sscanf(text, "%u:%u", &maj, &min) != 2)
		return;
	n->dev[n->count] = makedev(maj, min);
	snprintf(n->name[n->count], sizeof(n->name[0]), "%s", name);
	n->count++;
}

static void nodes_find(int id, struct nodes *n)
{
	char path[FS_PATH_MAX], name[32], sub[FS_PATH_MAX];
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *e;

	n->count = 0;
	snprintf(name, sizeof(name), "ublkb%d", id);
	snprintf(n->disk, sizeof(n->disk), "%s", name);
	snprintf(path, sizeof(path), "/sys/block/%s", name);
	nodes_add(n, path, name);
	d = opendir(fs_path(path, "/sys/block/%s", name));
	while (d && (e = readdir(d))) {
		if (strncmp(e->d_name, name, strlen(name)) || strlen(e->d_name) > 31)
			continue;
		snprintf(sub, sizeof(sub), "/sys/block/%s/%s", name, e->d_name);
		nodes_add(n, sub, e->d_name);
	}
}

/* Octal escapes of mountinfo (\040 is a blank), in place. */
static void unescape(char *s)
{
	char *w = s;

	for (; *s; s++) {
		unsigned int c;

		/* three digits: a text that was cut off can have fewer */
		if (s[0] == '\\' && strspn(s + 1, "01234567") >= 3 && sscanf(s + 1, "%3o", &c) == 1) {
			*w++ = (char)c;
			s += 3;
		} else {
			*w++ = *s;
		}
	}
	*w = '\0';
}

/* "ublkbN" or "ublkbNpM" */
static bool is_our_name(const char *name, const struct nodes *n)
{
	size_t len = strlen(n->disk);

	return !strncmp(name, n->disk, len) &&
	       (!name[len] || (name[len] == 'p' && isdigit((unsigned char)name[len + 1])));
}

/*
 * The mount source names the disk or a partition: file systems with devices of their own, and
 * those whose disk has gone from under them.
 */
static bool source_is_ours(const char *line, const struct nodes *n)
{
	const char *dash = strstr(line, " - ");
	char type[64], source[FS_PATH_MAX];

	if (!dash || sscanf(dash, " - %63s %511s", type, source) != 2)
		return false;
	return !strncmp(source, "/dev/", 5) && is_our_name(source + 5, n);
}

static bool mounted_in(const char *mountinfo, const struct nodes *n, char *where, size_t size)
{
	_cleanup_file_ FILE *f = fopen(mountinfo, "re");
	char line[4096], point[FS_PATH_MAX];
	unsigned int maj, min;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*d %*d %u:%u %*s %511s", &maj, &min, point) != 3)
			continue;
		if (!nodes_has(n, makedev(maj, min)) && !source_is_ours(line, n))
			continue;
		unescape(point);
		snprintf(where, size, "%s", point);
		return true;
	}
	return false;
}

static bool find_mount(const struct nodes *n, char *text)
{
	char path[FS_PATH_MAX], where[FS_PATH_MAX];

	if (!mounted_in(fs_path(path, "/proc/self/mountinfo"), n, where, sizeof(where)))
		return false;
	snprintf(text, DEV_USER_TEXT, "mounted at %.150s", where);
	return true;
}

static bool find_swap(const struct nodes *n, char *text)
{
	char path[FS_PATH_MAX], line[FS_PATH_MAX], dev[FS_PATH_MAX], type[16];
	_cleanup_file_ FILE *f = fopen(fs_path(path, "/proc/swaps"), "re");
	struct stat st;

	while (f && fgets(line, sizeof(line), f)) {
		/* files are not asked for: one can be on a dead network file system */
		if (sscanf(line, "%511s %15s", dev, type) == 2 && !strcmp(type, "partition") &&
		    stat(dev, &st) == 0 && S_ISBLK(st.st_mode) && nodes_has(n, st.st_rdev)) {
			snprintf(text, DEV_USER_TEXT, "used as swap space");
			return true;
		}
	}
	return false;
}

static bool first_entry(const char *dir, char *name, size_t size)
{
	_cleanup_dir_ DIR *d = opendir(dir);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.') {
			snprintf(name, size, "%.100s", e->d_name);
			return true;
		}
	return false;
}

/* Stacked block devices: dm, md and the like register as holders. */
static bool find_stacked(const struct nodes *n, char *text)
{
	char path[FS_PATH_MAX], name[128];

	for (size_t i = 0; i < n->count; i++) {
		fs_path(path, "/sys/class/block/%s/holders", n->name[i]);
		if (first_entry(path, name, sizeof(name))) {
			snprintf(text, DEV_USER_TEXT, "held by %s", name);
			return true;
		}
	}
	return false;
}

/* Loop devices open their backing in the kernel, without a holder entry. */
static bool find_loop(const struct nodes *n, char *text)
{
	char path[FS_PATH_MAX], file[FS_PATH_MAX];
	_cleanup_dir_ DIR *d = opendir(fs_path(path, "/sys/block"));
	struct dirent *e;
	struct stat st;

	while (d && (e = readdir(d))) {
		if (strncmp(e->d_name, "loop", 4))
			continue;
		fs_path(path, "/sys/block/%.64s/loop/backing_file", e->d_name);
		/* nor here */
		if (fs_read_text(path, file, sizeof(file)) == 0 && !strncmp(file, "/dev/", 5) &&
		    stat(file, &st) == 0 && S_ISBLK(st.st_mode) && nodes_has(n, st.st_rdev)) {
			snprintf(text, DEV_USER_TEXT, "backing of %.64s", e->d_name);
			return true;
		}
	}
	return false;
}

static bool process_opens(const char *pid, const struct nodes *n, char *text)
{
	char path[FS_PATH_MAX], comm[64];
	_cleanup_dir_ DIR *d = opendir(fs_path(path, "/proc/%.16s/fd", pid));
	struct dirent *e;
	struct statx sx;

	while (d && (e = readdir(d))) {
		/* what the kernel knows already: a dead network file system must not be asked */
		if (!isdigit((unsigned char)e->d_name[0]) ||
		    statx(dirfd(d), e->d_name, AT_STATX_DONT_SYNC, STATX_TYPE, &sx) < 0 ||
		    !S_ISBLK(sx.stx_mode) ||
		    !nodes_has(n, makedev(sx.stx_rdev_major, sx.stx_rdev_minor)))
			continue;
		if (fs_read_text(fs_path(path, "/proc/%.16s/comm", pid), comm, sizeof(comm)) < 0)
			snprintf(comm, sizeof(comm), "?");
		snprintf(text, DEV_USER_TEXT, "open by process %.16s (%s)", pid, comm);
		return true;
	}
	return false;
}

/* Mounts of other mount namespaces, each namespace looked at once. */
static bool process_mounts(const char *pid, const struct nodes *n, ino_t *seen, size_t *nr_seen,
			   char *text)
{
	char path[FS_PATH_MAX], where[FS_PATH_MAX];
	struct stat st;

	if (stat(fs_path(path, "/proc/%.16s/ns/mnt", pid), &st) < 0)
		return false;
	for (size_t i = 0; i < *nr_seen; i++)
		if (seen[i] == st.st_ino)
			return false;
	if (*nr_seen < MNTNS_MAX)
		seen[(*nr_seen)++] = st.st_ino;
	if (!mounted_in(fs_path(path, "/proc/%.16s/mountinfo", pid), n, where, sizeof(where)))
		return false;
	snprintf(text, DEV_USER_TEXT, "mounted at %.100s in the mount namespace of process %.16s",
		 where, pid);
	return true;
}

static bool find_process(const struct nodes *n, char *text)
{
	char path[FS_PATH_MAX];
	_cleanup_dir_ DIR *d = opendir(fs_path(path, "/proc"));
	ino_t seen[MNTNS_MAX];
	size_t nr_seen = 0;
	struct dirent *e;

	while (d && (e = readdir(d))) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		if (process_opens(e->d_name, n, text) ||
		    process_mounts(e->d_name, n, seen, &nr_seen, text))
			return true;
	}
	return false;
}

bool dev_find_user(int id, char *text)
{
	struct nodes n;

	nodes_find(id, &n);
	return find_mount(&n, text) || find_swap(&n, text) || find_stacked(&n, text) ||
	       find_loop(&n, text) || find_process(&n, text);
}

bool dev_may_be_used(int id, char *text)
{
	char path[FS_PATH_MAX];

	if (dev_find_user(id, text))
		return true;
	/* not to see who is there is not to see that nobody is */
	if (fs_exists(fs_path(path, "/proc/self/mountinfo")))
		return false;
	snprintf(text, DEV_USER_TEXT, "perhaps in use: without /proc that cannot be seen");
	return true;
}
