/* SPDX-License-Identifier: MIT */
#include "isolate.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/sanitize.h"

/* any directory that is always there: what is below is only covered in the own namespace */
#define NEW_ROOT "/proc"

#if HAS_SANITIZER
/* The leak checker needs /proc, which an empty root has not: it is off in a server that has one. */
static bool in_empty_root;
int __lsan_is_turned_off(void);

int __lsan_is_turned_off(void)
{
	return in_empty_root;
}
#endif

int isolate_namespace(void)
{
	if (unshare(CLONE_NEWNS) < 0)
		return -errno;
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return -errno;
	return 0;
}

int isolate_root(void)
{
	if (mount("ublkctl", NEW_ROOT, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
		  "size=4k,nr_inodes=2,mode=0555") < 0)
		return -errno;
	if (chdir(NEW_ROOT) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
		return -errno;
	/* the old root lies on top of the new one now */
	if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return -errno;
#if HAS_SANITIZER
	in_empty_root = true;
#endif
	/* no propagation to or from anybody, and nothing to write */
	mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	return 0;
}
