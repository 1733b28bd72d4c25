/* SPDX-License-Identifier: MIT */
/*
 * Records under stress: several writers, a full disk; the record folder; is a server alive.
 */
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "dev/record.h"
#include "tmpdir.h"
#include "util/fs.h"

#define WRITERS 6
#define WRITES 150

/* exit statuses of children */
enum { CHILD_OK, CHILD_NO_NAMESPACE = 77, CHILD_FIRST_CHECK = 100 };

static char root[64];

static int setup(void **state)
{
	(void)state;
	unsetenv("UBLKCTL_SYSROOT");
	tmpdir_make(root);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unsetenv("UBLKCTL_SYSROOT");
	tmpdir_remove(root);
	return 0;
}

static int open_root(void)
{
	return open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* A record whose members all tell the same number. */
static struct record numbered(unsigned int n)
{
	struct record r = {
		.cfg = { .id = 7,
			 .queues = 1 + n % 4096,
			 .depth = 1 + n % 4096,
			 .threads = 1,
			 .size = 512ULL * (1 + n),
			 .block_size = 512,
			 .phys_block_size = 512,
			 .max_io = 4096 },
		.target = "null",
		.pid = 1,
		.pid_start = n,
		.cookie = n,
	};

	snprintf(r.created, sizeof(r.created), "%u", n);
	/* texts of many lengths: a rest of a longer one would be seen */
	snprintf(r.version, sizeof(r.version), "%.*s", (int)(n % 31),
		 "0123456789012345678901234567890");
	return r;
}

static bool is_whole(const struct record *r)
{
	struct record want = numbered((unsigned int)r->cookie);

	return r->pid_start == r->cookie && r->cfg.size == want.cfg.size &&
	       r->cfg.queues == want.cfg.queues && r->cfg.depth == want.cfg.depth &&
	       !strcmp(r->created, want.created) && !strcmp(r->version, want.version);
}

/* Number of entries; *ret_odd counts those that are not 7.json. */
static int count_files(int *ret_odd)
{
	DIR *d = opendir(root);
	struct dirent *e;
	int n = 0;

	assert_non_null(d);
	*ret_odd = 0;
	while ((e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		n++;
		*ret_odd += !!strcmp(e->d_name, "7.json");
	}
	closedir(d);
	return n;
}

static int write_many(unsigned int from)
{
	int dir = open_root();

	for (unsigned int i = 0; i < WRITES; i++) {
		struct record r = numbered(from + i);

		if (rec_write(dir, &r) < 0)
			return 1;
	}
	return 0;
}

/* Whatever moment a reader chooses, there is one writer's whole record. */
static void test_concurrent_writers(void **state)
{
	struct record r = numbered(0);
	int dir = open_root(), running = WRITERS, odd, status, reads = 0;

	(void)state;
	assert_int_equal(rec_write(dir, &r), 0);
	for (unsigned int i = 0; i < WRITERS; i++) {
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (!pid)
			_exit(write_many(i * 1000));
	}
	while (running) {
		int e = rec_read(dir, 7, &r);

		if (e || !is_whole(&r))
			fail_msg("read %d: result %d, cookie %llu, size %llu", reads, e,
				 (unsigned long long)r.cookie, (unsigned long long)r.cfg.size);
		reads++;
		while (running && waitpid(-1, &status, WNOHANG) > 0) {
			assert_int_equal(status, 0);
			running--;
		}
	}
	assert_int_equal(rec_read(dir, 7, &r), 0);
	assert_true(is_whole(&r));
	assert_true(r.cookie % 1000 == WRITES - 1); /* somebody's last one */
	assert_int_equal(count_files(&odd), 1);
	assert_int_equal(odd, 0);
	close(dir);
}

static int make_record_dir(void)
{
	char path[128];
	int fd;

	setenv("UBLKCTL_SYSROOT", root, 1);
	snprintf(path, sizeof(path), "%s/run", root);
	assert_int_equal(mkdir(path, 0755), 0);
	fd = rec_open_dir(true);
	assert_true(fd >= 0);
	return fd;
}

static void grow(struct record *rec, const void *arg)
{
	rec->cfg.size += *(const uint64_t *)arg;
}

static int grow_many(void)
{
	const uint64_t more = 512;

	for (unsigned int i = 0; i < WRITES; i++)
		if (rec_update(7, 0, grow, &more) < 0)
			return 1;
	return 0;
}

/* What one changes the other does not undo. */
static void test_concurrent_updates(void **state)
{
	struct record r = numbered(0);
	int dir, status;

	(void)state;
	dir = make_record_dir();
	assert_int_equal(rec_write(dir, &r), 0);
	for (unsigned int i = 0; i < 2; i++) {
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (!pid)
			_exit(grow_many());
	}
	for (unsigned int i = 0; i < 2; i++) {
		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
	assert_int_equal(rec_read(dir, 7, &r), 0);
	assert_int_equal(r.cfg.size, numbered(0).cfg.size + 2 * WRITES * 512ULL);
	close(dir);
}

/* One that is stuck costs the others a while, not their lives. */
static void test_stuck_update(void **state)
{
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	const uint64_t more = 512;
	struct record r = numbered(0), now;
	int dir, fd;

	(void)state;
	dir = make_record_dir();
	assert_int_equal(rec_write(dir, &r), 0);
	fd = openat(dir, "7.json", O_RDWR | O_CLOEXEC);
	assert_int_equal(fcntl(fd, F_OFD_SETLK, &whole), 0);
	assert_int_equal(rec_update(7, 0, grow, &more), -ETIME);
	assert_int_equal(rec_read(dir, 7, &now), 0);
	assert_true(now.cfg.size == r.cfg.size);
	close(fd);
	assert_int_equal(rec_update(7, 0, grow, &more), 0);
	close(dir);
}

/* A writer that has the pid of one that died while writing. */
static void test_leftover_temporary(void **state)
{
	struct record r = numbered(5), out;
	int dir = open_root(), odd;
	char name[64];

	(void)state;
	snprintf(name, sizeof(name), ".7.json.%d", (int)getpid());
	tmpdir_put(dir, name, "half a rec", 10);
	assert_int_equal(rec_write(dir, &r), 0);
	assert_int_equal(rec_read(dir, 7, &out), 0);
	assert_true(is_whole(&out));
	assert_int_equal(count_files(&odd), 1);
	/* a planted link is not written through */
	assert_int_equal(symlinkat("elsewhere", dir, name), 0);
	assert_int_equal(rec_write(dir, &r), 0);
	assert_int_equal(count_files(&odd), 1);
	assert_int_equal(odd, 0);
	close(dir);
}

/* Leaves room for the rest of a used page at most. */
static void fill_disk(int dir)
{
	static const char page[4096];
	int fd = openat(dir, "filler", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	while (write(fd, page, sizeof(page)) > 0)
		;
	close(fd);
}

/* In a child: on a file system of its own with options, nothing of a failed write is seen. */
static int full_disk_child(const char *options, bool fill)
{
	struct record first = numbered(1), second = numbered(2), out;
	int dir, odd;

	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("unit", root, "tmpfs", 0, options) < 0)
		return CHILD_NO_NAMESPACE;
	dir = open_root();
	if (rec_write(dir, &first) < 0)
		return CHILD_FIRST_CHECK;
	if (fill)
		fill_disk(dir);
	if (rec_write(dir, &second) != -ENOSPC)
		return CHILD_FIRST_CHECK + 1;
	if (rec_read(dir, 7, &out) < 0 || out.cookie != 1 || !is_whole(&out))
		return CHILD_FIRST_CHECK + 2;
	count_files(&odd);
	if (odd != (fill ? 1 : 0))
		return CHILD_FIRST_CHECK + 3;
	if (!fill)
		return CHILD_OK;
	/* with room again, all is well */
	if (unlinkat(dir, "filler", 0) < 0 || rec_write(dir, &second) < 0 ||
	    rec_read(dir, 7, &out) < 0 || out.cookie != 2)
		return CHILD_FIRST_CHECK + 4;
	return CHILD_OK;
}

static void full_disk(const char *options, bool fill)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid)
		_exit(full_disk_child(options, fill));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == CHILD_NO_NAMESPACE) {
		print_message("no mount namespace with a tmpfs: not root?\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), CHILD_OK);
}

static void test_full_disk(void **state)
{
	(void)state;
	full_disk("size=32k", true);
}

/* The root folder, the record: no inode is left for a temporary file. */
static void test_no_inodes(void **state)
{
	(void)state;
	full_disk("size=64k,nr_inodes=2", false);
}

static void test_open_dir(void **state)
{
	char path[128];
	struct stat st;
	int fd;

	(void)state;
	setenv("UBLKCTL_SYSROOT", root, 1);
	assert_int_equal(rec_open_dir(false), -ENOENT);
	assert_int_equal(rec_open_dir(true), -ENOENT); /* /run itself is not made */
	snprintf(path, sizeof(path), "%s/run", root);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(rec_open_dir(false), -ENOENT);
	umask(077);
	fd = rec_open_dir(true);
	umask(022);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	/* `list` of a normal user reads records: the umask of who made the first one is no reason */
	assert_int_equal(st.st_mode, S_IFDIR | 0755);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	/* what an administrator chose stays */
	assert_int_equal(fchmod(fd, 0750), 0);
	close(fd);
	fd = rec_open_dir(true);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode, S_IFDIR | 0750);
	close(fd);
}

static void test_open_dir_refused(void **state)
{
	char path[128], other[128];
	int fd;

	(void)state;
	setenv("UBLKCTL_SYSROOT", root, 1);
	snprintf(path, sizeof(path), "%s/run", root);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(other, sizeof(other), "%s/elsewhere", root);
	assert_int_equal(mkdir(other, 0755), 0);
	snprintf(path, sizeof(path), "%s/run/ublkctl", root);
	assert_int_equal(symlink(other, path), 0);
	assert_true(rec_open_dir(true) < 0);
	assert_true(rec_open_dir(false) < 0);
	assert_int_equal(unlink(path), 0);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(rec_open_dir(true), -ENOTDIR);
}

static pid_t child_that_ends(void)
{
	pid_t pid = fork();
	siginfo_t si;

	assert_true(pid >= 0);
	if (!pid)
		_exit(0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT), 0);
	return pid;
}

static void test_alive(void **state)
{
	struct record r = { .pid = getpid(), .pid_start = fs_pid_start(getpid()) };
	int pipefd[2];
	siginfo_t si;
	pid_t pid;

	(void)state;
	assert_true(r.pid_start > 0);
	assert_true(rec_server_alive(&r));
	r.pid_start++; /* the pid was used again */
	assert_false(rec_server_alive(&r));
	r.pid_start = 0;
	assert_false(rec_server_alive(&r));

	assert_int_equal(pipe2(pipefd, O_CLOEXEC), 0);
	pid = fork();
	if (!pid) {
		char c;

		close(pipefd[1]);
		_exit(read(pipefd[0], &c, 1) != 0);
	}
	r = (struct record){ .pid = pid, .pid_start = fs_pid_start(pid) };
	assert_true(rec_server_alive(&r));
	close(pipefd[1]);
	assert_int_equal(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT), 0);
	assert_false(rec_server_alive(&r)); /* a zombie serves nobody */
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_false(rec_server_alive(&r));
	close(pipefd[0]);
}

static void test_not_alive(void **state)
{
	struct record r = { .pid = 0, .pid_start = 0 };

	(void)state;
	assert_false(rec_server_alive(&r)); /* a server that was starting */
	r.pid = -1;
	assert_false(rec_server_alive(&r));
	r.pid = child_that_ends();
	assert_false(rec_server_alive(&r)); /* zombie of an unknown age */
	assert_int_equal(waitpid(r.pid, NULL, 0), r.pid);
	assert_false(rec_server_alive(&r)); /* gone, and nobody knew when it started */
	r.pid_start = 1;
	assert_false(rec_server_alive(&r));
}

/* A name with all that proc(5) puts between parentheses. */
static void test_start_time_of_odd_names(void **state)
{
	static const char *const stats[] = {
		"9 (a b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21\n",
		"9 () S 1 2 3) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21\n",
		"9 (\n) x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21\n",
	};
	char path[128];
	int dir;

	(void)state;
	setenv("UBLKCTL_SYSROOT", root, 1);
	snprintf(path, sizeof(path), "%s/proc", root);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/proc/9", root);
	assert_int_equal(mkdir(path, 0755), 0);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fs_pid_start(9) == 0);
	for (size_t i = 0; i < COUNT_OF(stats); i++) {
		tmpdir_put(dir, "stat", stats[i], strlen(stats[i]));
		unit_case("%s", stats[i]);
		unit_check(fs_pid_start(9) == 4242);
	}
	tmpdir_put(dir, "stat", "9 (x) Z 1 2", 11);
	assert_true(fs_pid_start(9) == 0);
	tmpdir_put(dir, "stat", "9 (x) S 1 2", 11);
	assert_true(fs_pid_start(9) == 0);
	tmpdir_put(dir, "stat", "", 0);
	assert_true(fs_pid_start(9) == 0);
	close(dir);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

static void test_remove(void **state)
{
	const struct record r = numbered(7);
	struct record out;
	int dir = open_root();

	(void)state;
	assert_int_equal(rec_remove(dir, 7, r.cookie), 0); /* none: no error */
	assert_int_equal(rec_write(dir, &r), 0);
	assert_int_equal(rec_remove(dir, 7, r.cookie ^ 1), 0);
	assert_int_equal(rec_remove(dir, 7, 0), 0);
	assert_int_equal(rec_remove(dir, 8, r.cookie), 0);
	assert_int_equal(rec_read(dir, 7, &out), 0); /* another device's record stays */
	assert_int_equal(rec_remove(dir, 7, r.cookie), 0);
	assert_int_equal(rec_read(dir, 7, &out), -ENOENT);
	assert_int_equal(tmpdir_count(dir), 0);
	/* nothing that cannot be read is taken away */
	tmpdir_put(dir, "7.json", "x", 1);
	assert_int_equal(rec_remove(dir, 7, r.cookie), -EPROTO);
	assert_int_equal(tmpdir_count(dir), 1);
	close(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_remove, setup, teardown),
		TEST(test_concurrent_writers),
		TEST(test_concurrent_updates),
		TEST(test_stuck_update),
		TEST(test_leftover_temporary),
		TEST(test_full_disk),
		TEST(test_no_inodes),
		TEST(test_open_dir),
		TEST(test_open_dir_refused),
		TEST(test_alive),
		TEST(test_not_alive),
		TEST(test_start_time_of_odd_names),
	};

	umask(022);
	return cmocka_run_group_tests_name("record_io", tests, NULL, NULL);
}
