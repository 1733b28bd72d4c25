/* SPDX-License-Identifier: MIT */
/*
 * What a device is asked to be: plain data, filled by the command line or a record, read by
 * server, engine and targets.
 */
#ifndef CFG_H
#define CFG_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define CFG_ID_ANY (-1)
#define CFG_ID_MAX 1048575     /* the driver's largest id is one below the number of minors */
#define CFG_POLL_US_MAX 10000  /* by then a sleep has cost far less than the looking */
#define CFG_AFFINITY_TEXT 4096 /* bytes of the longest text of affinities, with its end */

enum data_mode {
	DATA_COPY,	       /* the driver copies between request and server buffer */
	DATA_GET_DATA,	       /* the same, write data only when the server asks for it */
	DATA_USER_COPY,	       /* the server copies, with pread and pwrite on /dev/ublkcN */
	DATA_ZERO_COPY,	       /* request pages are fixed buffers, registered by the server */
	DATA_AUTO_ZC,	       /* request pages are fixed buffers, registered by the driver */
	DATA_AUTO_ZC_FALLBACK, /* by the driver, or by the server where the driver could not */
};

/* What happens to I/O when the server dies. */
enum recovery {
	RECOVERY_OFF,	  /* it fails, and the device is over with */
	RECOVERY_QUEUE,	  /* what the server had fails, new requests wait for the next server */
	RECOVERY_REISSUE, /* all wait; what the server had is given to the next one again */
	RECOVERY_FAIL_IO, /* all fail until there is a server again */
};

enum io_mode { IO_AUTO, IO_DIRECT, IO_BUFFERED };

/* What I/O buffers are made of; the lowest of all queues counts. */
enum huge_pages {
	HUGE_NONE,
	HUGE_TRANSPARENT, /* as the kernel can give them, when they are used */
	HUGE_RESERVED,	  /* from the pool of vm.nr_hugepages */
};

struct dev_cfg {
	int id;		    /* CFG_ID_ANY: the driver chooses */
	const char *target; /* name of a target, static */
	bool batch;
	unsigned int queues; /* 0: default */
	unsigned int depth;
	unsigned int threads;	  /* 0: default */
	uint64_t size;		  /* bytes */
	uint64_t block_size;	  /* logical, bytes */
	uint64_t phys_block_size; /* bytes, 0: as block_size */
	uint64_t max_io;	  /* bytes of one request */
	bool read_only;
	bool no_partscan;
	bool unprivileged;    /* belongs to a user without CAP_SYS_ADMIN */
	bool mlock;	      /* I/O buffers locked in memory */
	bool hugepages;	      /* I/O buffers in huge pages, if they can be had */
	unsigned int poll_us; /* how long a thread looks for work before it sleeps, 0: not */
	enum recovery recovery;
	bool quiesce; /* the driver can take the device from its server */
	enum data_mode mode;
	const char *mode_word;	   /* of the command line, NULL: default */
	const char *recovery_word; /* the same */
	const char *null_data;	   /* null target: "zeros" or "none" */
	const char *scheduler;	   /* I/O scheduler of the disk, or "kernel"; NULL: as that */
	const char *queue_attr;	   /* "NAME=VALUE,…", see dev/qattr.h; may be NULL */
	const char *affinity; /* "QUEUE=CPUS:…" of queues that do not have the driver's; may be NULL */
	/* file target */
	const char *file;    /* absolute once it was checked */
	uint64_t offset;     /* bytes */
	const char *io_word; /* of the command line, NULL: auto */
	enum io_mode io;     /* never IO_AUTO once the backing is open */
	bool create, no_discard, force;
	unsigned int umask;	     /* of the caller, for --create */
	uint64_t file_dev, file_ino; /* identity of the backing */
	uint64_t file_size;	     /* bytes of the backing when it was opened */
	bool same_backing;	     /* the identity is a record's: the backing must be that one */
	/* how it is served, not what it is */
	bool foreground;
	unsigned int timeout_s; /* deadline of each control command and wait */
};

static inline const char *cfg_io_name(unsigned int n)
{
	static const char *const names[] = { "auto", "direct", "buffered" };

	return n < sizeof(names) / sizeof(names[0]) ? names[n] : (const char *)0;
}

/* What reads of a null device return. */
static inline const char *cfg_null_data_name(unsigned int n)
{
	static const char *const names[] = { "zeros", "none" };

	return n < sizeof(names) / sizeof(names[0]) ? names[n] : (const char *)0;
}

static inline const char *cfg_huge_name(unsigned int n)
{
	static const char *const names[] = { "none", "transparent", "reserved" };

	return n < sizeof(names) / sizeof(names[0]) ? names[n] : (const char *)0;
}

static inline const char *cfg_recovery_name(unsigned int n)
{
	static const char *const names[] = { "off", "queue", "reissue", "fail-io" };

	return n < sizeof(names) / sizeof(names[0]) ? names[n] : (const char *)0;
}

/* Index of a word in one of these lists, -1 when it is none of them. */
static inline int cfg_index(const char *(*word)(unsigned int n), const char *s)
{
	for (unsigned int n = 0; s && word(n); n++)
		if (!strcmp(s, word(n)))
			return (int)n;
	return -1;
}

/*
 * Does thread t serve queue q? When both are the same modulo the smaller of the two numbers: each thread
 * has one or more queues, or each queue one or more threads.
 */
static inline bool cfg_serves(unsigned int threads, unsigned int queues, unsigned int t, unsigned int q)
{
	unsigned int n = threads < queues ? threads : queues;

	return n && t % n == q % n;
}

#endif
