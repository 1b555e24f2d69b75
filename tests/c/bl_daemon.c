/*
 * The daemon dies, restarts, or is stopped while clients go on (bug-log.md). Each test has a daemon
 * of its own. Whatever a client was doing, it is told, and nothing hangs.
 * @test libs=dlm,lt daemon=none
 */
#include "t.h"
#include <dlm_ext.h>
#include <sys/epoll.h>

static struct t_lock a, b, c;
static struct t_daemon d;

static int readable(dlm_lshandle_t ls, int ms)
{
	struct pollfd p = {.fd = dlm_ls_get_fd(ls), .events = POLLIN};

	if (poll(&p, 1, ms) < 0)
		return 0;
	CHECK(!(p.revents & (POLLHUP | POLLERR | POLLNVAL)), "poll says 0x%x", p.revents);
	return p.revents & POLLIN;
}

/* Every call on a handle of a dead daemon, each with the one error. */
static void all_calls_lost(dlm_lshandle_t ls, struct t_lock *held)
{
	struct dlm_lksb sb = {.sb_lkid = held->sb.sb_lkid};
	uint64_t limit = 5;

	REFUSED(dlm_ls_lock(ls, LKM_EXMODE, &sb, 0, "n", 1, 0, t_ast, held, t_bast, NULL),
		ENOTRECOVERABLE);
	REFUSED(dlm_ls_lock(ls, LKM_NLMODE, &held->sb, LKF_CONVERT, NULL, 0, 0, t_ast, held, t_bast,
			    NULL), ENOTRECOVERABLE);
	REFUSED(dlm_ls_lockx(ls, LKM_EXMODE, &sb, LKF_TIMEOUT, "n", 1, 0, t_ast, held, t_bast, NULL,
			     &limit), ENOTRECOVERABLE);
	REFUSED(dlm_ls_lock_wait(ls, LKM_EXMODE, &sb, 0, "n", 1, 0, NULL, NULL, NULL),
		ENOTRECOVERABLE);
	sb.sb_lkid = held->sb.sb_lkid;
	REFUSED(dlm_ls_unlock(ls, held->sb.sb_lkid, 0, &held->sb, held), ENOTRECOVERABLE);
	REFUSED(dlm_ls_unlock_wait(ls, sb.sb_lkid, 0, &sb), ENOTRECOVERABLE);
	REFUSED(dlm_ls_deadlock_cancel(ls, held->sb.sb_lkid, 0), ENOTRECOVERABLE);
	REFUSED(dlm_ls_purge(ls, 0, 1), ENOTRECOVERABLE);
}

/* Dispatches what is there; after the loss the return value may tell it. */
static void drain(dlm_lshandle_t ls)
{
	errno = 0;
	if (dlm_dispatch(dlm_ls_get_fd(ls)))
		EQUAL(errno, ENOTRECOVERABLE, "errno of dlm_dispatch after the loss");
}

static void death_while_polling(void)
{
	dlm_lshandle_t ls;

	t_daemon_start(&d, NULL);
	ls = t_create();
	t_get(&a, ls, LKM_EXMODE, 0, "n");
	t_lock(&b, ls, LKM_EXMODE, 0, "n");
	t_get(&c, ls, LKM_PRMODE, 0, "m");
	t_settle(ls);
	CHECK(!readable(ls, 0), "readable although nothing is pending");
	kill(d.pid, SIGKILL);
	CHECK(readable(ls, T_GUARD_MS), "the descriptor does not become readable");
	drain(ls);
	EQUAL(b.asts, 1, "completions of the pending request");
	EQUAL(b.status, ENOTRECOVERABLE, "its status");
	EQUAL(a.asts + c.asts, 2, "completions of granted locks");
	all_calls_lost(ls, &a);
	EQUAL(dlm_close_lockspace(ls), 0, "close of a lost handle");
	t_daemon_end(&d);
}

/* The same through epoll on a dup'ed descriptor, level-triggered. */
static void death_seen_by_epoll(void)
{
	struct epoll_event e = {.events = EPOLLIN}, got;
	int ep = epoll_create1(EPOLL_CLOEXEC), fd;
	dlm_lshandle_t ls;

	t_daemon_start(&d, NULL);
	ls = t_create();
	t_get(&a, ls, LKM_EXMODE, 0, "n");
	fd = dup(dlm_ls_get_fd(ls));
	CHECK(!epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e), "epoll_ctl: %m");
	EQUAL(epoll_wait(ep, &got, 1, 0), 0, "events before the death");
	t_daemon_kill(&d);
	EQUAL(epoll_wait(ep, &got, 1, T_GUARD_MS), 1, "events after the death");
	EQUAL(got.events, EPOLLIN, "kind of event");
	errno = 0;
	if (dlm_dispatch(fd))
		EQUAL(errno, ENOTRECOVERABLE, "errno of dlm_dispatch after the loss");
	REFUSED(dlm_ls_unlock(ls, a.sb.sb_lkid, 0, &a.sb, &a), ENOTRECOVERABLE);
	close(fd);
	EQUAL(dlm_close_lockspace(ls), 0, "close of a lost handle");
	close(ep);
	t_daemon_end(&d);
}

/* A thread that blocks, in each of the ways to block. */
static struct { dlm_lshandle_t ls; int how; volatile int inside; int result, err; } blocked;

static void *block(void *arg)
{
	struct dlm_lksb *sb = calloc(1, sizeof *sb);	/* outlives a call that is cut off */

	blocked.inside = 1;
	errno = 0;
	if (blocked.how == 0)
		blocked.result = dlm_ls_lock_wait(blocked.ls, LKM_EXMODE, sb, 0, "n", 1, 0, NULL, NULL,
						  NULL);
	else
		blocked.result = dlm_ls_lock(blocked.ls, LKM_EXMODE, sb, LKF_WAIT, "n", 1, 0, t_ast,
					     &b, NULL, NULL);
	blocked.err = errno;
	blocked.inside = 2;
	free(sb);
	return arg;
}

static void death_while_waiting(void)
{
	dlm_lshandle_t ls, holder;
	pthread_t thread;

	for (blocked.how = 0; blocked.how < 2; blocked.how++) {
		t_daemon_start(&d, NULL);
		ls = t_create();
		holder = t_open(t_space_name());
		t_threaded(ls);
		t_get(&a, holder, LKM_EXMODE, 0, "n");
		blocked.ls = ls;
		blocked.inside = 0;
		CHECK(!pthread_create(&thread, NULL, block, NULL), "thread");
		PUMP_UNTIL(holder, a.basts);	/* its request stands in the queue */
		EQUAL(blocked.inside, 1, "the waiter");
		t_daemon_kill(&d);
		WAIT_UNTIL(blocked.inside == 2);
		pthread_join(thread, NULL);
		EQUAL(blocked.result, -1, "the cut-off call");
		EQUAL(blocked.err, ENOTRECOVERABLE, "its errno");
		EQUAL(dlm_close_lockspace(ls), 0, "close");
		EQUAL(dlm_close_lockspace(holder), 0, "close");
		t_daemon_end(&d);
	}
}

#ifndef LT
static long cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The helper thread tells what is pending, and then sleeps: the original's spins. */
static void death_under_the_helper(void)
{
	dlm_lshandle_t ls;
	long before;

	t_daemon_start(&d, NULL);
	ls = t_create();
	t_threaded(ls);
	t_lock(&a, ls, LKM_EXMODE, 0, "n");
	WAIT_UNTIL(a.asts == 1);
	t_lock(&b, ls, LKM_EXMODE, 0, "n");
	t_daemon_kill(&d);
	WAIT_UNTIL(b.asts == 1);
	EQUAL(b.status, ENOTRECOVERABLE, "status of the pending request");
	before = cpu_ms();
	t_sleep_us(600000);
	CHECK(cpu_ms() - before < 300, "%ld ms of processor time in 600 ms", cpu_ms() - before);
	EQUAL(dlm_close_lockspace(ls), 0, "close");
	t_daemon_end(&d);
}

/* The default lockspace: one clear error, and after dlm_pthread_cleanup it works again. */
static void default_after_death(void)
{
	int id = 0, again = 0;

	t_daemon_start(&d, NULL);
	ACCEPTED(lock_resource("n", LKM_EXMODE, 0, &id));
	t_daemon_kill(&d);
	REFUSED(lock_resource("m", LKM_EXMODE, 0, &again), ENOTRECOVERABLE);
	REFUSED(unlock_resource(id), ENOTRECOVERABLE);
	t_daemon_again(&d);
	REFUSED(lock_resource("m", LKM_EXMODE, 0, &again), ENOTRECOVERABLE);
	ACCEPTED(dlm_pthread_cleanup());
	ACCEPTED(lock_resource("n", LKM_EXMODE, 0, &again));
	ACCEPTED(unlock_resource(again));
	ACCEPTED(dlm_pthread_cleanup());
	t_daemon_end(&d);
}
#endif

/* Calls go on at full speed while the daemon is killed: each ends, well or with the one error. */
static void death_while_calling(void)
{
	int rounds = t_scaled(6, 100), i, lost;
	struct t_proc killer;
	dlm_lshandle_t ls;
	long calls;

	for (i = 0; i < rounds; i++) {
		t_daemon_start(&d, NULL);
		ls = t_create();
		killer.pid = fork();
		if (!killer.pid) {
			t_sleep_us(t_random() % 30000 + i * 500);
			kill(d.pid, SIGKILL);
			_exit(0);
		}
		for (calls = 0, lost = 0; !lost; calls++) {
			t_step("call %ld of round %d", calls, i);
			if (t_try_lock(&a, ls, LKM_EXMODE, 0, "n")) {
				EQUAL(errno, ENOTRECOVERABLE, "errno of a lock call");
				break;
			}
			while (!a.asts && !lost) {
				CHECK(readable(ls, T_GUARD_MS), "nothing comes");
				lost = dlm_dispatch(dlm_ls_get_fd(ls)) != 0;
			}
			lost = lost || a.status == ENOTRECOVERABLE;
			if (!lost && t_try_unlock(&a, 0)) {
				EQUAL(errno, ENOTRECOVERABLE, "errno of an unlock call");
				break;
			}
		}
		EQUAL(waitpid(killer.pid, NULL, 0), killer.pid, "waitpid");
		REFUSED(t_try_lock(&a, ls, LKM_EXMODE, 0, "n"), ENOTRECOVERABLE);
		EQUAL(dlm_close_lockspace(ls), 0, "close");
		t_daemon_end(&d);
	}
}

/* The daemon does not answer: a call with a limit ends all the same, and what it asked for is given
 * back when the daemon goes on. */
static void limit_of_a_stopped_daemon(void)
{
	struct dlm_lksb sb = {0}, other = {0};
	dlm_lshandle_t ls, probe;
	int i;

	t_daemon_start(&d, NULL);
	ls = t_create();
	probe = t_open(t_space_name());
	t_threaded(ls);
	EQUAL(t_wait_lock(ls, &other, LKM_PRMODE, 0, "converts"), 0, "a request");
	for (i = 0; i < 2; i++) {
		kill(d.pid, SIGSTOP);
		REFUSED(i ? dlmx_ls_lock_wait_timeout(ls, LKM_EXMODE, &other, LKF_CONVERT, NULL, 0, 0,
						      NULL, NULL, NULL, 20) :
			dlmx_ls_lock_wait_timeout(ls, LKM_EXMODE, &sb, 0, "new", 3, 0, NULL, NULL,
						  NULL, 20), ETIMEDOUT);
		kill(d.pid, SIGCONT);
	}
	/* in libdlm_lt by whoever dispatches next; in libdlm by the helper thread */
	PUMP_UNTIL(ls, t_is_free(probe, LKM_EXMODE, "new"));
	PUMP_UNTIL(ls, t_is_free(probe, LKM_PRMODE, "converts"));
	EQUAL(t_wait_unlock(ls, &other, 0), EUNLOCK, "unlock");
	EQUAL(dlm_close_lockspace(probe), 0, "close");
	t_release(ls);
	t_daemon_end(&d);
}

/* After a restart the old handle stays dead: it is never joined to the new, empty daemon. */
static void restart_under_a_handle(void)
{
	dlm_lshandle_t ls, again;

	t_daemon_start(&d, NULL);
	ls = t_create();
	t_get(&a, ls, LKM_EXMODE, 0, "n");
	t_daemon_kill(&d);
	t_daemon_again(&d);
	all_calls_lost(ls, &a);
	again = dlm_open_lockspace(t_space_name());
	CHECK(!again && errno == ENOENT, "the lockspace came back by itself: %m");
	again = t_create();
	t_step("the new daemon knows nothing of the old lock");
	t_get(&b, again, LKM_EXMODE, 0, "n");
	all_calls_lost(ls, &a);
	CHECK(!t_is_free(again, LKM_CRMODE, "n"), "the old handle dropped the new lock");
	t_drop(&b);
	EQUAL(dlm_close_lockspace(ls), 0, "close of the old handle");
	t_release(again);
	t_daemon_end(&d);
}

/* Stopped by TERM twice, or killed, with a lockspace in use; started again over what is left. */
static void left_over_lockspace(void)
{
	dlm_lshandle_t ls;
	int round, status;

	t_daemon_start(&d, NULL);
	for (round = 0; round < 4; round++) {
		ls = t_create();
		t_get(&a, ls, LKM_EXMODE, 0, "n");
		if (round & 1) {
			t_step("two TERM, round %d", round);
			kill(d.pid, SIGTERM);
			t_sleep_us(50000);
			CHECK(t_is_free(ls, LKM_EXMODE, "m"), "one TERM ended a daemon in use");
			kill(d.pid, SIGTERM);
			EQUAL(waitpid(d.pid, &status, 0), d.pid, "waitpid");
		} else
			t_daemon_kill(&d);
		CHECK(readable(ls, T_GUARD_MS), "the descriptor does not become readable");
		REFUSED(t_try_unlock(&a, 0), ENOTRECOVERABLE);
		EQUAL(dlm_close_lockspace(ls), 0, "close");
		if (round == 2) {	/* whatever the state files hold now */
			char command[300];

			snprintf(command, sizeof command, "for f in $(find '%s' -type f ! -name log); "
				 "do echo garbage >$f; done", d.dir);
			CHECK(!system(command), "cannot spoil the state files");
		}
		t_daemon_again(&d);
		CHECK(round & 1 || round == 2 || t_daemon_logged(&d, t_space_name()),
		      "the log does not say which lockspace was left");
	}
	t_daemon_end(&d);
}

/* Clients die together with the daemon; all start again at the same place. */
static void holder(int fd, void *arg)
{
	dlm_lshandle_t ls = t_open(t_space_name());

	(void)arg;
	t_lock(&a, ls, LKM_EXMODE, LKF_PERSISTENT, "n");
	t_put(fd, 'h');
	pause();
}

static void all_killed(void)
{
	struct t_proc p[3];
	dlm_lshandle_t ls;
	int round, i;

	t_daemon_start(&d, NULL);
	for (round = 0; round < 3; round++) {
		ls = t_create();
		for (i = 0; i < 3; i++) {
			p[i] = t_spawn(holder, NULL);
			t_expect(&p[i], 'h');
		}
		for (i = 0; i < 3; i++)
			kill(p[i].pid, SIGKILL);
		t_daemon_kill(&d);
		for (i = 0; i < 3; i++)
			t_reap(&p[i]);
		EQUAL(dlm_close_lockspace(ls), 0, "close");
		t_daemon_again(&d);
		ls = t_create();
		CHECK(t_is_free(ls, LKM_EXMODE, "n"), "a lock outlived its daemon");
		t_release(ls);
	}
	t_daemon_end(&d);
}

/* Why a call was refused is in the log at debug level. */
static void refusals_are_logged(void)
{
	static const char *const names[] = {"ENOENT", "EINVAL", "EPERM", "EBUSY"};
	dlm_lshandle_t ls, other;
	unsigned i;

	t_daemon_start(&d, "--log_debug=1");
	ls = t_create();
	other = t_open(t_space_name());
	t_get(&a, ls, LKM_PRMODE, 0, "n");
	t_get(&b, other, LKM_PRMODE, 0, "n");
	REFUSED(dlm_ls_unlock(ls, 0x7ffffff0, 0, &c.sb, &c), ENOENT);
	REFUSED(t_try_unlock(&a, LKF_NOQUEUE), EINVAL);
	REFUSED(dlm_ls_unlock(ls, b.sb.sb_lkid, 0, &c.sb, &c), EPERM);
	t_convert(&a, LKM_EXMODE, 0);
	REFUSED(t_try_convert(&a, LKM_NLMODE, 0), EBUSY);
	for (i = 0; i < 4; i++)
		WAIT_UNTIL(t_daemon_logged(&d, names[i]));
	EQUAL(dlm_close_lockspace(other), 0, "close");
	t_release(ls);
	t_daemon_end(&d);
}

/* A client that does not dispatch is held back at a limit, and goes on when it does. */
static void events_limit(void)
{
	static struct t_lock l[4000];
	dlm_lshandle_t ls, other;
	int i, n;

	t_daemon_start(&d, "--client_events_max=1000");
	ls = t_create();
	other = t_open(t_space_name());
	for (n = 0; n < 4000 && !t_try_lock(&l[n], ls, LKM_CRMODE, 0, "n"); n++)
		;
	CHECK(n >= 1000 && n < 4000, "%d requests were accepted", n);
	EQUAL(errno, ENOMEM, "errno beyond the limit");
	CHECK(t_is_free(other, LKM_PWMODE, "n"), "others are not served");
	for (i = 0; i < n; i++)
		EQUAL(t_done(&l[i]), 0, "an accepted request");
	t_get(&l[n], ls, LKM_CRMODE, 0, "n");
	EQUAL(dlm_close_lockspace(other), 0, "close");
	t_release(ls);
	t_daemon_end(&d);
}

/* After a restart the listing does not show what nobody has joined; then it does. */
static void listed_once_joined(void)
{
	dlm_lshandle_t ls;
	char *text;
	int code;

	t_daemon_start(&d, NULL);
	ls = t_create();
	free(t_tool(&code, "ls --json %s", t_space_name()));
	EQUAL(code, 0, "exit code of ls --json for a lockspace in use");
	t_daemon_kill(&d);
	EQUAL(dlm_close_lockspace(ls), 0, "close");
	t_daemon_again(&d);
	text = t_tool(&code, "ls --json %s", t_space_name());
	EQUAL(code, 1, "exit code of ls --json before anybody joined");
	CHECK(strstr(text, "not-found"), "no state says so: %s", text);
	free(text);
	ls = t_create();
	text = t_squeeze(t_tool(&code, "ls --json %s", t_space_name()));
	CHECK(!code && strstr(text, t_space_name()), "not listed: %s", text);
	free(text);
	t_release(ls);
	t_daemon_end(&d);
}

/* Nobody at the socket: an errno that says so, at once. */
static void nobody_there(void)
{
	uint32_t v[3] = {9, 9, 9};
	struct dlm_lksb sb = {0};

	setenv("DLM_SOCKET", "/nonexistent/dlmd.sock", 1);
	setenv("DLM_TEST_OWN_DAEMON", "1", 1);
	errno = 0;
	CHECK(!dlm_create_lockspace("x", 0600) && errno == ENOTCONN, "create: %m");
	errno = 0;
	CHECK(!dlm_open_lockspace("x") && errno == ENOTCONN, "open: %m");
	REFUSED(dlm_lock(LKM_EXMODE, &sb, 0, "n", 1, 0, t_ast, &a, NULL, NULL), ENOTCONN);
	REFUSED(dlm_get_fd(), ENOTCONN);
	EQUAL(dlm_kernel_version(v, v + 1, v + 2), -1, "dlm_kernel_version");
	EQUAL(v[0] + v[1] + v[2], 27, "version numbers when nobody answers");
}

static void starter(int fd, void *arg)
{
	(void)arg;
	t_daemon_again(&d);
	t_get_byte(fd);		/* the daemon ends with its parent */
}

/* Creating while the daemon starts: it works, or fails in a way that may be tried again. */
static void create_during_start(void)
{
	int tries = 0;
	dlm_lshandle_t ls;
	struct t_proc p;

	t_daemon_start(&d, NULL);
	t_daemon_kill(&d);
	p = t_spawn(starter, NULL);
	while (!(ls = dlm_create_lockspace(t_space_name(), 0600))) {
		CHECK(errno == ENOTCONN, "create while the daemon starts: %m");
		CHECK(++tries < 100000, "the daemon never serves");
		t_sleep_us(200);
	}
	t_get(&a, ls, LKM_EXMODE, 0, "n");
	t_drop(&a);
	t_release(ls);
	t_put(p.fd, 'e');
	t_join(&p);
	t_daemon_end(&d);
}

/* A limit on locks of one handle: beyond it ENOMEM; others are served, nothing stays queued. */
static void memory_limit(void)
{
	static struct t_lock l[11];
	dlm_lshandle_t ls, other;
	char name[16];
	int i;

	t_daemon_start(&d, "--client_locks_max=10");
	ls = t_create();
	other = t_open(t_space_name());
	for (i = 0; i < 10; i++) {
		snprintf(name, sizeof name, "n%d", i);
		t_get(&l[i], ls, LKM_EXMODE, 0, name);
	}
	REFUSED(t_try_lock(&l[10], ls, LKM_EXMODE, 0, "one more"), ENOMEM);
	REFUSED(t_try_lock(&l[10], ls, LKM_EXMODE, 0, "n0"), ENOMEM);
	CHECK(t_is_free(other, LKM_EXMODE, "one more"), "the refused request holds the name");
	t_drop(&l[0]);
	CHECK(t_is_free(other, LKM_EXMODE, "n0"), "the refused request stands in the queue");
	t_get(&l[10], ls, LKM_EXMODE, 0, "one more");
	EQUAL(dlm_close_lockspace(other), 0, "close");
	t_release(ls);
	t_daemon_end(&d);
}

static const struct t_test tests[] = {
	{"BL-053", "create while the daemon starts", create_during_start, 0},
	{"BL-055", "a daemon stopped or killed in use starts again", left_over_lockspace, 0},
	{"BL-057", "a lockspace is listed once it is joined", listed_once_joined, 0},
	{"BL-059", "daemon and clients killed, started again", all_killed, 0},
	{"BL-060", "an old handle never joins a restarted daemon", restart_under_a_handle, 0},
	{"BL-067m", "the daemon's limit on locks: ENOMEM, nothing queued", memory_limit, 0},
	{"BL-067s", "a time limit works while the daemon is stopped", limit_of_a_stopped_daemon, 0},
	{"BL-067e", "the daemon's limit on undelivered callbacks", events_limit, 0},
	{"BL-098l", "the log says at debug level why calls were refused", refusals_are_logged, 0},
	{"BL-083", "calls while the daemon is killed end with one error", death_while_calling, 300},
#ifndef LT
	{"BL-083d", "the default lockspace after a restart", default_after_death, 0},
	{"BL-099h", "the helper thread tells the loss and sleeps", death_under_the_helper, 0},
#endif
	{"BL-099", "a polling client is told that the daemon died", death_while_polling, 0},
	{"BL-099e", "so is one that uses epoll on a dup'ed descriptor", death_seen_by_epoll, 0},
	{"BL-099w", "so is one that blocks in a call", death_while_waiting, 0},
	{"D18", "no daemon: ENOTCONN at once", nobody_there, 0},
};
T_MAIN(tests)
