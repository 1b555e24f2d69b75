/*
 * scn - scenario runner over the public libdlm API (see README.md for the format).
 *
 *   scn [-q QUIET_MS] [-m] [-L LOCKSPACE] [-n OWNNODE] FILE...   run scenarios
 *   scn -d PORT                                                  agent for other nodes
 *
 * The coordinator never calls libdlm: every "proc" of a scenario is a worker
 * process (forked here, or by the agent on another node) that owns one
 * lockspace handle, calls the API and reports what it saw, as text lines.
 */
#include "scn.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

int opt_modes;

struct proc {
	char name[32];
	int node, dead, pid, creator, busy, fd, len;
	FILE *to;
	char buf[65536];
};
static struct proc procs[64];
static int nprocs, own_node = 1, quiet_ms = 200;
static struct { char l[32]; int p; } own[256];
static int nown;
static const char *lsname = "scn";
static FILE *res;

#define BLOCK_MS 3000
/* one line from a worker: 1 ok, 0 end of file, -1 nothing within ms (-1: wait for ever) */
static int getl(struct proc *p, char *b, int max, int ms)
{
	long end = now_ms() + ms;

	for (;;) {
		char *nl = memchr(p->buf, '\n', p->len);
		if (nl) {
			int n = nl - p->buf + 1, k = n < max ? n : max - 1;
			memcpy(b, p->buf, k); b[k] = 0;
			memmove(p->buf, p->buf + n, p->len -= n);
			return 1;
		}
		struct pollfd pf = {.fd = p->fd, .events = POLLIN};
		long left = ms < 0 ? -1 : end - now_ms();
		if (ms >= 0 && left < 0) left = 0;
		int r = poll(&pf, 1, left);
		if (r == 0) return -1;
		if (p->len == (int)sizeof p->buf) return 0;
		r = syscall(SYS_read, p->fd, p->buf + p->len, sizeof p->buf - p->len);
		if (r <= 0) return 0;
		p->len += r;
	}
}

/* the rest of a reply; a call that does not return is reported and picked up later */
static int take(struct proc *p, int print, int ms, const char *late)
{
	char b[4096];

	for (;;) {
		int r = getl(p, b, sizeof b, ms);
		if (r == 0) { p->dead = 1; p->busy = 0; return -1; }
		if (r < 0) { p->busy = 1; return -1; }
		if (!strcmp(b, ".\n")) { p->busy = 0; return 0; }
		if (print) fprintf(res, "  %s%s", late, b);
	}
}

static void check_late(int ms)
{
	for (int i = 0; i < nprocs; i++)
		if (!procs[i].dead && procs[i].busy) {
			char t[64];
			snprintf(t, sizeof t, "(%.31s returned) ", procs[i].name);
			take(&procs[i], 1, ms, t);
		}
}

static int send_cmd(struct proc *p, int print, const char *fmt, ...)
{
	char b[4096];
	va_list ap;

	if (p->dead) { if (print) fprintf(res, "  proc %s is gone\n", p->name); return -1; }
	if (p->busy) check_late(0);
	if (p->busy) { fprintf(res, "  proc %s is blocked\n", p->name); return -1; }
	va_start(ap, fmt); vsnprintf(b, sizeof b, fmt, ap); va_end(ap);
	fprintf(p->to, "%s\n", b);
	fflush(p->to);
	take(p, print, b[0] == '_' ? 60000 : BLOCK_MS, "");
	if (p->busy) fprintf(res, "  (blocked)\n");
	return p->busy || p->dead ? -1 : 0;
}

static int tcp_connect(int node, int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	char ip[32];
	int s = -1, one = 1;

	/* SCN_ADDR: the agent's address, or "<network>.+<n>": node i has <network>.<n + i> */
	const char *where = getenv("SCN_ADDR"), *plus = where ? strchr(where, '+') : NULL;
	if (plus) snprintf(ip, sizeof ip, "%.*s%d", (int)(plus - where), where, atoi(plus) + node);
	else if (where) snprintf(ip, sizeof ip, "%.31s", where);
	else snprintf(ip, sizeof ip, "10.77.0.%d", node);
	inet_aton(ip, &a.sin_addr);
	for (int i = 0; i < 50; i++) {
		s = socket(AF_INET, SOCK_STREAM, 0);
		if (!connect(s, (void *)&a, sizeof a)) break;
		close(s); s = -1; usleep(100000);
	}
	if (s >= 0) setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	return s;
}

#define PORT 7707
static struct proc *start_proc(const char *name, int node, int sync)
{
	struct proc *p = &procs[nprocs++];
	int create = 1, i;

	memset(p, 0, sizeof *p);
	snprintf(p->name, sizeof p->name, "%s", name);
	p->node = node;
	for (i = 0; i < nprocs - 1; i++)
		if (procs[i].node == node) create = 0;
	if (node == own_node) {
		int a[2], b[2];
		if (pipe2(a, O_CLOEXEC) || pipe2(b, O_CLOEXEC)) exit(3);
		fflush(NULL);
		p->pid = fork();
		if (!p->pid) {
			for (i = 3; i < 256; i++) if (i != a[0] && i != b[1]) close(i);
			worker(a[0], b[1], sync);
		}
		close(a[0]); close(b[1]);
		p->to = fdopen(a[1], "w"); p->fd = b[0];
	} else {
		int s = tcp_connect(node, PORT);
		if (s < 0) { fprintf(res, "  no agent on node %d\n", node); exit(3); }
		p->to = fdopen(s, "w"); p->fd = dup(s);
		fprintf(p->to, "%d %d\n", sync, opt_modes); fflush(p->to);
		if (getl(p, (char[64]){0}, 60, 10000) != 1) exit(3);
	}
	p->creator = create;
	send_cmd(p, 1, "_open %s %d", lsname, create);
	if (create && nprocs > 1) usleep(500000);	/* let the other members finish their recovery */
	return p;
}

static void settle_all(int ms)
{
	for (int i = 0; i < nprocs; i++)
		if (!procs[i].dead && !procs[i].busy) {
			fprintf(procs[i].to, "settle %d\n", ms);
			fflush(procs[i].to);
		}
	for (int i = 0; i < nprocs; i++)
		if (!procs[i].dead && !procs[i].busy) take(&procs[i], 1, 60000, "");
	check_late(100);
}

static struct proc *find_proc(const char *n)
{
	for (int i = 0; i < nprocs; i++)
		if (!strcmp(procs[i].name, n)) return &procs[i];
	return NULL;
}

static struct proc *owner(const char *l, struct proc *cur_)
{
	for (int i = 0; i < nown; i++)
		if (!strcmp(own[i].l, l)) return &procs[own[i].p];
	snprintf(own[nown].l, sizeof own[nown].l, "%s", l);
	own[nown++].p = cur_ - procs;
	return cur_;
}

static uint32_t id_of(struct proc *p, const char *l)
{
	char b[256];
	uint32_t v = 0;
	if (p->dead || p->busy) return 0;
	fprintf(p->to, "_id %s\n", l); fflush(p->to);
	while (getl(p, b, sizeof b, 5000) == 1 && strcmp(b, ".\n")) v = strtoul(b, 0, 0);
	return v;
}

static void finish(struct proc *p, const char *how)
{
	char b[256];

	if (p->dead) return;
	if (p->busy) { if (p->pid) kill(p->pid, SIGKILL); }
	else { fprintf(p->to, "%s\n", how); fflush(p->to); }
	while (getl(p, b, sizeof b, p->busy ? 2000 : 10000) == 1) ;
	if (p->pid) waitpid(p->pid, NULL, p->busy ? WNOHANG : 0);
	fclose(p->to); close(p->fd);
	p->dead = 1;
}

static int run_file(const char *path)
{
	FILE *f = strcmp(path, "-") ? fopen(path, "r") : stdin;
	char raw[4096], line[4096], *t[64];
	struct proc *cp, *p;
	int hold = 0, q = quiet_ms, n, i;

	if (!f) { perror(path); return 1; }
	nprocs = nown = 0;
	cp = start_proc("main", own_node, 0);
	while (fgets(raw, sizeof raw, f)) {
		raw[strcspn(raw, "\r\n")] = 0;
		if (raw[0] == '#') { fprintf(res, "%s\n", raw); continue; }
		strcpy(line, raw);
		n = split(line, t, 63);
		if (!n) continue;
		{ char *h = strstr(raw, " #"); if (h) *h = 0; }
		fprintf(res, "> %s\n", raw);
		if (!strcmp(t[0], "proc")) {
			char *at = strchr(t[1], '@');
			int node = own_node, sync = n > 2 && !strcmp(t[2], "sync");
			if (at) { *at = 0; node = atoi(at + 1); }
			cp = find_proc(t[1]);
			if (!cp) cp = start_proc(t[1], node, sync);
			continue;
		}
		if (!strcmp(t[0], "hold")) { hold = 1; continue; }
		if (!strcmp(t[0], "flush")) { hold = 0; settle_all(q); continue; }
		if (!strcmp(t[0], "quiet")) { q = atoi(t[1]); continue; }
		if (!strcmp(t[0], "sleep")) { usleep(atoi(t[1]) * 1000); settle_all(q); continue; }
		if (!strcmp(t[0], "exit") || !strcmp(t[0], "kill")) {
			p = find_proc(t[1]);
			if (p) finish(p, t[0][0] == 'e' ? "_exit" : "_kill");
			settle_all(q);
			continue;
		}
		if (!strcmp(t[0], "killnode")) {
			char b[256];
			const char *dir = getenv("SCN_KILL_DIR");
			snprintf(b, sizeof b, "%.200s/kill.%.30s", dir ? dir : ".", t[1]);
			close(open(b, O_CREAT | O_WRONLY, 0600));
			for (i = 0; i < nprocs; i++) if (procs[i].node == atoi(t[1])) procs[i].dead = 1;
			const char *quiet = getenv("SCN_KILL_QUIET");
			settle_all(quiet ? atoi(quiet) : n > 2 ? atoi(t[2]) : 15000);
			continue;
		}
		if (!strcmp(t[0], "sameid")) {
			uint32_t a = id_of(owner(t[1], cp), t[1]), b = id_of(owner(t[2], cp), t[2]);
			fprintf(res, "  %s\n", a == b ? "same" : "different");
			continue;
		}
		if (!strcmp(t[0], "purge")) {
			int nd = !strcmp(t[1], "self") ? own_node : atoi(t[1]);
			p = find_proc(t[2]);
			send_cmd(cp, 1, "purge %d %d", nd, p ? p->pid : !strcmp(t[2], "self") ? cp->pid : atoi(t[2]));
			settle_all(q);
			continue;
		}
		if (!strncmp(t[0], "ls_", 3) || !strcmp(t[0], "use") || !strcmp(t[0], "version")) p = cp;
		else p = owner(t[1], cp);
		if (!strcmp(t[0], "setid") && n > 2) {	/* the other locker may live elsewhere */
			for (i = 0; i < nown; i++)
				if (!strcmp(own[i].l, t[2])) {
					send_cmd(p, 1, "setid %s %u", t[1],
						 id_of(&procs[own[i].p], t[2]));
					break;
				}
			if (i == nown) send_cmd(p, 1, "%s", raw);
			continue;
		}
		{ char *at = strstr(raw, "@ls");	/* @ls: the scenario's own lockspace */
		  if (at) {
			char b[4096];
			snprintf(b, sizeof b, "%.*s%s%s", (int)(at - raw), raw, lsname, at + 3);
			strcpy(raw, b);
		  } }
		send_cmd(p, 1, "%s", raw);
		if (!hold) settle_all(q);
	}
	if (f != stdin) fclose(f);
	fprintf(res, "> end\n");
	settle_all(q);
	for (i = nprocs - 1; i >= 0; i--)
		if (!procs[i].creator) finish(&procs[i], "_exit");
	check_late(BLOCK_MS);
	for (i = nprocs - 1; i >= 0; i--)
		if (procs[i].creator && !procs[i].dead) {
			send_cmd(&procs[i], 1, "_release %s", lsname);
			finish(&procs[i], "_exit");
		}
	fflush(res);
	return 0;
}

static void agent(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	signal(SIGCHLD, SIG_IGN);
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (getenv("SCN_ADDR")) inet_aton(getenv("SCN_ADDR"), &a.sin_addr);
	if (bind(s, (void *)&a, sizeof a) || listen(s, 16)) { perror("agent"); exit(1); }
	for (;;) {
		int c = accept(s, NULL, NULL);
		if (c < 0) continue;
		setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		if (!fork()) {
			char h[16] = "";
			int k = 0, sync = 0;
			close(s);
			while (k < 15 && syscall(SYS_read, c, h + k, 1) == 1 && h[k] != '\n') k++;
			sscanf(h, "%d %d", &sync, &opt_modes);
			if (write(c, ".\n", 2) != 2) _exit(1);
			worker(c, dup(c), sync);
		}
		close(c);
	}
}

int main(int argc, char **argv)
{
	int o;

	signal(SIGPIPE, SIG_IGN);
	while ((o = getopt(argc, argv, "q:mL:n:d:")) != -1) switch (o) {
		case 'q': quiet_ms = atoi(optarg); break;
		case 'm': opt_modes = 1; break;
		case 'L': lsname = optarg; break;
		case 'n': own_node = atoi(optarg); break;
		case 'd': agent(atoi(optarg)); return 0;
		default: return 2;
	}
	res = stdout;
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (; optind < argc; optind++) run_file(argv[optind]);
	return 0;
}
