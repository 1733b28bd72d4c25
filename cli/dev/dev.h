/* SPDX-License-Identifier: MIT */
/*
 * Devices as they are: ids, one device's whole view, and who uses its disk.
 */
#ifndef DEV_DEV_H
#define DEV_DEV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctrl/ctrl.h"
#include "dev/record.h"
#include "msg.h"

/* Everything known of one device. Numbers are -1 and texts NULL where nothing is known. */
struct dev_view {
	int id;
	char name[24];	 /* ublkbN */
	char device[32]; /* /dev/ublkbN */
	char char_device[32];
	const char *state; /* live, dead, quiesced, fail-io */
	const char *target;
	const char *data_mode;
	const char *recovery;
	char scheduler[32]; /* of the disk, "" where it is not known */
	int64_t size;	    /* bytes */
	int64_t batch, queues, depth, threads, pid, read_only;
	int64_t block_size, phys_block_size, max_io; /* bytes */
	int64_t uid, gid;
	int64_t node_missing; /* the disk has no node in /dev */
	uint64_t cookie; /* ublksrv_flags of the device: its server's mark, 0 without the driver's word */
	bool has_flags;
	uint64_t flags;
	bool has_disk;
	bool has_record; /* rec was compared and belongs to this device */
	struct record rec;
};

/* Sorted ids of all ublk devices from sysfs; malloc()ed. -ENODEV: the driver is not loaded. */
int dev_scan(int **ret_ids, size_t *ret_count);

/*
 * Gathers what driver (c may be NULL), sysfs and record tell; never waits for a server.
 * -ENODEV: no such device.
 */
int dev_probe(struct ctrl *c, int id, struct dev_view *ret);

/* The driver's major:minor of a disk from sysfs; -ENODEV without a disk. */
int dev_disk_devt(int id, unsigned int *ret_major, unsigned int *ret_minor);
bool dev_char_exists(int id);
bool dev_disk_exists(int id);
/* The disk has a node in /dev, and it is this disk's. */
bool dev_node_there(int id);
/* Of the disk alone: its sysfs entry or its node. */
bool dev_disk_left(int id);
/* What of the device is still there: its sysfs entries or one of its nodes. */
bool dev_anything_left(int id);

/* Opens the control device; every failure gets a text that says what to do about it. */
int dev_open_ctrl(struct ctrl *c, int timeout_ms, struct fail *f);
/* GET_FEATURES (Linux 6.5 or later). */
int dev_get_features(struct ctrl *c, uint64_t *ret, struct fail *f);
/* FAIL_UNSUPPORTED that names the first of the wanted features that mask has not. */
int dev_need_features(uint64_t wanted, uint64_t mask, struct fail *f);
/* dev_probe() with a text for every failure. */
int dev_look(struct ctrl *c, int id, struct dev_view *ret, struct fail *f);
/* For whoever will change something: a failure as well where the driver does not tell, -EACCES for one. */
int dev_look_known(struct ctrl *c, int id, struct dev_view *ret, struct fail *f);
/* Until the disk's node is there with that size in bytes; -ETIME. */
int dev_wait_node(int id, uint64_t size, unsigned int timeout_s, struct fail *f);

/* "N" or "/dev/ublkbN" or "/dev/ublkcN" → id; -FAIL_USAGE with a text. */
int dev_parse_operand(const char *s, int *ret_id, struct fail *f);

#define DEV_USER_TEXT 200
/*
 * Who uses the disk or one of its partitions: "mounted at /mnt", "held by dm-0", "swap space",
 * "open by process 12 (fio)". Returns true with a text; false when nobody is seen.
 */
bool dev_find_user(int id, char *text);
/* The same for whoever would take the disk away: true with a text as well where nobody can be seen. */
bool dev_may_be_used(int id, char *text);

#endif
