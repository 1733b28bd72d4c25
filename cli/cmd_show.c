/* SPDX-License-Identifier: MIT */
/*
 * show: everything known of one device, whatever state its server is in.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cmd.h"
#include "daemon.h"
#include "dev/dev.h"
#include "dev/server.h"
#include "out/show.h"
#include "util/cleanup.h"
#include "util/cpulist.h"
#include "util/fs.h"

/* of the control commands together, and of each look that may not come back */
#define SHOW_TIMEOUT_MS 2000

struct show_cfg {
	struct cmd_common common;
	struct out_opts out;
};

#define AT(member) offsetof(struct show_cfg, member)

/* clang-format off: one option, one entry */
static const struct opt show_options[] = {
	{ .name = "json", .type = OPT_FLAG, .offset = AT(out.json), .help = "print JSON" },
	{ .name = "bytes", .type = OPT_FLAG, .offset = AT(out.bytes), .help = "sizes in bytes" },
	OPT_END
};
/* clang-format on */

static const struct show_cfg show_defaults;

/* ---- looks that may not come back ------------------------------------------------------- */

/*
 * What children find, in memory that is shared with them. GET_PARAMS waits for a lock of the driver that
 * a stop or start against a stalled server holds, and its caller cannot even end before it has it; the
 * search for users of the disk touches file systems that can lie on this very disk; and journalctl reads
 * other disks. So each has a process of its own, which is left behind if it must be.
 */
struct finds {
	int id;
	bool unprivileged; /* the device is its owner's */
	struct ublk_params params;
	bool has_user;
	char user[DEV_USER_TEXT];
	struct show_log log;
};

static int find_params(void *arg, struct fail *f)
{
	struct finds *x = arg;
	struct ctrl c;
	int r = dev_open_ctrl(&c, SHOW_TIMEOUT_MS, f);

	c.unprivileged = x->unprivileged;
	if (!r)
		r = ctrl_get_params(&c, (uint32_t)x->id, &x->params);
	return r < 0 ? fail_errno(f, -r, "cannot get the parameters of device %d", x->id) : 0;
}

static int find_user(void *arg, struct fail *f)
{
	struct finds *x = arg;

	(void)f;
	x->has_user = dev_find_user(x->id, x->user);
	return 0;
}

static int find_log(void *arg, struct fail *f)
{
	struct finds *x = arg;
	char command[128], line[SHOW_LOG_LINE];
	FILE *p;

	if (!fs_exists("/var/log/journal") && !fs_exists("/run/log/journal"))
		return fail_set(f, ENOENT, "no journal");
	snprintf(command, sizeof(command),
		 "exec journalctl -q --no-pager -o short-iso -n %d -t 'ublkctl[%d]' 2>/dev/null",
		 SHOW_LOG_LINES, x->id);
	p = popen(command, "re");
	while (p && fgets(line, sizeof(line), p)) {
		line[strcspn(line, "\n")] = '\0';
		if (x->log.count < SHOW_LOG_LINES)
			memcpy(x->log.line[x->log.count++], line, sizeof(line));
	}
	return !p || pclose(p) ? fail_set(f, EIO, "journalctl failed") : 0;
}

enum { FIND_PARAMS, FIND_USER, FIND_LOG, FINDS };

/* ret_ok[n]: the n-th look came back in time with an answer. */
static void look(struct finds *x, bool has_ctrl, bool ret_ok[FINDS])
{
	static int (*const fn[FINDS])(void *, struct fail *) = { find_params, find_user, find_log };
	struct daemon_call call[FINDS];
	bool started[FINDS];
	struct fail f = { 0 };

	for (int i = 0; i < FINDS; i++)
		started[i] = (i != FIND_PARAMS || has_ctrl) && (i != FIND_LOG || fs_root_is_real()) &&
			     daemon_call_start(&call[i], fn[i], x, SHOW_TIMEOUT_MS, &f) == 0;
	for (int i = 0; i < FINDS; i++) {
		int r = -ENODEV;

		if (started[i])
			r = daemon_call_wait(&call[i], &f);
		/* with its group: a journalctl of it as well */
		if (r == -ETIME)
			kill(-call[i].pid, SIGKILL);
		ret_ok[i] = r == 0;
	}
}

/* ---- queues ----------------------------------------------------------------------------- */

static unsigned int count_queues(const struct dev_view *v)
{
	char path[FS_PATH_MAX];
	unsigned int n = 0;

	if (v->queues > 0)
		return (unsigned int)v->queues;
	while (n < UBLK_MAX_NR_QUEUES && fs_exists(fs_path(path, "/sys/block/%s/mq/%u", v->name, n)))
		n++;
	return n;
}

/* Of a queue from sysfs, where blanks follow the commas. */
static void sysfs_cpus(const struct dev_view *v, unsigned int q, cpu_set_t *ret)
{
	char path[FS_PATH_MAX], text[CPULIST_TEXT], *w = text;

	fs_path(path, "/sys/block/%s/mq/%u/cpu_list", v->name, q);
	if (fs_read_text(path, text, sizeof(text)) < 0)
		return;
	for (const char *r = text; *r; r++)
		if (*r != ' ')
			*w++ = *r;
	*w = '\0';
	cpulist_parse(text, ret);
}

/* The sets are empty where nothing is known. */
static void find_cpus(struct ctrl *c, const struct dev_view *v, unsigned int n, cpu_set_t *sets)
{
	int64_t deadline = fs_now_ms() + SHOW_TIMEOUT_MS;

	for (unsigned int q = 0; q < n; q++) {
		int64_t left = deadline - fs_now_ms();
		int r = -ETIME;

		if (c && left > 0) {
			c->timeout_ms = (int)left;
			r = ctrl_get_queue_affinity(c, (uint32_t)v->id, (uint16_t)q, &sets[q]);
		}
		if (r < 0)
			sysfs_cpus(v, q, &sets[q]);
	}
}

/* ---- record and server ------------------------------------------------------------------ */

/* Why the record is not believed; NULL when it is. */
static const char *record_fault(const struct dev_view *v, struct record *scratch)
{
	_cleanup_fd_ int dir = rec_open_dir(false);
	int r = dir < 0 ? dir : rec_read(dir, v->id, scratch);

	if (v->has_record)
		return NULL;
	switch (-r) {
	case 0:
		return v->cookie ? "it is about another device" :
				   "the driver was not asked and its server does not run";
	case ENOENT:
		return "there is none";
	case EPERM:
		return "others could have written it";
	case EPROTO:
	case EFBIG:
		return "its content is not understood";
	default:
		return strerror(-r);
	}
}

/* The driver's process id can be of a process that has ended, and the number be used again. */
static bool find_server(const struct dev_view *v, struct srv_proc *ret)
{
	if (v->pid <= 0 || (v->has_record && v->rec.pid == v->pid && !rec_server_alive(&v->rec)))
		return false;
	return srv_read((pid_t)v->pid, ret) == 0;
}

static int show(struct ctrl *c, const struct dev_view *v, const struct out_opts *opts, struct fail *f)
{
	struct show s = { .view = v, .nr_queues = count_queues(v) };
	_cleanup_free_ cpu_set_t *cpus = calloc(s.nr_queues + 1, sizeof(*cpus));
	_cleanup_free_ struct record *scratch = calloc(1, sizeof(*scratch));
	_cleanup_free_ struct srv_thread *threads = NULL;
	struct finds *x =
		mmap(NULL, sizeof(*x), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bool ok[FINDS], has_ctrl = c->ops != NULL;
	struct srv_proc proc;

	if (!cpus || !scratch || x == MAP_FAILED)
		return fail_errno(f, ENOMEM, "cannot look at device %d", v->id);
	c->unprivileged = v->flags & UBLK_F_UNPRIVILEGED_DEV;
	find_cpus(has_ctrl ? c : NULL, v, s.nr_queues, cpus);
	ctrl_close(c); /* no ring crosses a fork */
	s.cpus = cpus;
	x->id = v->id;
	x->unprivileged = v->flags & UBLK_F_UNPRIVILEGED_DEV;
	look(x, has_ctrl, ok);
	if (ok[FIND_PARAMS])
		s.params = &x->params;
	/* only root sees what all others have open, and a disk on its way out has no number to look for */
	s.holder = ok[FIND_USER] && x->has_user ? x->user : NULL;
	s.has_holder = s.holder || (ok[FIND_USER] && v->has_disk && geteuid() == 0);
	s.log = ok[FIND_LOG] ? &x->log : NULL;
	if (find_server(v, &proc)) {
		s.server = &proc;
		if (srv_threads(proc.pid, v->id, &threads, &s.nr_threads) == 0 && s.nr_threads)
			s.threads = threads;
	}
	snprintf(s.record_path, sizeof(s.record_path), "/run/ublkctl/%d.json", v->id);
	s.record_fault = record_fault(v, scratch);
	return out_show(&s, opts, f);
}

static int show_run(const struct cmd_args *a, struct fail *f)
{
	const struct show_cfg *cfg = a->cfg;
	static struct dev_view v; /* what is printed points into it */
	struct ctrl c = { 0 };
	struct fail why = { 0 };
	int id, r = dev_parse_operand(a->operands[0], &id, f);

	if (r < 0)
		return r;
	/* the driver of this machine knows nothing of a recorded tree */
	fail_set(&why, 0, "the tree is a recorded one");
	if (fs_root_is_real())
		dev_open_ctrl(&c, SHOW_TIMEOUT_MS, &why);
	r = dev_look(c.ops ? &c : NULL, id, &v, f);
	if (!r) {
		if (!c.ops)
			msg_hint("only what sysfs and /proc tell: %s", why.text);
		r = show(&c, &v, &cfg->out, f);
	}
	ctrl_close(&c);
	return r;
}

const struct cmd cmd_show = {
	.name = "show",
	.summary = "show everything known of a device",
	.operands = "ID|/dev/ublkbN",
	.min_operands = 1,
	.max_operands = 1,
	.operand_hint = HINT_DEVICE,
	.options = show_options,
	.cfg_size = sizeof(struct show_cfg),
	.cfg_defaults = &show_defaults,
	.run = show_run,
};
