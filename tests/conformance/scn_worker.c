/*
 * scn: a worker process. It owns lockspace handles, makes the calls of the public API and
 * reports, as text lines, what the calls returned and what the callbacks showed.
 */
#include "scn.h"

struct locker {
	char name[32];
	struct dlm_lksb lksb;
	char lvb[DLM_LVB_LEN + 1];
	int lvb_used;
	dlm_lshandle_t h;
	struct locker *next;
};
struct lspace { char name[128]; dlm_lshandle_t h; int threaded; struct lspace *next; };

static struct locker *lockers;
static struct lspace *spaces, *cur;
static FILE *wout;
static int w_sync, peek_mode = -1, peek_lvb, peek_fds[16], npeek;
static pthread_mutex_t evlock = PTHREAD_MUTEX_INITIALIZER;
static char *evq[100000];
static int nev;

/* libdlm's read of a result passes through here, so -m can show what the
   public API hides: the mode a blocking AST is for, and if an LVB came along */
ssize_t read(int fd, void *buf, size_t n)
{
	ssize_t r = syscall(SYS_read, fd, buf, n);
	struct result {
		uint32_t ver[3], length;
		void *a, *p, *l;
		struct dlm_lksb s;
		uint8_t bast_mode, unused[3];
		uint32_t lvb_off;
	} *q = buf;

	for (int i = 0; i < npeek; i++)
		if (peek_fds[i] == fd && r >= (ssize_t)sizeof(*q)) {
			peek_mode = q->bast_mode;
			peek_lvb = q->lvb_off != 0;
		}
	return r;
}

static void event(const char *fmt, ...)
{
	char b[512];
	va_list ap;

	va_start(ap, fmt); vsnprintf(b, sizeof b, fmt, ap); va_end(ap);
	pthread_mutex_lock(&evlock);
	if (nev < (int)NEL(evq)) evq[nev++] = strdup(b);
	pthread_mutex_unlock(&evlock);
}

static void seen(struct locker *l, const char *kind, int is_bast)
{
	char m[48] = "", v[300] = "";

	if (opt_modes && is_bast && peek_mode >= 0 && peek_mode < 6)
		snprintf(m, sizeof m, " mode=%s", modetab[peek_mode]);
	if (opt_modes && !is_bast && peek_lvb) snprintf(m, sizeof m, " lvbcopied");
	if (l->lvb_used) snprintf(v, sizeof v, " lvb=\"%s\"", show_text(l->lvb, DLM_LVB_LEN));
	event("%s %s st=%s fl=%s%s%s", kind, l->name, st_name(l->lksb.sb_status),
	      fl_name((unsigned char)l->lksb.sb_flags), v, m);
	peek_mode = -1; peek_lvb = 0;
}
static void ast_fn(void *a) { seen(a, "cast", 0); }
static void bast_fn(void *a) { seen(a, "bast", 1); }

static struct locker *get_locker(const char *n, int create)
{
	struct locker *l;

	for (l = lockers; l; l = l->next)
		if (!strcmp(l->name, n)) return l;
	if (!create) return NULL;
	l = calloc(1, sizeof *l);
	snprintf(l->name, sizeof l->name, "%s", n);
	l->lksb.sb_lvbptr = l->lvb;
	l->next = lockers; lockers = l;
	return l;
}

static struct lspace *get_space(const char *n)
{
	for (struct lspace *s = spaces; s; s = s->next)
		if (!strcmp(s->name, n)) return s;
	return NULL;
}
static struct lspace *add_space(const char *n, dlm_lshandle_t h)
{
	struct lspace *s = calloc(1, sizeof *s);
	snprintf(s->name, sizeof s->name, "%s", n);
	s->h = h; s->next = spaces; spaces = s;
	if (npeek < 16) peek_fds[npeek++] = dlm_ls_get_fd(h);
	if (w_sync) { dlm_ls_pthread_init(h); s->threaded = 1; }
	return s;
}
static void del_space(struct lspace *s)
{
	struct lspace **p;
	for (p = &spaces; *p; p = &(*p)->next)
		if (*p == s) { *p = s->next; break; }
	if (cur == s) cur = spaces;
	free(s);
}

/* libdlm's unlock sends an LVB field it never filled in; give that stack memory a known content */
static void __attribute__((noinline)) scrub_stack(void)
{
	volatile char b[16384];
	for (unsigned i = 0; i < sizeof b; i++) b[i] = (char)0xaa;
}

static void reply(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt); vfprintf(wout, fmt, ap); va_end(ap);
	fputc('\n', wout);
}
static void reply_ret(int rv, int e, struct locker *l)
{
	char b[64] = "";
	if (l) snprintf(b, sizeof b, " st=%s lkid=%s", st_name(l->lksb.sb_status),
			l->lksb.sb_lkid ? "+" : "0");
	if (rv) reply("ret=%d errno=%s%s", rv, st_name(e), b);
	else reply("ret=0%s", b);
}

/* dispatch until nothing came for QUIET ms */
static void settle(int quiet)
{
	long last = now_ms(), hard = last + 20000;

	for (;;) {
		struct pollfd p[16];
		int n = 0, before, left = quiet - (now_ms() - last);

		if (left < 0) left = 0;
		for (struct lspace *s = spaces; s && n < 16; s = s->next)
			if (!s->threaded)
				p[n++] = (struct pollfd){.fd = dlm_ls_get_fd(s->h), .events = POLLIN};
		before = nev;
		poll(p, n, w_sync ? (left > 20 ? 20 : left) : left);
		for (int i = 0; i < n; i++)
			if (p[i].revents & POLLIN) dlm_dispatch(p[i].fd);
		if (nev != before) last = now_ms();
		if (now_ms() - last >= quiet || now_ms() > hard) break;
	}
	pthread_mutex_lock(&evlock);
	for (int i = 0; i < nev; i++) { reply("%s", evq[i]); free(evq[i]); }
	nev = 0;
	pthread_mutex_unlock(&evlock);
}

static int w_cmd(char **t, int n)
{
	struct locker *l;
	const char *c = t[0];
	int i, rv, e;

	if (!strcmp(c, "settle")) { settle(atoi(t[1])); return 0; }
	if (!strcmp(c, "_open")) { /* _open NAME create? */
		dlm_lshandle_t h = atoi(t[2]) ? dlm_create_lockspace(t[1], 0600) : dlm_open_lockspace(t[1]);
		if (!h) { reply("cannot open lockspace: %s", st_name(errno)); return 0; }
		cur = add_space(t[1], h);
		return 0;
	}
	if (!strcmp(c, "_exit")) { fflush(wout); _exit(0); }
	if (!strcmp(c, "_kill")) { fflush(wout); raise(SIGKILL); }
	if (!strcmp(c, "_release")) {
		rv = cur ? dlm_release_lockspace(t[1], cur->h, 2) : 0;
		if (rv) reply("final release: ret=%d errno=%s", rv, st_name(errno));
		return 0;
	}
	if (!strncmp(c, "ls_", 3) || !strcmp(c, "use")) {
		char nm[256];
		struct lspace *s;
		dlm_lshandle_t h;
		uint32_t f = 0;

		nm[parse_text(t[1], nm, sizeof nm - 1)] = 0;
		s = get_space(nm);
		if (!strcmp(c, "use")) { cur = s; return 0; }
		if ((!strcmp(c, "ls_close") || !strcmp(c, "ls_release")) && !s) { reply("no handle"); return 0; }
		if (!strcmp(c, "ls_close")) {
			rv = dlm_close_lockspace(s ? s->h : NULL); e = errno;
			if (s) del_space(s);
			reply_ret(rv, e, NULL); return 0;
		}
		if (!strcmp(c, "ls_release")) {
			rv = dlm_release_lockspace(nm, s ? s->h : NULL, n > 2 ? atoi(t[2]) : 0); e = errno;
			if (s && !rv) del_space(s);
			reply_ret(rv, e, NULL); return 0;
		}
		if (n > 2 && parse_flags(t[2], &f)) f = strtoul(t[2], 0, 0);
		errno = 0;
		h = !strcmp(c, "ls_create") ? dlm_create_lockspace(nm, 0600) :
		    !strcmp(c, "ls_new") ? dlm_new_lockspace(nm, 0600, f) : dlm_open_lockspace(nm);
		e = errno;
		if (h) { add_space(nm, h); reply("handle=+"); } else reply("handle=0 errno=%s", st_name(e));
		return 0;
	}
	if (!strcmp(c, "purge")) {
		errno = 0;
		rv = dlm_ls_purge(cur->h, strtol(t[1], 0, 0), strtol(t[2], 0, 0)); e = errno;
		reply_ret(rv, e, NULL);
		return 0;
	}
	if (!strcmp(c, "version")) {
		uint32_t a, b, d, x, y, z;
		rv = dlm_kernel_version(&a, &b, &d); dlm_library_version(&x, &y, &z);
		reply("kernel ret=%d %u.%u.%u library %u.%u.%u", rv, a, b, d, x, y, z);
		return 0;
	}
	l = get_locker(t[1], 1);
	if (!strcmp(c, "setlvb")) {
		memset(l->lvb, 0, sizeof l->lvb); parse_text(t[2], l->lvb, DLM_LVB_LEN); l->lvb_used = 1;
		return 0;
	}
	if (!strcmp(c, "showlvb")) { reply("lvb=\"%s\"", show_text(l->lvb, DLM_LVB_LEN)); return 0; }
	if (!strcmp(c, "show")) {
		reply("st=%s fl=%s", st_name(l->lksb.sb_status),
		      fl_name((unsigned char)l->lksb.sb_flags));
		return 0;
	}
	if (!strcmp(c, "setid")) {
		struct locker *o = get_locker(t[2], 0);
		l->lksb.sb_lkid = o ? o->lksb.sb_lkid : strtoul(t[2], 0, 0);
		return 0;
	}
	if (!strcmp(c, "_id")) { reply("%u", l->lksb.sb_lkid); return 0; }

	int mode = -1, wait = 0, isl = 0, isc = 0, isu = 0;
	uint32_t fl = 0, parent = 0, lkid;
	char nm[512] = "";
	int nmlen = 0;
	void (*bast)(void *) = bast_fn;
	void (*ast)(void *) = ast_fn;

	if (!strcmp(c, "lock") || !strcmp(c, "lockw")) isl = 1;
	else if (!strcmp(c, "convert") || !strcmp(c, "convertw")) isc = 1;
	else if (!strcmp(c, "unlock") || !strcmp(c, "unlockw")) isu = 1;
	else if (!strcmp(c, "cancel") || !strcmp(c, "cancelw")) { isu = 1; fl = LKF_CANCEL; }
	else if (!strcmp(c, "deadlk")) isu = 2;
	else { reply("bad command %s", c); return 0; }
	wait = c[strlen(c) - 1] == 'w';
	i = 2;
	if (isl || isc) mode = parse_mode(t[i++]);
	if (isl) nmlen = parse_text(t[i++], nm, sizeof nm);
	lkid = l->lksb.sb_lkid;
	for (; i < n; i++) {
		uint32_t f;
		if (!strncmp(t[i], "lvb=", 4)) {
			memset(l->lvb, 0, sizeof l->lvb); parse_text(t[i] + 4, l->lvb, DLM_LVB_LEN); l->lvb_used = 1;
		} else if (!strcmp(t[i], "nolvb")) l->lksb.sb_lvbptr = NULL;
		else if (!strcmp(t[i], "nobast")) bast = NULL;
		else if (!strcmp(t[i], "noast")) ast = NULL;
		else if (!strncmp(t[i], "len=", 4)) nmlen = strtol(t[i] + 4, 0, 0);
		else if (!strncmp(t[i], "parent=", 7)) parent = strtoul(t[i] + 7, 0, 0);
		else if (!strncmp(t[i], "lkid=", 5)) lkid = strtoul(t[i] + 5, 0, 0);
		else if (!parse_flags(t[i], &f)) fl |= f;
		else { reply("bad word %s", t[i]); return 0; }
	}
	if (fl & LKF_VALBLK && l->lksb.sb_lvbptr) l->lvb_used = 1;
	errno = 0;
	if (isl || isc) {
		if (isc) fl |= LKF_CONVERT;
		if (isc) l->lksb.sb_lkid = lkid;
		rv = wait ? dlm_ls_lock_wait(cur->h, mode, &l->lksb, fl, nm, nmlen, parent, l, bast, NULL)
			  : dlm_ls_lock(cur->h, mode, &l->lksb, fl, nm, nmlen, parent, ast, l, bast, NULL);
	} else if (scrub_stack(), isu == 2) rv = dlm_ls_deadlock_cancel(cur->h, lkid, fl);
	else rv = wait ? dlm_ls_unlock_wait(cur->h, lkid, fl, &l->lksb)
		       : dlm_ls_unlock(cur->h, lkid, fl, &l->lksb, l);
	e = errno;
	if (wait) reply("%s%s%s st=%s fl=%s%s%s%s", rv ? "ret=-1" : "ret=0",
			rv ? " errno=" : "", rv ? st_name(e) : "",
			st_name(l->lksb.sb_status), fl_name((unsigned char)l->lksb.sb_flags),
			l->lvb_used ? " lvb=\"" : "",
			l->lvb_used ? show_text(l->lvb, DLM_LVB_LEN) : "", l->lvb_used ? "\"" : "");
	else reply_ret(isu == 2 && rv > 0 ? 0 : rv, e, isu == 2 ? NULL : l);
	return 0;
}

void worker(int in, int out, int sync)
{
	FILE *fi = fdopen(in, "r");
	char line[4096], *t[64];

	wout = fdopen(out, "w");
	w_sync = sync;
	signal(SIGPIPE, SIG_DFL);
	while (fgets(line, sizeof line, fi)) {
		int n = split(line, t, 63);
		if (n) w_cmd(t, n);
		fputs(".\n", wout);
		fflush(wout);
	}
	_exit(0);
}
