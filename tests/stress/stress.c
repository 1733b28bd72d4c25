/* SPDX-License-Identifier: MIT */
/*
 * Data-integrity stress of a block device: many operations at a time with direct I/O, every read
 * checked against a model of what the device must hold, and the whole device at the end.
 *
 * Operations in flight at the same time never overlap, so the model is exact. --help has the rest.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <liburing.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "model.h"

/* BLOCK_URING_CMD_DISCARD of linux/blkdev.h, Linux 6.12: start in addr, length in addr3 */
#define DISCARD_CMD _IO(0x12, 0)

#define DEPTH_MAX 1024
#define PAGE 4096
#define GUARD 64	/* bytes behind each buffer that nobody may touch */
#define CHUNK (1 << 20) /* bytes of sequential I/O */
#define POISON 0xa5	/* a read buffer holds it before the read, the guard always */
#define HOT_BYTES CHUNK /* one operation in four goes to the start of the device */

enum kind { READ, WRITE, WRITE_FUA, FLUSH, ZERO, ZERO_UNMAP, DISCARD, NR_KINDS };

static const struct {
	const char *name;
	unsigned int weight;
} kinds[NR_KINDS] = {
	[READ] = { "read", 30 },      [WRITE] = { "write", 40 }, [WRITE_FUA] = { "fua-write", 8 },
	[FLUSH] = { "flush", 4 },     [ZERO] = { "zero", 6 },	 [ZERO_UNMAP] = { "zero-unmap", 6 },
	[DISCARD] = { "discard", 6 },
};

struct op {
	enum kind kind;
	uint64_t off;
	uint32_t len; /* bytes, 0: no range */
	uint32_t version;
	uint8_t *mem; /* max_len, guard and alignment */
	uint8_t *buf; /* somewhere in it */
	bool busy;
};

struct stress {
	/* options */
	const char *path, *image;
	uint64_t ops, seed;
	unsigned int depth;
	uint64_t max_len;
	uint32_t mem_align; /* 0: as the device says */
	bool discard_zeroes;
	/* the device */
	int fd;
	uint64_t size;
	uint32_t block;
	bool can[NR_KINDS];
	/* state */
	struct model model;
	struct io_uring ring;
	struct op op[DEPTH_MAX];
	uint64_t random;
	uint32_t version;
	uint64_t count[NR_KINDS];
};

static const char help[] =
	"Usage: stress [OPTION]... DEVICE\n"
	"\n"
	"Destroys what is on DEVICE. Prints the seed, then the number of operations by kind.\n"
	"\n"
	"  --ops N           operations (10000)\n"
	"  --depth N         of them in flight (32)\n"
	"  --max SIZE        bytes of the largest (1048576)\n"
	"  --align SIZE      of buffers in memory (default: the device's dma_alignment)\n"
	"  --seed N          chooses the operations (default: random)\n"
	"  --discard-zeroes  discarded blocks must read as zeros\n"
	"  --image FILE      writes what the device must hold to FILE\n"
	"\n"
	"Exit status: 0 no difference, 1 a difference or an I/O error, 2 wrong usage.\n";

__attribute__((noreturn, format(printf, 2, 3))) static void die(int status, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "stress: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(status);
}

/* splitmix64: the same seed gives the same operations, as far as they complete in the same order. */
static uint64_t next_random(struct stress *s)
{
	uint64_t z = s->random += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

static uint64_t below(struct stress *s, uint64_t n)
{
	return next_random(s) % n;
}

/* ---- the device -------------------------------------------------------------------------- */

static uint64_t queue_attr(const struct stat *st, const char *attr)
{
	char path[128];
	uint64_t v;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/queue/%s", major(st->st_rdev),
		 minor(st->st_rdev), attr);
	f = fopen(path, "re");
	if (!f || fscanf(f, "%" SCNu64, &v) != 1)
		die(1, "cannot read %s", path);
	fclose(f);
	return v;
}

static void open_device(struct stress *s)
{
	struct stat st;
	int block;

	s->fd = open(s->path, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (s->fd < 0 || fstat(s->fd, &st) < 0)
		die(1, "cannot open %s: %s", s->path, strerror(errno));
	if (!S_ISBLK(st.st_mode) || ioctl(s->fd, BLKGETSIZE64, &s->size) < 0 ||
	    ioctl(s->fd, BLKSSZGET, &block) < 0)
		die(1, "%s is no block device", s->path);
	s->block = (uint32_t)block;
	if (!s->mem_align)
		s->mem_align = (uint32_t)queue_attr(&st, "dma_alignment") + 1;
	for (unsigned int k = 0; k < NR_KINDS; k++)
		s->can[k] = true;
	s->can[DISCARD] = queue_attr(&st, "discard_max_bytes") > 0;
	/* without unmap the block layer writes zeros itself when it must */
	s->can[ZERO_UNMAP] = queue_attr(&st, "write_zeroes_max_bytes") > 0;
	if (s->max_len > s->size)
		s->max_len = s->size;
	if (s->max_len < s->block)
		die(2, "--max is less than a block of %u bytes", s->block);
}

static void *alloc(size_t len)
{
	void *p = aligned_alloc(PAGE, (len + PAGE - 1) & ~(size_t)(PAGE - 1));

	if (!p)
		die(1, "no memory");
	return p;
}

/* Walks over the device in large pieces; the model is filled or compared. */
static void read_all(struct stress *s, bool compare)
{
	uint8_t *buf = alloc(CHUNK);

	for (uint64_t off = 0; off < s->size;) {
		size_t len = s->size - off < CHUNK ? s->size - off : CHUNK;
		ssize_t n = pread(s->fd, buf, len, (off_t)off);

		if (n <= 0 || n % s->block)
			die(1, "read at %" PRIu64 ": %s", off, n < 0 ? strerror(errno) : "short");
		if (compare && !model_check(&s->model, off, buf, (size_t)n, "at the end"))
			exit(1);
		for (size_t at = 0; at < (size_t)n; at += s->block)
			if (!compare || !s->model.known[(off + at) / s->block])
				model_put(&s->model, off + at, buf + at, s->block);
		off += (uint64_t)n;
	}
	free(buf);
}

static void write_image(const struct stress *s)
{
	FILE *f = fopen(s->image, "we");

	if (!f || fwrite(s->model.image, 1, s->size, f) != s->size || fclose(f))
		die(1, "cannot write %s: %s", s->image, strerror(errno));
}

/* ---- operations --------------------------------------------------------------------------- */

static bool has_buffer(enum kind k)
{
	return k == READ || k == WRITE || k == WRITE_FUA;
}

static enum kind choose_kind(struct stress *s)
{
	unsigned int sum = 0;
	uint64_t at;

	for (unsigned int k = 0; k < NR_KINDS; k++)
		sum += s->can[k] ? kinds[k].weight : 0;
	at = below(s, sum);
	for (unsigned int k = 0; k < NR_KINDS; k++) {
		if (!s->can[k])
			continue;
		if (at < kinds[k].weight)
			return (enum kind)k;
		at -= kinds[k].weight;
	}
	return READ;
}

static bool overlaps(const struct stress *s, uint64_t off, uint64_t len)
{
	for (unsigned int i = 0; i < s->depth; i++) {
		const struct op *o = &s->op[i];

		if (o->busy && off < o->off + o->len && o->off < off + len)
			return true;
	}
	return false;
}

/* Lengths of all magnitudes alike; false: nothing free was found. */
static bool choose_range(struct stress *s, struct op *o)
{
	for (unsigned int try = 0; try < 100; try++) {
		uint64_t max = s->max_len / s->block, span = s->size / s->block, len, first;
		unsigned int bits = 64 - (unsigned int)__builtin_clzll(max);

		len = 1 + below(s, 1ULL << below(s, bits));
		if (below(s, 4) == 0 && s->size > HOT_BYTES)
			span = HOT_BYTES / s->block;
		if (len > max || len > span)
			continue;
		first = below(s, span - len + 1);
		if (overlaps(s, first * s->block, len * s->block))
			continue;
		o->off = first * s->block;
		o->len = (uint32_t)(len * s->block);
		return true;
	}
	return false;
}

/* Anywhere the device allows, so that request pages start and end in the middle of pages. */
static void place_buffer(struct stress *s, struct op *o)
{
	o->buf = o->mem;
	if (below(s, 2))
		o->buf += below(s, PAGE / s->mem_align + 1) * s->mem_align;
	if (o->kind == READ)
		memset(o->buf, POISON, o->len);
	else
		model_pattern(&s->model, o->off, o->version, o->buf, o->len);
	memset(o->buf + o->len, POISON, GUARD);
}

static void fill_sqe(const struct stress *s, const struct op *o, struct io_uring_sqe *sqe)
{
	memset(sqe, 0, sizeof(*sqe));
	sqe->fd = s->fd;
	sqe->off = o->off;
	if (has_buffer(o->kind)) {
		sqe->opcode = o->kind == READ ? IORING_OP_READ : IORING_OP_WRITE;
		sqe->addr = (uintptr_t)o->buf;
		sqe->len = o->len;
		sqe->rw_flags = o->kind == WRITE_FUA ? RWF_DSYNC : 0;
	} else if (o->kind == FLUSH) {
		sqe->opcode = IORING_OP_FSYNC;
		sqe->off = 0;
	} else if (o->kind == DISCARD) {
		/* else Linux before 6.15 may read the entry once more when it is another's already */
		sqe->flags = IOSQE_ASYNC;
		sqe->opcode = IORING_OP_URING_CMD;
		sqe->off = 0;
		sqe->cmd_op = DISCARD_CMD;
		sqe->addr = o->off;
		sqe->addr3 = o->len;
	} else {
		sqe->opcode = IORING_OP_FALLOCATE;
		sqe->addr = o->len;
		sqe->len = FALLOC_FL_KEEP_SIZE |
			   (o->kind == ZERO ? FALLOC_FL_ZERO_RANGE : FALLOC_FL_PUNCH_HOLE);
	}
}

/* False: no free range now, once something has completed there will be one. */
static bool start(struct stress *s, struct op *o)
{
	struct io_uring_sqe *sqe;

	o->kind = choose_kind(s);
	o->len = 0;
	if (o->kind != FLUSH && !choose_range(s, o))
		return false;
	o->version = ++s->version;
	if (has_buffer(o->kind))
		place_buffer(s, o);
	sqe = io_uring_get_sqe(&s->ring);
	if (!sqe)
		die(1, "the ring is full");
	fill_sqe(s, o, sqe);
	sqe->user_data = (uint64_t)(o - s->op);
	o->busy = true;
	return true;
}

static void check_guard(const struct op *o)
{
	for (unsigned int i = 0; i < GUARD; i++)
		if (o->buf[o->len + i] != POISON)
			die(1, "%s of %u bytes at %" PRIu64 " wrote behind its buffer",
			    kinds[o->kind].name, o->len, o->off);
}

static void finish(struct stress *s, struct op *o, int res)
{
	char what[64];

	if (res != (has_buffer(o->kind) ? (int)o->len : 0))
		die(1, "%s of %u bytes at %" PRIu64 " returned %d (%s)", kinds[o->kind].name,
		    o->len, o->off, res, res < 0 ? strerror(-res) : "short");
	snprintf(what, sizeof(what), "read of %u bytes, operation %u", o->len, o->version);
	if (has_buffer(o->kind))
		check_guard(o);
	if (o->kind == READ && !model_check(&s->model, o->off, o->buf, o->len, what))
		exit(1);
	if (o->kind == WRITE || o->kind == WRITE_FUA)
		model_put(&s->model, o->off, o->buf, o->len);
	if (o->kind == ZERO || o->kind == ZERO_UNMAP || (o->kind == DISCARD && s->discard_zeroes))
		model_zero(&s->model, o->off, o->len);
	if (o->kind == DISCARD && !s->discard_zeroes)
		model_forget(&s->model, o->off, o->len);
	s->count[o->kind]++;
	o->busy = false;
}

static void run(struct stress *s)
{
	uint64_t started = 0, done = 0;

	while (done < s->ops) {
		struct io_uring_cqe *cqe;
		int r;

		for (unsigned int i = 0; i < s->depth && started < s->ops; i++)
			if (!s->op[i].busy && start(s, &s->op[i]))
				started++;
		r = io_uring_submit_and_wait(&s->ring, 1);
		if (r < 0 && r != -EINTR)
			die(1, "io_uring: %s", strerror(-r));
		while (io_uring_peek_cqe(&s->ring, &cqe) == 0) {
			finish(s, &s->op[cqe->user_data], cqe->res);
			io_uring_cqe_seen(&s->ring, cqe);
			done++;
		}
	}
}

/* ---- start -------------------------------------------------------------------------------- */

static uint64_t number(const char *option, const char *text, uint64_t min, uint64_t max)
{
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(text, &end, 0);
	if (errno || end == text || *end || *text == '-' || v < min || v > max)
		die(2, "--%s: bad value '%s'", option, text);
	return v;
}

static void parse(struct stress *s, int argc, char **argv)
{
	static const struct option options[] = {
		{ "ops", 1, NULL, 'o' },
		{ "depth", 1, NULL, 'd' },
		{ "max", 1, NULL, 'm' },
		{ "seed", 1, NULL, 's' },
		{ "align", 1, NULL, 'a' },
		{ "image", 1, NULL, 'i' },
		{ "discard-zeroes", 0, NULL, 'z' },
		{ "help", 0, NULL, 'h' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'o')
			s->ops = number("ops", optarg, 1, UINT32_MAX);
		else if (c == 'd')
			s->depth = (unsigned int)number("depth", optarg, 1, DEPTH_MAX);
		else if (c == 'm')
			s->max_len = number("max", optarg, 512, 1 << 30);
		else if (c == 'a')
			s->mem_align = (uint32_t)number("align", optarg, 1, PAGE);
		else if (c == 's')
			s->seed = number("seed", optarg, 0, UINT64_MAX);
		else if (c == 'i')
			s->image = optarg;
		else if (c == 'z')
			s->discard_zeroes = true;
		else if (c == 'h')
			exit(fputs(help, stdout) < 0);
		else
			exit(2);
	}
	if (optind + 1 != argc)
		die(2, "one DEVICE is needed; try --help");
	s->path = argv[optind];
}

static void set_up(struct stress *s)
{
	int r;

	open_device(s);
	if (!model_init(&s->model, s->size, s->block, s->seed))
		die(1, "no memory for a model of %" PRIu64 " bytes", s->size);
	for (unsigned int i = 0; i < s->depth; i++)
		s->op[i].mem = alloc(s->max_len + 2 * PAGE + GUARD);
	r = io_uring_queue_init(s->depth, &s->ring, 0);
	if (r < 0)
		die(1, "io_uring: %s", strerror(-r));
	read_all(s, false);
}

static void tear_down(struct stress *s)
{
	io_uring_queue_exit(&s->ring);
	for (unsigned int i = 0; i < s->depth; i++)
		free(s->op[i].mem);
	model_free(&s->model);
	close(s->fd);
}

static struct stress stress = { .ops = 10000, .depth = 32, .max_len = CHUNK };

int main(int argc, char **argv)
{
	struct stress *s = &stress;

	if (getrandom(&s->seed, sizeof(s->seed), 0) < 0)
		die(1, "no random numbers: %s", strerror(errno));
	parse(s, argc, argv);
	s->random = s->seed;
	printf("seed %" PRIu64 "\n", s->seed);
	fflush(stdout);
	set_up(s);
	run(s);
	read_all(s, true);
	if (s->image)
		write_image(s);
	for (unsigned int k = 0; k < NR_KINDS; k++)
		printf("%s %" PRIu64 "\n", kinds[k].name, s->count[k]);
	tear_down(s);
	return fflush(stdout) ? 1 : 0;
}
