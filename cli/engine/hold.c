/* SPDX-License-Identifier: MIT */
#include "engine/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "abi/ublk_abi.h"
#include "util/cleanup.h"

/* more than one: the driver can end one of them because it finds no buffer in it */
#define FETCHES 4
#define GONE_MS 5000

/* A FETCH that can take no request: its ring has no buffers for tags. */
static void put_empty_fetch(struct io_uring *ring, int cdev)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	struct ublk_batch_io *cmd;

	if (!sqe)
		return; /* there is room for all of them */
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = cdev;
	sqe->cmd_op = UBLK_U_IO_FETCH_IO_CMDS;
	sqe->flags = IOSQE_BUFFER_SELECT;
	sqe->rw_flags = ABI_URING_CMD_MULTISHOT;
	cmd = (void *)sqe->cmd;
	cmd->elem_bytes = sizeof(uint16_t);
}

static int fill_ring(struct io_uring *ring, int cdev, int *end)
{
	int r = io_uring_register_files(ring, end, 1);

	close(*end);
	*end = -1;
	if (r < 0)
		return r;
	for (unsigned int i = 0; i < FETCHES; i++)
		put_empty_fetch(ring, cdev);
	r = io_uring_submit(ring);
	return r < 0 ? r : 0;
}

/*
 * The kernel cancels the commands of a ring that is closed, and the driver takes the cancelled FETCH
 * for the end of its server: new requests wait from then on. The FETCH commands of the I/O threads, in
 * front of this one in the driver's list, stay. That it has happened shows a pipe whose other end was
 * registered in the ring: it is closed last.
 */
int hold_requests(int cdev)
{
	_cleanup_fd_ int mine = -1;
	struct io_uring ring;
	struct pollfd p;
	int fds[2], r;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	mine = fds[0];
	r = io_uring_queue_init(FETCHES, &ring, 0);
	if (r < 0) {
		close(fds[1]);
		return r;
	}
	r = fill_ring(&ring, cdev, &fds[1]);
	io_uring_queue_exit(&ring);
	if (r < 0)
		return r;
	p = (struct pollfd){ .fd = mine };
	do
		r = poll(&p, 1, GONE_MS);
	while (r < 0 && errno == EINTR);
	return r > 0 ? 0 : -ETIME;
}
