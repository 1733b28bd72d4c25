/* SPDX-License-Identifier: MIT */
/*
 * What serve() finds in place of the control device, the engine and its name space; and the few
 * system calls whose order counts.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctrl/ctrl.h"
#include "isolate.h"
#include "world.h"

/* ---- trace ------------------------------------------------------------------------------ */

static bool is_server(void)
{
	return world && getpid() == world->server;
}

/* One process writes to each of the two texts. */
static void note(const char *word, bool failed)
{
	char *trace = is_server() ? world->trace : world->companion;
	size_t n = strlen(trace);

	snprintf(trace + n, WORLD_TRACE - n, "%s%s%s", n ? " " : "", word, failed ? "!" : "");
}

static int planned(uint32_t what)
{
	const struct world_plan *p = &world->plan;

	return what == p->fail_op || what == p->also_fail_op ? -p->fail_err : 0;
}

static int noted(const char *word, uint32_t what)
{
	int r = planned(what);

	note(word, r < 0);
	return r;
}

/* ---- system calls ------------------------------------------------------------------------ */

static bool is_cdev(int fd)
{
	char path[128];
	struct stat a, b;

	snprintf(path, sizeof(path), "%s/dev/ublkc0", world->root);
	return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino &&
	       a.st_dev == b.st_dev;
}

int close(int fd)
{
	int saved = errno;

	if (is_server() && is_cdev(fd))
		note("cdev", false);
	errno = saved;
	return (int)syscall(SYS_close, fd);
}

static bool is_record(const char *name)
{
	size_t n = strlen(name);

	return n > 5 && name[0] != '.' && !strcmp(name + n - 5, ".json");
}

int unlinkat(int dirfd, const char *name, int flags)
{
	int r = (int)syscall(SYS_unlinkat, dirfd, name, flags);

	if (is_server() && is_record(name))
		note("unlink", r < 0);
	return r;
}

int renameat(int fromfd, const char *from, int tofd, const char *to)
{
	int r = (int)syscall(SYS_renameat, fromfd, from, tofd, to);

	if (is_server() && is_record(to))
		note("record", r < 0);
	return r;
}

/* ---- control device ----------------------------------------------------------------------- */

static int fake_add(const struct ctrl_cmd *cmd)
{
	struct ublksrv_ctrl_dev_info *info = (void *)(uintptr_t)cmd->hdr.addr;
	const struct world_plan *p = &world->plan;

	world->added = *info;
	/* the id is in both places, from Linux 6.17 on */
	if (cmd->hdr.dev_id != info->dev_id || cmd->hdr.len != sizeof(*info))
		return -EINVAL;
	if (info->dev_id == UINT32_MAX)
		info->dev_id = WORLD_ID;
	info->nr_hw_queues = p->queues ? (uint16_t)p->queues : info->nr_hw_queues;
	info->queue_depth = p->depth ? (uint16_t)p->depth : info->queue_depth;
	info->max_io_buf_bytes = p->max_io ? p->max_io : info->max_io_buf_bytes;
	info->flags &= ~p->drop_at_add;
	return 0;
}

static int fake_info(const struct ctrl_cmd *cmd)
{
	struct ublksrv_ctrl_dev_info *info =
		(void *)(uintptr_t)(cmd->hdr.addr + cmd->hdr.dev_path_len);

	if (cmd->hdr.len - cmd->hdr.dev_path_len != sizeof(*info))
		return -EINVAL;
	*info = world->added;
	if (info->dev_id == UINT32_MAX)
		info->dev_id = WORLD_ID;
	info->state = world->ended ? UBLK_S_DEV_DEAD : UBLK_S_DEV_LIVE;
	info->flags &= ~world->plan.drop_at_info;
	if (world->plan.id_reused && !is_server())
		info->ublksrv_flags ^= 1;
	return 0;
}

static int fake_affinity(const struct ctrl_cmd *cmd)
{
	cpu_set_t *set = (void *)(uintptr_t)cmd->hdr.addr;

	CPU_ZERO(set);
	CPU_SET((int)cmd->hdr.data[0], set);
	return 0;
}

static int fake_start(const struct ctrl_cmd *cmd)
{
	struct rlimit none = { 0, 0 };

	world->start_pid = (int32_t)cmd->hdr.data[0];
	if (world->plan.no_more_files)
		setrlimit(RLIMIT_FSIZE, &none);
	if (world->plan.caller_goes)
		raise(SIGSTOP); /* the test closes its end of the pipe meanwhile */
	return 0;
}

/* Every thread of the server sees the end of the device. */
static int fake_stop(void)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/done", world->root);
	world->ended = true;
	fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || write(fd, "x", 1) != 1)
		return -EIO;
	close(fd);
	return 0;
}

static const struct {
	uint32_t op;
	const char *word;
} words[] = {
	{ UBLK_U_CMD_ADD_DEV, "add" },
	{ UBLK_U_CMD_SET_PARAMS, "params" },
	{ UBLK_U_CMD_START_DEV, "start" },
	{ UBLK_U_CMD_GET_QUEUE_AFFINITY, "cpus" },
	{ UBLK_U_CMD_GET_DEV_INFO, "info" },
	{ UBLK_U_CMD_GET_DEV_INFO2, "info2" },
	{ UBLK_U_CMD_START_USER_RECOVERY, "recovery" },
	{ UBLK_U_CMD_END_USER_RECOVERY, "recovered" },
	{ UBLK_U_CMD_DEL_DEV, "del" },
	{ UBLK_U_CMD_STOP_DEV, "stop" },
};

static int perform(const struct ctrl_cmd *cmd, int timeout_ms)
{
	switch (cmd->op) {
	case UBLK_U_CMD_ADD_DEV:
		return fake_add(cmd);
	case UBLK_U_CMD_SET_PARAMS:
		world->params = *(const struct ublk_params *)(uintptr_t)cmd->hdr.addr;
		return 0;
	case UBLK_U_CMD_GET_QUEUE_AFFINITY:
		return fake_affinity(cmd);
	case UBLK_U_CMD_START_DEV:
		world->ended = false;
		return fake_start(cmd);
	case UBLK_U_CMD_START_USER_RECOVERY:
		return world->plan.busy_times && world->plan.busy_times-- ? -EBUSY : 0;
	case UBLK_U_CMD_END_USER_RECOVERY:
		world->start_pid = (int32_t)cmd->hdr.data[0];
		return 0;
	case UBLK_U_CMD_GET_DEV_INFO:
	case UBLK_U_CMD_GET_DEV_INFO2:
		return fake_info(cmd);
	case UBLK_U_CMD_STOP_DEV:
		return fake_stop();
	case UBLK_U_CMD_DEL_DEV:
		if (is_server())
			world->undo_timeout_ms = timeout_ms;
		return 0;
	}
	return -EOPNOTSUPP;
}

static int fake_submit(void *priv, const struct ctrl_cmd *cmd, int timeout_ms)
{
	const char *word = "other";
	/* both forms of the question fail alike */
	uint32_t op = cmd->op == UBLK_U_CMD_GET_DEV_INFO2 ? UBLK_U_CMD_GET_DEV_INFO : cmd->op;
	int r = is_server() ? planned(op) : 0;

	(void)priv;
	for (size_t i = 0; i < COUNT_OF(words); i++)
		if (words[i].op == cmd->op)
			word = words[i].word;
	note(word, r < 0);
	return r < 0 ? r : perform(cmd, timeout_ms);
}

/* The descriptor stands for the real one's: it must not be left open. */
static void fake_close(void *priv)
{
	int *fd = priv;

	note("close", false);
	close(*fd);
	free(fd);
}

static const struct ctrl_transport fake_ops = { .submit = fake_submit, .close = fake_close };

int ctrl_open(struct ctrl *c, int timeout_ms, const char **ret_stage)
{
	int r = noted("open", is_server() ? STEP_CTRL_OPEN : STEP_COMPANION_OPEN);
	int *fd;

	if (!is_server())
		world->companion_pid = getpid();

	*ret_stage = "io_uring";
	if (r < 0)
		return r;
	fd = malloc(sizeof(*fd));
	*fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	*c = (struct ctrl){ .ops = &fake_ops, .priv = fd, .timeout_ms = timeout_ms };
	return 0;
}

/* ---- name space --------------------------------------------------------------------------- */

int isolate_namespace(void)
{
	return noted("ns", STEP_NAMESPACE);
}

int isolate_root(void)
{
	return noted("root", STEP_ROOT);
}

/* ---- engine ----------------------------------------------------------------------------- */

struct eng {
	int done_fd;
};

int eng_start(const struct eng_cfg *cfg, struct eng **ret, struct fail *f)
{
	const struct world_plan *p = &world->plan;
	int r = noted("engine", STEP_ENGINE);
	char path[128];
	siginfo_t si;

	world->eng = *cfg;
	world->affinity_cpus = CPU_COUNT(&cfg->affinity[0]);
	world->eng_has_cdev = is_cdev(cfg->fds[0]);
	if (r < 0)
		return fail_errno(f, -r, "I/O thread 1: cannot fake it");
	if (p->wait_companion)
		waitid(P_ALL, 0, &si, WEXITED | WNOWAIT);
	for (size_t i = 0; i < COUNT_OF(p->signals); i++)
		if (p->signals[i])
			raise(p->signals[i]);
	snprintf(path, sizeof(path), "%s/done", world->root);
	*ret = malloc(sizeof(**ret));
	(*ret)->done_fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	return 0;
}

int eng_done_fd(const struct eng *e)
{
	return e->done_fd;
}

/* The threads end, the disk stays. */
int eng_leave(struct eng *e)
{
	note("leave", false);
	return write(e->done_fd, "x", 1) == 1 ? 0 : -EIO;
}

enum huge_pages eng_huge_pages(const struct eng *e)
{
	(void)e;
	return world->plan.huge;
}

int eng_flusher_errno(const struct eng *e)
{
	(void)e;
	return world->plan.flusher_errno;
}

void eng_finish(struct eng *e, struct fail *f)
{
	int r = noted("finish", STEP_ENGINE_END);

	f->err = 0;
	if (r < 0)
		fail_errno(f, -r, "I/O thread 0: on purpose");
	close(e->done_fd);
	free(e);
}
