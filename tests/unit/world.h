/* SPDX-License-Identifier: MIT */
/*
 * A world for serve(): control device, engine, name spaces and /dev are the test's own, each can
 * fail on demand, and everything that serve() does to them is noted in memory that all processes
 * share. serve() runs in a child, so that what it does to its process ends with it.
 */
#ifndef UNIT_WORLD_H
#define UNIT_WORLD_H

#include "unit.h"

#include <stdbool.h>
#include <sys/types.h>

#include "abi/ublk_abi.h"
#include "cfg.h"
#include "daemon.h"
#include "dev/record.h"
#include "engine/engine.h"
#include "serve.h"

#define WORLD_TRACE 1024
#define WORLD_ID 0 /* that the driver chooses */

/* Steps that are no control command. */
enum world_step {
	STEP_CTRL_OPEN = 1,
	STEP_NAMESPACE,
	STEP_ROOT,
	STEP_ENGINE,
	STEP_ENGINE_END, /* the engine fails while it serves */
	STEP_COMPANION_OPEN,
};

struct world_plan {
	uint32_t fail_op; /* UBLK_U_CMD_… of the server, or a step */
	int fail_err;	  /* positive */
	uint32_t also_fail_op;
	/* what the driver grants; 0: what was asked for */
	unsigned int queues, depth, max_io;
	uint64_t drop_at_add, drop_at_info; /* flags that it does not grant */
	int flusher_errno;
	enum huge_pages huge;
	bool no_more_files;  /* from START_DEV on, nothing can be written to a file */
	bool caller_goes;    /* at START_DEV */
	int signals[2];	     /* sent to the server by itself when the engine starts */
	bool wait_companion; /* the engine starts when the companion has ended */
	bool id_reused;	     /* what the companion is told of is another device */
	enum serve_how how;
	const struct record *known; /* unless how is SERVE_ADD */
	unsigned int busy_times;    /* START_USER_RECOVERY says EBUSY so often first */
};

/* In shared memory. */
struct world {
	struct world_plan plan;
	char root[64];
	/* what the server did, in words, and what its companion did */
	char trace[WORLD_TRACE], companion[WORLD_TRACE];
	pid_t server;
	volatile pid_t companion_pid; /* once it has opened the control device */
	int result;		      /* of serve() */
	bool finished;		      /* it came back */
	volatile bool ended;	      /* the device has no disk any more */
	/* of the server's process when it came back */
	bool child_left;
	char fds_left[256];
	/* what was given to the driver and the engine */
	struct ublksrv_ctrl_dev_info added;
	struct ublk_params params;
	int32_t start_pid;
	int undo_timeout_ms; /* of DEL_DEV */
	struct eng_cfg eng;
	int affinity_cpus; /* of the first queue */
	bool eng_has_cdev; /* its first descriptor is the char device */
};

extern struct world *world;

/* A server that runs, or ran. */
struct world_run {
	pid_t pid;
	int report;   /* read end of the report pipe, -1 in the foreground */
	int out, err; /* read ends of its stdout and stderr */
};

/* cmocka's setup and teardown: a new world with everything in place. */
int world_setup(void **state);
int world_teardown(void **state);
/* Once more within one test. */
void world_again(void);

/* dirfd-less helpers below the path root */
int world_put(const char *path, const char *text);
int world_remove(const char *path);
bool world_has(const char *path);
/* Entries in /run/ublkctl, -1 without it. */
int world_records(void);

/* A plain configuration of a null device. */
struct dev_cfg world_cfg(void);

/* Starts serve() in a child; foreground: without a report pipe. */
void world_start(const struct dev_cfg *cfg, bool foreground, struct world_run *ret);
/* One message from the report pipe. False: it is at its end. */
bool world_message(const struct world_run *run, struct daemon_msg *ret);
/* Ends the device as the driver does when somebody deletes it. */
void world_end_device(void);
/* Takes the device from its server: the threads end, the disk stays. */
void world_quiesce(void);
/* Waits for the end of the server and its companion; checks that the child ended in order. */
void world_finish(struct world_run *run);
/* Everything from a pipe until its end, or until it has told part (if that is not NULL). */
const char *world_read(int fd, const char *part);
/* All of its stderr, but for a first line that depends on the limits of this machine. */
const char *world_errors(int fd);

#endif
