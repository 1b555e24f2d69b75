/*
 * A daemon with a lease is stopped, or lost by its cluster, while clients go on (BL-061, BL-092).
 * The library tells them by its own clock; who does not close what it lost is killed. Each test has
 * a daemon of its own, a cluster of one, and a feeder that gives leases.
 * @test libs=dlm,lt daemon=none
 */
#include "t.h"
#include <dlm_ext.h>

static struct t_lock a, b;
static struct t_daemon d;
static volatile int losses, reason_told;

/* ---------------------------------------------------------------- a cluster of one */
static struct { pid_t pid; int to; FILE *from; } feeder;

static const char *program(const char *name)
{
	static char path[400];

	snprintf(path, sizeof path, "%s/%s", getenv("DLM_BIN_DIR") ?: ".", name);
	return path;
}

static void feed(void)
{
	int in[2], out[2];
	char place[300];

	if (access(program("dlm_tool"), X_OK))
		t_skip("dlm_tool is not there");
	CHECK(!pipe(in) && !pipe(out), "pipe: %m");
	snprintf(place, sizeof place, "1=%s", d.socket);
	feeder.pid = fork();
	if (!feeder.pid) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		for (int fd = 3; fd < 1024; fd++)
			close(fd);
		execl(program("dlm_tool"), "dlm_tool", "feed", place, NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	feeder.to = in[1];
	feeder.from = fdopen(out[0], "r");
}

static void say(const char *line)
{
	char answer[200] = "";

	CHECK(write(feeder.to, line, strlen(line)) == (ssize_t)strlen(line), "the feeder is gone");
	CHECK(fgets(answer, sizeof answer, feeder.from), "the feeder does not answer");
	CHECK(!strcmp(answer, "done\n"), "%.20s: %s", line, answer);
}

/* Spans that no pause of this machine ends by mistake, and that a test can wait for. */
static void begin(void)
{
	static char option[300];
	char path[260];
	FILE *f;

	snprintf(path, sizeof path, "%.200s/lease.%d.conf", getenv("DLM_TEST_DIR") ?: "/tmp", getpid());
	CHECK((f = fopen(path, "w")), "%s: %m", path);
	fprintf(f, "membership=external\ncrypto=none\ncreate=all\n"
		"lease=3\nlease_tick=0.05\nlease_grace=3\nwatchdog=none\n"
		"node id=1 addr=127.%d.%d.211\n", (getpid() >> 8 & 0x7f) + 1, getpid() & 0xff);
	fclose(f);
	snprintf(option, sizeof option, "--config=%s", path);
	t_daemon_start(&d, option);
	feed();
}

static void end(void)
{
	close(feeder.to);
	fclose(feeder.from);
	CHECK(waitpid(feeder.pid, NULL, 0) == feeder.pid, "waitpid: %m");
	t_daemon_end(&d);
}

/* ---------------------------------------------------------------- the tests */
static void lost(void *arg, enum dlmx_loss_reason reason)
{
	EQUAL(arg == &losses, 1, "argument");
	reason_told = reason;
	losses++;
}

/* Every call on the lost handle, while the daemon is stopped: the one error, and at once. */
static void all_calls_lost(dlm_lshandle_t ls)
{
	struct dlm_lksb sb = {.sb_lkid = a.sb.sb_lkid};
	struct dlmx_status s;

	REFUSED(dlm_ls_lock(ls, LKM_EXMODE, &sb, 0, "n", 1, 0, t_ast, &a, t_bast, NULL),
		ENOTRECOVERABLE);
	REFUSED(dlm_ls_lock_wait(ls, LKM_EXMODE, &sb, 0, "n", 1, 0, NULL, NULL, NULL),
		ENOTRECOVERABLE);
	sb.sb_lkid = a.sb.sb_lkid;
	REFUSED(t_try_convert(&a, LKM_PRMODE, 0), ENOTRECOVERABLE);
	REFUSED(t_try_unlock(&a, 0), ENOTRECOVERABLE);
	REFUSED(dlm_ls_unlock_wait(ls, sb.sb_lkid, 0, &sb), ENOTRECOVERABLE);
	REFUSED(dlm_ls_purge(ls, 0, 1), ENOTRECOVERABLE);
	REFUSED(dlmx_set_label(ls, "late"), ENOTRECOVERABLE);
	ACCEPTED(dlmx_status(ls, 0, &s));
	EQUAL(s.loss, DLMX_LOSS_LEASE_ENDED, "loss");
}

static void told(dlm_lshandle_t ls, int threaded)
{
	if (threaded) {
		WAIT_UNTIL(losses);
		return;
	}
	for (long until = t_now() + T_GUARD_MS; !losses && t_now() < until;) {
		struct pollfd p = {.fd = dlm_ls_get_fd(ls), .events = POLLIN};

		EQUAL(poll(&p, 1, T_GUARD_MS), 1, "poll of the descriptor");
		CHECK(!(p.revents & ~POLLIN), "poll says 0x%x", p.revents);
		if (dlm_dispatch(p.fd))
			EQUAL(errno, ENOTRECOVERABLE, "errno of dlm_dispatch");
	}
}

static void stopped(int threaded)
{
	dlm_lshandle_t ls;

	begin();
	ls = t_create();
	ACCEPTED(dlmx_set_loss_callback(ls, lost, (void *)&losses));
	if (threaded)
		t_threaded(ls);
	t_get(&a, ls, LKM_EXMODE, 0, "n");
	t_lock(&b, ls, LKM_EXMODE, 0, "n");
	kill(d.pid, SIGSTOP);
	told(ls, threaded);
	EQUAL(losses, 1, "calls of the loss callback");
	EQUAL(reason_told, DLMX_LOSS_LEASE_ENDED, "reason");
	EQUAL(b.asts, 1, "completions of the pending request");
	EQUAL(b.status, ENOTRECOVERABLE, "its status");
	all_calls_lost(ls);
	EQUAL(dlm_close_lockspace(ls), 0, "close, with nobody to answer");
	kill(d.pid, SIGCONT);
	/* The node comes back as a new life, and nothing of the old one is there. */
	ls = t_create();
	CHECK(t_is_free(ls, LKM_EXMODE, "n"), "the old lock is still there");
	EQUAL(dlm_release_lockspace(t_space_name(), ls, 2), 0, "release");
	EQUAL(losses, 1, "calls of the loss callback");
	end();
}

static void stopped_polled(void)
{
	stopped(0);
}

#ifndef LT
static void stopped_threaded(void)
{
	stopped(1);
}
#endif

/* A thread in a waiting call, and no callback: the call ends. */
static void stopped_waiting(void)
{
	struct dlm_lksb sb = {0};
	dlm_lshandle_t ls;

	begin();
	ls = t_create();
	t_get(&a, ls, LKM_EXMODE, 0, "n");
	kill(d.pid, SIGSTOP);
	REFUSED(dlm_ls_lock_wait(ls, LKM_EXMODE, &sb, 0, "n", 1, 0, NULL, NULL, NULL),
		ENOTRECOVERABLE);
	EQUAL(dlm_close_lockspace(ls), 0, "close");
	kill(d.pid, SIGCONT);
	end();
}

static void holder(int fd, void *arg)
{
	dlm_lshandle_t ls = t_create();

	(void)arg;
	t_get(&a, ls, LKM_EXMODE, 0, "n");
	t_put(fd, 'h');
	pause();
}

/* Who does not close what it lost is killed, also if it is stopped; then the node goes on. */
static void unconfirmed(void)
{
	struct t_proc p, q;
	dlm_lshandle_t ls;
	int status;

	begin();
	p = t_spawn(holder, NULL);
	t_expect(&p, 'h');
	q = t_spawn(holder, NULL);
	t_expect(&q, 'h');
	kill(p.pid, SIGSTOP);
	say("exclude 1\n");
	status = t_reap(&p);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "it ended with 0x%x", status);
	status = t_reap(&q);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "it ended with 0x%x", status);
	CHECK(t_daemon_logged(&d, "did not close it in time; killed"), "the log does not say why");
	ls = t_create();
	CHECK(t_is_free(ls, LKM_EXMODE, "n"), "its lock is still there");
	EQUAL(dlm_release_lockspace(t_space_name(), ls, 2), 0, "release");
	end();
}

static const struct t_test tests[] = {
	{"BL-061", "daemon stopped: the descriptor tells, at the end of the lease", stopped_polled, 0},
#ifndef LT
	{"BL-061", "daemon stopped: the helper thread tells", stopped_threaded, 0},
#endif
	{"BL-061", "daemon stopped: a waiting call ends", stopped_waiting, 0},
	{"BL-092", "who does not close a lost lockspace is killed", unconfirmed, 0},
};

T_MAIN(tests)
