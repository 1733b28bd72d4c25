/* SPDX-License-Identifier: MIT */
#include "companion.h"

#include <errno.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctrl/ctrl.h"
#include "daemon.h"
#include "isolate.h"
#include "msg.h"
#include "protect.h"

/* without a gap: all of it is written to a pipe */
struct order {
	uint64_t cookie, id;
};

/* Ids are used again: somebody else may have deleted the device meanwhile. */
static bool is_gone(struct ctrl *c, const struct order *o)
{
	struct ublksrv_ctrl_dev_info info;
	int r = ctrl_get_dev_info(c, (uint32_t)o->id, &info);

	return r == -ENODEV || (!r && info.ublksrv_flags != o->cookie);
}

/* The order arrives when the server is asked to end; the end of the pipe is the server's. */
static void companion_main(int fd, void *arg)
{
	struct ctrl c = { 0 };
	const char *stage;
	struct order o;

	if (ctrl_open(&c, INT32_MAX, &stage) < 0)
		return;
	c.unprivileged = *(const bool *)arg;
	protect_from_oom();
	/* it pins nothing either, and is never the last one in a namespace with the device's mount */
	if (chdir("/") < 0 || isolate_namespace() < 0 || isolate_root() < 0)
		msg_debug("the companion keeps its view of the file systems");
	protect_memory();
	if (read(fd, &o, sizeof(o)) == (ssize_t)sizeof(o)) {
		if (!is_gone(&c, &o))
			ctrl_stop_dev(&c, (uint32_t)o.id);
		if (!is_gone(&c, &o))
			ctrl_del_dev(&c, (uint32_t)o.id);
	}
	ctrl_close(&c);
}

int companion_start(struct companion *c, bool unprivileged)
{
	pid_t pid = daemon_companion(companion_main, &unprivileged, &c->fd);

	if (pid < 0)
		return (int)pid;
	c->pid = pid;
	c->busy = false;
	return 0;
}

int companion_delete(struct companion *c, uint32_t id, uint64_t cookie)
{
	const struct order o = { .cookie = cookie, .id = id };

	if (c->busy)
		return 0;
	if (c->fd < 0 || write(c->fd, &o, sizeof(o)) != (ssize_t)sizeof(o))
		return -ESRCH;
	c->busy = true;
	return 0;
}

void companion_dismiss(struct companion *c)
{
	if (c->fd >= 0)
		close(c->fd);
	if (c->pid > 0 && !c->busy)
		waitpid(c->pid, NULL, 0);
	*c = (struct companion){ .fd = -1 };
}
