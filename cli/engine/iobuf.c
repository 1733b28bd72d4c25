/* SPDX-License-Identifier: MIT */
#include "engine/iobuf.h"

#include <sys/mman.h>

#include "abi/ublk_abi.h"

static const struct iobuf_mode modes[] = {
	[DATA_COPY] = { .name = "copy", .flags = 0, .server_buf = true, .commit_addr = true },
};

const struct iobuf_mode *iobuf_mode(enum data_mode mode)
{
	return &modes[mode];
}

void *iobuf_alloc(unsigned int depth, size_t size)
{
	size_t len = depth * size;
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		       -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	/* a huge page per touched 4 KiB would make a reserved buffer a used one */
	madvise(p, len, MADV_NOHUGEPAGE);
	return p;
}

void iobuf_free(void *buf, unsigned int depth, size_t size)
{
	if (buf)
		munmap(buf, depth * size);
}
