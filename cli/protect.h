/* SPDX-License-Identifier: MIT */
/*
 * What keeps a server alive and moving when memory or descriptors run out: it writes back dirty pages,
 * so it must neither be killed for memory nor wait for some.
 */
#ifndef PROTECT_H
#define PROTECT_H

#include <stdint.h>

#include "msg.h"

/*
 * Limits of file size, CPU time, memory that can be locked and open files (need of them) raised as far as
 * allowed. What is not allowed is a debug message, except files: -EMFILE.
 */
int protect_process(unsigned int need_files, struct fail *f);

/*
 * Not to be chosen by the OOM killer. To be called with all memory in place: one that asks for more than
 * there is must be the one that is killed for it.
 */
void protect_from_oom(void);

/*
 * Whether so many bytes of I/O buffers can be locked: while they are filled, memory that is not there ends
 * other processes as well. 0, also where the kernel does not tell, or -ENOMEM.
 */
int protect_can_lock(uint64_t bytes, struct fail *f);

/*
 * Locks all that is mapped, and what will be; I/O buffers take themselves out (iobuf.h). 0, or -EPERM:
 * not allowed, nothing is locked.
 */
int protect_memory(void);

#endif
