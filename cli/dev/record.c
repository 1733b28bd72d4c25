/* SPDX-License-Identifier: MIT */
#include "dev/record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/fs.h"

#define REC_DIR "/run/ublkctl"
#define REC_MAX_BYTES (64 * 1024)
#define LOCK_MS 2000 /* for another writer of a record */
#define LOCK_POLL_MS 5

/* Numbers and switches: one row is written, read and range-checked alike. */
enum field_type { F_BOOL, F_UINT, F_U64 };

static const struct field {
	const char *key;
	enum field_type type;
	size_t offset;
	uint64_t min, max;
	bool optional; /* younger than schema 1: 0 in a record without it */
} fields[] = {
	{ "batch", F_BOOL, offsetof(struct record, cfg.batch), 0, 1, false },
	{ "queues", F_UINT, offsetof(struct record, cfg.queues), 1, 4096, false },
	{ "depth", F_UINT, offsetof(struct record, cfg.depth), 1, 4096, false },
	{ "threads", F_UINT, offsetof(struct record, cfg.threads), 1, 4096, false },
	{ "size", F_U64, offsetof(struct record, cfg.size), 512, INT64_MAX, false },
	{ "block_size", F_U64, offsetof(struct record, cfg.block_size), 512, 1 << 20, false },
	{ "physical_block_size", F_U64, offsetof(struct record, cfg.phys_block_size), 512, 1 << 28,
	  false },
	{ "max_io", F_U64, offsetof(struct record, cfg.max_io), 4096, 1 << 25, false },
	{ "read_only", F_BOOL, offsetof(struct record, cfg.read_only), 0, 1, false },
	{ "no_partscan", F_BOOL, offsetof(struct record, cfg.no_partscan), 0, 1, false },
	{ "offset", F_U64, offsetof(struct record, cfg.offset), 0, INT64_MAX, true },
	{ "no_discard", F_BOOL, offsetof(struct record, cfg.no_discard), 0, 1, true },
	{ "force", F_BOOL, offsetof(struct record, cfg.force), 0, 1, true },
	{ "unprivileged", F_BOOL, offsetof(struct record, cfg.unprivileged), 0, 1, true },
	{ "mlock", F_BOOL, offsetof(struct record, cfg.mlock), 0, 1, true },
	{ "poll_us", F_UINT, offsetof(struct record, cfg.poll_us), 0, CFG_POLL_US_MAX, true },
	{ "stopped", F_BOOL, offsetof(struct record, stopped), 0, 1, true },
	{ "backing_dev", F_U64, offsetof(struct record, cfg.file_dev), 0, UINT64_MAX, true },
	{ "backing_ino", F_U64, offsetof(struct record, cfg.file_ino), 0, UINT64_MAX, true },
	{ "backing_size", F_U64, offsetof(struct record, cfg.file_size), 0, INT64_MAX, true },
};

#define TEXT(key, member)                                                                          \
	(key), offsetof(struct record, member), sizeof(((struct record *)0)->member)

static const struct text {
	const char *key;
	size_t offset, size;
	bool optional; /* younger than schema 1: empty in a record without it */
} texts[] = {
	{ TEXT("target", target), false },	  { TEXT("created", created), false },
	{ TEXT("version", version), false },	  { TEXT("data_mode", data_mode), true },
	{ TEXT("backing", backing), true },	  { TEXT("io", io), true },
	{ TEXT("null_data", null_data), true },	  { TEXT("recovery", recovery), true },
	{ TEXT("affinity", affinity), true },	  { TEXT("scheduler", scheduler), true },
	{ TEXT("queue_attr", queue_attr), true }, { TEXT("hugepages", hugepages), true },
};

/* Where the caller's own records are, into buf[FS_PATH_MAX]. */
static const char *own_dir(char *buf)
{
	const char *dir = getenv("XDG_RUNTIME_DIR");

	if (!fs_root_is_real() || geteuid() == 0)
		return fs_path(buf, REC_DIR);
	if (dir && *dir == '/')
		return fs_path(buf, "%.400s/ublkctl", dir);
	return fs_path(buf, "/run/user/%u/ublkctl", (unsigned int)geteuid());
}

static int open_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int rec_open_dir(bool create)
{
	char path[FS_PATH_MAX];
	bool made;
	int fd;

	own_dir(path);
	made = create && mkdir(path, 0755) == 0;
	if (create && !made && errno != EEXIST)
		return -errno;
	fd = open_dir(path);
	if (fd < 0 && !create)
		return open_dir(fs_path(path, REC_DIR));
	/* the umask of the caller must not hide the records from `list` */
	if (fd >= 0 && made)
		fchmod(fd, 0755);
	return fd;
}

static void rec_name(char *buf, size_t size, int id)
{
	snprintf(buf, size, "%d.json", id);
}

static void add(struct json_object *o, const char *key, struct json_object *v)
{
	json_object_object_add(o, key, v);
}

static struct json_object *field_to_json(const struct field *f, const struct record *rec)
{
	const void *p = (const char *)rec + f->offset;

	switch (f->type) {
	case F_BOOL:
		return json_object_new_boolean(*(const bool *)p);
	case F_UINT:
		return json_object_new_int64(*(const unsigned int *)p);
	case F_U64:
		return json_object_new_uint64(*(const uint64_t *)p);
	}
	return NULL;
}

char *rec_to_json(const struct record *rec)
{
	struct json_object *o = json_object_new_object();
	char cookie[24], *text;

	if (!o)
		return NULL;
	snprintf(cookie, sizeof(cookie), "0x%016" PRIx64, rec->cookie);
	add(o, "schema", json_object_new_int(REC_SCHEMA));
	add(o, "id", json_object_new_int(rec->cfg.id));
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		add(o, texts[i].key, json_object_new_string((const char *)rec + texts[i].offset));
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		add(o, fields[i].key, field_to_json(&fields[i], rec));
	add(o, "pid", json_object_new_int64(rec->pid));
	add(o, "pid_start", json_object_new_int64((int64_t)rec->pid_start));
	add(o, "cookie", json_object_new_string(cookie));
	text = strdup(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY));
	json_object_put(o);
	return text;
}

int rec_write(int dirfd, const struct record *rec)
{
	_cleanup_free_ char *text = rec_to_json(rec);
	char name[32];

	if (!text)
		return -ENOMEM;
	rec_name(name, sizeof(name), rec->cfg.id);
	return fs_write_atomic(dirfd, name, text, strlen(text));
}

/* Whole number of a member in [min, max]; max is INT64_MAX or less. */
static int get_num(struct json_object *o, const char *key, uint64_t min, uint64_t max, uint64_t *ret)
{
	struct json_object *v;
	uint64_t n;

	if (!json_object_object_get_ex(o, key, &v) || !json_object_is_type(v, json_type_int))
		return -EPROTO;
	/* the signed reading tells a negative number, the unsigned one a number above INT64_MAX */
	n = json_object_get_uint64(v);
	if (json_object_get_int64(v) < 0 || n < min || n > max)
		return -EPROTO;
	*ret = n;
	return 0;
}

static int get_text(struct json_object *o, const char *key, char *buf, size_t size)
{
	struct json_object *v;

	if (!json_object_object_get_ex(o, key, &v) || !json_object_is_type(v, json_type_string))
		return -EPROTO;
	if (snprintf(buf, size, "%s", json_object_get_string(v)) >= (int)size)
		return -EPROTO;
	return 0;
}

static int field_from_json(const struct field *f, struct json_object *o, struct record *rec)
{
	void *p = (char *)rec + f->offset;
	struct json_object *v;
	uint64_t n;

	if (f->optional && !json_object_object_get_ex(o, f->key, NULL))
		return 0;
	if (f->type == F_BOOL) {
		if (!json_object_object_get_ex(o, f->key, &v) ||
		    !json_object_is_type(v, json_type_boolean))
			return -EPROTO;
		*(bool *)p = json_object_get_boolean(v);
		return 0;
	}
	if (get_num(o, f->key, f->min, f->max, &n) < 0)
		return -EPROTO;
	if (f->type == F_UINT)
		*(unsigned int *)p = (unsigned int)n;
	else
		*(uint64_t *)p = n;
	return 0;
}

/* 64 bits as "0x" and 16 digits: the form in which it was written. */
static int get_cookie(struct json_object *o, uint64_t *ret)
{
	char text[24];

	if (get_text(o, "cookie", text, sizeof(text)) < 0 || strncmp(text, "0x", 2) ||
	    strspn(text + 2, "0123456789abcdef") != 16 || text[18])
		return -EPROTO;
	*ret = strtoull(text, NULL, 16);
	return 0;
}

static int from_object(struct json_object *o, struct record *rec)
{
	uint64_t schema, id, pid;

	if (get_num(o, "schema", REC_SCHEMA, REC_SCHEMA, &schema) < 0 ||
	    get_num(o, "id", 0, INT32_MAX, &id) < 0 || get_num(o, "pid", 0, INT32_MAX, &pid) < 0 ||
	    get_num(o, "pid_start", 0, INT64_MAX, &rec->pid_start) < 0 ||
	    get_cookie(o, &rec->cookie) < 0)
		return -EPROTO;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if ((!texts[i].optional || json_object_object_get_ex(o, texts[i].key, NULL)) &&
		    get_text(o, texts[i].key, (char *)rec + texts[i].offset, texts[i].size) < 0)
			return -EPROTO;
	rec->cfg.id = (int)id;
	rec->pid = (pid_t)pid;
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		if (field_from_json(&fields[i], o, rec) < 0)
			return -EPROTO;
	return 0;
}

/* One value and nothing behind it; NULL otherwise. */
static struct json_object *parse_whole(const char *text)
{
	struct json_tokener *tok = json_tokener_new();
	struct json_object *o;

	if (!tok)
		return NULL;
	json_tokener_set_flags(tok, JSON_TOKENER_STRICT);
	o = json_tokener_parse_ex(tok, text, (int)strlen(text) + 1);
	json_tokener_free(tok);
	return o;
}

int rec_from_json(const char *text, struct record *ret)
{
	struct json_object *o = parse_whole(text);
	struct record rec = { 0 };
	int r;

	if (!o || !json_object_is_type(o, json_type_object))
		r = -EPROTO;
	else
		r = from_object(o, &rec);
	json_object_put(o);
	if (!r)
		*ret = rec;
	return r;
}

static int open_record(int dirfd, int id, int access)
{
	char name[32];
	int fd;

	rec_name(name, sizeof(name), id);
	/* O_NONBLOCK: a planted fifo must not block */
	fd = openat(dirfd, name, access | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ELOOP ? -EPERM : -errno;
	return fd;
}

int rec_read(int dirfd, int id, struct record *ret)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_fd_ int fd = open_record(dirfd, id, O_RDONLY);
	struct record rec;
	struct stat st;
	int r;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	/* a recorded tree belongs to whoever checked it out */
	if (!S_ISREG(st.st_mode) || (st.st_mode & 022) ||
	    (st.st_uid != 0 && st.st_uid != geteuid() && fs_root_is_real()))
		return -EPERM;
	r = fs_read_all(fd, REC_MAX_BYTES, &text);
	if (r < 0)
		return r;
	r = rec_from_json(text, &rec);
	if (r < 0)
		return r;
	if (rec.cfg.id != id)
		return -EPROTO;
	*ret = rec;
	return 0;
}

int rec_load(int id, struct record *ret)
{
	_cleanup_fd_ int own = rec_open_dir(false), root = -1;
	char path[FS_PATH_MAX];
	int r = own < 0 ? own : rec_read(own, id, ret);

	if (r != -ENOENT || geteuid() == 0)
		return r;
	root = open_dir(fs_path(path, REC_DIR));
	return root < 0 ? root : rec_read(root, id, ret);
}

static bool is_record(int fd, int dirfd, int id)
{
	struct stat a, b;
	char name[32];

	rec_name(name, sizeof(name), id);
	return fstat(fd, &a) == 0 && fstatat(dirfd, name, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
	       a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/*
 * Keeps other writers of a record out until the descriptor is closed. This kind of lock takes the right to
 * write, so only those can hold it whose word the record is. A new record in its place has a new lock.
 */
static int lock_record(int dirfd, int id)
{
	const int64_t until = fs_now_ms() + LOCK_MS;
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	for (;;) {
		_cleanup_fd_ int fd = open_record(dirfd, id, O_RDWR);

		if (fd < 0)
			return fd;
		if (fcntl(fd, F_OFD_SETLK, &whole) < 0) {
			if (errno != EAGAIN && errno != EACCES)
				return -errno;
			if (fs_now_ms() >= until)
				return -ETIME;
			fs_sleep_ms(LOCK_POLL_MS);
		} else if (is_record(fd, dirfd, id)) {
			return steal_fd(&fd);
		}
	}
}

int rec_remove(int dirfd, int id, uint64_t cookie)
{
	/* or a change on its way would put it back; whoever is stuck with it does not keep it */
	int lock = lock_record(dirfd, id);
	struct record rec;
	char name[32];
	int r;

	rec_name(name, sizeof(name), id);
	r = rec_read(dirfd, id, &rec);
	if (!r && rec.cookie == cookie && unlinkat(dirfd, name, 0) < 0)
		r = -errno;
	if (lock >= 0)
		close(lock);
	return r == -ENOENT ? 0 : r;
}

int rec_update(int id, uint64_t cookie, void (*change)(struct record *rec, const void *arg),
	       const void *arg)
{
	_cleanup_fd_ int dir = rec_open_dir(false);
	_cleanup_fd_ int lock = dir < 0 ? dir : lock_record(dir, id);
	struct record rec;
	int r = lock < 0 ? lock : rec_read(dir, id, &rec);

	if (r < 0)
		return r;
	if (rec.cookie != cookie)
		return -ESTALE;
	change(&rec, arg);
	return rec_write(dir, &rec);
}

bool rec_server_alive(const struct record *rec)
{
	/* 0 is what fs_pid_start() says of a process that has ended */
	return rec->pid > 0 && rec->pid_start && fs_pid_start(rec->pid) == rec->pid_start;
}
