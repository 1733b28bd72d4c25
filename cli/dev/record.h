/* SPDX-License-Identifier: MIT */
/*
 * Record of a device: what its server was asked to do, one JSON file per device id in
 * /run/ublkctl. It says who serves a device; whether it is true is for dev_probe() to compare.
 */
#ifndef DEV_RECORD_H
#define DEV_RECORD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cfg.h"
#include "dev/qattr.h"

#define REC_SCHEMA 1

struct record {
	struct dev_cfg cfg; /* target may be a name that this build does not know */
	char target[32];
	char data_mode[24];
	char backing[4096]; /* absolute path; the following are empty where they mean nothing */
	char io[16];	    /* direct or buffered */
	char null_data[16];
	char recovery[16];
	char affinity[CFG_AFFINITY_TEXT]; /* see dev/affinity.h */
	char scheduler[16];		  /* see dev/qattr.h, as the next one */
	char queue_attr[QATTR_TEXT];
	char hugepages[16]; /* what was got for them, empty: they were not asked for */
	bool stopped;	    /* by `stop`: no server is missed, `start` brings the disk back */
	pid_t pid;	    /* of the server */
	uint64_t pid_start;
	uint64_t cookie;  /* also in the driver's ublksrv_flags: the same device, not only id */
	char created[32]; /* RFC 3339 */
	char version[32]; /* of the tool that wrote it */
};

/*
 * Descriptor of the record directory, made if needed; -errno. The caller closes it. Root's is
 * /run/ublkctl, that of a user ublkctl in XDG_RUNTIME_DIR or /run/user/UID; without create a user
 * who has none gets root's.
 */
int rec_open_dir(bool create);
int rec_write(int dirfd, const struct record *rec);
/*
 * Removes the record of a device if it is this one's: the cookie must be the same. To be called
 * while the driver still holds the id, or the next device with it could lose its own. Missing
 * is no error.
 */
int rec_remove(int dirfd, int id, uint64_t cookie);
/*
 * -ENOENT: none; -EPERM: not owned by root or the caller, or writable by others;
 * -EPROTO: not a record of a known schema, or with values out of range; -EFBIG: no record is
 * that large.
 */
int rec_read(int dirfd, int id, struct record *ret);
/*
 * Changes the record of a device as it is now: others may have written it since it was read, and may be
 * about to. change() gets it with arg. -ESTALE: the id is another device's by now; -ETIME: another writer
 * did not get done.
 */
int rec_update(int id, uint64_t cookie, void (*change)(struct record *rec, const void *arg),
	       const void *arg);
/* The record of an id wherever the caller's could be: the own directory, then root's. */
int rec_load(int id, struct record *ret);
bool rec_server_alive(const struct record *rec);

/* Text form, for rec_write() and tests: malloc()ed JSON; NULL without memory. */
char *rec_to_json(const struct record *rec);
int rec_from_json(const char *text, struct record *ret);

#endif
