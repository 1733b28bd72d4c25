/* SPDX-License-Identifier: MIT */
/*
 * Transport of control commands: /dev/ublk-control and one ring with 128-byte SQEs.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctrl/ctrl.h"
#include "util/cleanup.h"
#include "util/fs.h"

#define CTRL_NODE "/dev/ublk-control"

struct uring_transport {
	struct io_uring ring;
	int fd;
	uint64_t seq; /* user_data of the newest command: tells a late answer from the right one */
};

/* Waits until deadline (fs_now_ms()) for the answer to the newest command. */
static int wait_answer(struct uring_transport *t, int64_t deadline, bool *ret_answered)
{
	for (;;) {
		int64_t left = deadline - fs_now_ms();
		struct __kernel_timespec ts = { .tv_sec = left / 1000,
						.tv_nsec = (left % 1000) * 1000000 };
		struct io_uring_cqe *cqe;
		uint64_t seq;
		int r;

		if (left <= 0)
			return -ETIME;
		r = io_uring_wait_cqe_timeout(&t->ring, &cqe, &ts);
		if (r == -EINTR || r == -EAGAIN || r == -ETIME)
			continue;
		if (r < 0)
			return r;
		r = cqe->res;
		seq = cqe->user_data;
		io_uring_cqe_seen(&t->ring, cqe);
		if (seq == t->seq) {
			*ret_answered = true;
			return r;
		}
	}
}

static int send_command(struct uring_transport *t, const struct ctrl_cmd *cmd, void *buf)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&t->ring);
	struct ublksrv_ctrl_cmd hdr = cmd->hdr;
	int r;

	if (!sqe)
		return -EBUSY;
	hdr.addr = (uintptr_t)buf;
	memset(sqe, 0, 2 * sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = t->fd;
	sqe->cmd_op = cmd->op;
	sqe->user_data = ++t->seq;
	memcpy(sqe->cmd, &hdr, sizeof(hdr));
	do
		r = io_uring_submit(&t->ring);
	while (r == -EINTR);
	return r < 0 ? r : 0;
}

static int uring_submit(void *priv, const struct ctrl_cmd *cmd, int timeout_ms)
{
	struct uring_transport *t = priv;
	int64_t deadline = fs_now_ms() + timeout_ms;
	bool answered = false;
	void *theirs = (void *)(uintptr_t)cmd->hdr.addr, *buf = NULL;
	int r;

	/* a copy of its own: a command that outlives its deadline still writes to its buffer */
	if (cmd->hdr.len) {
		buf = malloc(cmd->hdr.len);
		if (!buf)
			return -ENOMEM;
		memcpy(buf, theirs, cmd->hdr.len);
	}
	r = send_command(t, cmd, buf);
	if (!r)
		r = wait_answer(t, deadline, &answered);
	if (!answered)
		return r; /* buf stays with the kernel */
	if (r >= 0 && buf)
		memcpy(theirs, buf, cmd->hdr.len);
	free(buf);
	/* nobody cancels here: io_uring could not start the process that was to carry it out */
	return r == -ECANCELED ? -EAGAIN : r;
}

static void uring_close(void *priv)
{
	struct uring_transport *t = priv;

	io_uring_queue_exit(&t->ring);
	close(t->fd);
	free(t);
}

static const struct ctrl_transport uring_ops = {
	.submit = uring_submit,
	.close = uring_close,
};

int ctrl_open(struct ctrl *c, int timeout_ms, const char **ret_stage)
{
	_cleanup_free_ struct uring_transport *t = calloc(1, sizeof(*t));
	_cleanup_fd_ int fd = -1;
	int r;

	*ret_stage = "open";
	if (!t)
		return -ENOMEM;
	fd = open(CTRL_NODE, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_stage = "io_uring";
	r = io_uring_queue_init(4, &t->ring, IORING_SETUP_SQE128);
	if (r < 0)
		return r;
	t->fd = steal_fd(&fd);
	*c = (struct ctrl){ .ops = &uring_ops, .priv = steal_ptr(&t), .timeout_ms = timeout_ms };
	return 0;
}
