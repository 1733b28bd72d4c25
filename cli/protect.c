/* SPDX-License-Identifier: MIT */
#include "protect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/fs.h"
#include "util/sanitize.h"

#define MEMINFO_MAX 4096

void protect_from_oom(void)
{
	_cleanup_fd_ int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, "-1000", 5) != 5)
		msg_debug("the OOM killer may choose this server: %s", strerror(errno));
}

static int raise_files(unsigned int need, struct fail *f)
{
	struct rlimit now, more;

	if (getrlimit(RLIMIT_NOFILE, &now) < 0 || now.rlim_cur >= need)
		return 0;
	more = (struct rlimit){ need, need > now.rlim_max ? need : now.rlim_max };
	if (setrlimit(RLIMIT_NOFILE, &more) == 0)
		return 0;
	return fail_set(f, EMFILE, "%u open files are needed, the limit is %llu (RLIMIT_NOFILE)",
			need, (unsigned long long)now.rlim_max);
}

int protect_process(unsigned int need_files, struct fail *f)
{
	const struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };

	/* of a command, not of what it starts: writes to the backing, and the time that a device lives */
	setrlimit(RLIMIT_FSIZE, &all);
	setrlimit(RLIMIT_CPU, &all);
	if (setrlimit(RLIMIT_MEMLOCK, &all) < 0)
		msg_debug("memory that can be locked stays limited: %s", strerror(errno));
	return raise_files(need_files, f);
}

int protect_can_lock(uint64_t bytes, struct fail *f)
{
	char text[MEMINFO_MAX];
	unsigned long long kib;
	const char *p;

	if (fs_read_text("/proc/meminfo", text, sizeof(text)) < 0 ||
	    !(p = strstr(text, "MemAvailable:")) || sscanf(p, "%*s %llu", &kib) != 1 ||
	    bytes >> 10 < kib)
		return 0;
	return fail_set(f, ENOMEM,
			"cannot lock %llu MiB of I/O buffers: %llu MiB of memory are available",
			(unsigned long long)bytes >> 20, kib >> 10);
}

int protect_memory(void)
{
	struct rlimit now;

	/* which maps terabytes */
	if (HAS_SANITIZER)
		return 0;
	/* below a limit the next mapping would fail, a thread's stack for example */
	if (getrlimit(RLIMIT_MEMLOCK, &now) < 0 || now.rlim_cur != RLIM_INFINITY)
		return -EPERM;
	return mlockall(MCL_CURRENT | MCL_FUTURE) < 0 ? -errno : 0;
}
