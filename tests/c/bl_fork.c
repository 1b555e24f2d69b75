/*
 * After fork (bug-log.md BL-110, semantics.md D19): a handle belongs to the process that opened it.
 * In the child every call is refused with EBADF, and nothing the child does, exit included, touches
 * the parent's locks. The supported way is to open after daemon(3).
 * @test libs=dlm,lt
 */
#include "t.h"

static struct t_lock a, b;
static dlm_lshandle_t ls;

static void every_call_refused(void)
{
	struct dlm_lksb sb = {.sb_lkid = a.sb.sb_lkid};
	uint64_t limit = 1;
	int fd = dlm_ls_get_fd(ls);

	REFUSED(dlm_ls_lock(ls, LKM_EXMODE, &sb, 0, "m", 1, 0, t_ast, &a, NULL, NULL), EBADF);
	REFUSED(dlm_ls_lockx(ls, LKM_EXMODE, &sb, LKF_TIMEOUT, "m", 1, 0, t_ast, &a, NULL, NULL,
			     &limit), EBADF);
	REFUSED(dlm_ls_lock(ls, LKM_NLMODE, &sb, LKF_CONVERT, NULL, 0, 0, t_ast, &a, NULL, NULL),
		EBADF);
	REFUSED(dlm_ls_lock_wait(ls, LKM_EXMODE, &sb, 0, "m", 1, 0, NULL, NULL, NULL), EBADF);
	REFUSED(dlm_ls_unlock(ls, a.sb.sb_lkid, 0, &sb, &a), EBADF);
	REFUSED(dlm_ls_unlock_wait(ls, a.sb.sb_lkid, 0, &sb), EBADF);
	REFUSED(dlm_ls_deadlock_cancel(ls, a.sb.sb_lkid, 0), EBADF);
	REFUSED(dlm_ls_purge(ls, 0, 0), EBADF);
	REFUSED(dlm_dispatch(fd), EBADF);
#ifndef LT
	REFUSED(dlm_ls_pthread_init(ls), EBADF);
#endif
}

static void child_calls(int fd, void *arg)
{
	t_step("calls in the child");
	every_call_refused();
	if (arg)
		REFUSED(dlm_close_lockspace(ls), EBADF);
	t_put(fd, 'd');
}

static void still_held(void)
{
	dlm_lshandle_t probe = t_open(t_space_name());

	CHECK(!t_is_free(probe, LKM_CRMODE, "n"), "the child's end dropped the parent's lock");
	EQUAL(dlm_close_lockspace(probe), 0, "close");
	t_regrant(&a, LKM_PRMODE, 0);
	t_regrant(&a, LKM_EXMODE, 0);
}

static void child_is_refused(void)
{
	struct t_proc p;
	int how;

	ls = t_create();
	for (how = 0; how < 3; how++) {	/* exits, closes and exits, is killed */
		t_get(&a, ls, LKM_EXMODE, 0, "n");
		p = t_spawn(child_calls, (void *)(long)(how == 1));
		t_expect(&p, 'd');
		if (how == 2)
			t_kill(&p);
		else
			t_join(&p);
		still_held();
		t_drop(&a);
	}
	t_release(ls);
}

/* The child's own handle is its own; the parent's end does not touch it. */
static void child_opens(int fd, void *arg)
{
	dlm_lshandle_t own = t_open(t_space_name());

	(void)arg;
	every_call_refused();
	t_get(&b, own, LKM_EXMODE, 0, "own");
	t_put(fd, 'h');
	t_expect(&(struct t_proc){.fd = fd}, 'e');
	t_drop(&b);
	EQUAL(dlm_close_lockspace(own), 0, "close");
}

static void both_have_handles(void)
{
	dlm_lshandle_t probe;
	struct t_proc p;

	ls = t_create();
	t_get(&a, ls, LKM_EXMODE, 0, "n");
	p = t_spawn(child_opens, NULL);
	t_expect(&p, 'h');
	EQUAL(dlm_close_lockspace(ls), 0, "close in the parent");
	probe = t_open(t_space_name());
	CHECK(t_is_free(probe, LKM_EXMODE, "n"), "the child keeps the parent's lock alive");
	CHECK(!t_is_free(probe, LKM_EXMODE, "own"), "the parent's close dropped the child's lock");
	t_put(p.fd, 'e');
	t_join(&p);
	t_release(probe);
}

/* The parent dies while a forked child lives on: the locks go. */
static void opener(int fd, void *arg)
{
	pid_t child;

	(void)arg;
	ls = t_open(t_space_name());
	t_get(&a, ls, LKM_EXMODE, 0, "n");
	child = fork();
	if (!child) {		/* inherits every descriptor, and outlives the opener */
		char c;

		t_put(fd, 'c');
		while (read(fd, &c, 1) > 0)
			;
		_exit(0);
	}
	t_put(fd, 'o');
	pause();
}

static void opener_dies(void)
{
	struct t_proc p;

	ls = t_create();
	p = t_spawn(opener, NULL);
	t_get_byte(p.fd);
	t_get_byte(p.fd);
	kill(p.pid, SIGKILL);
	t_get(&b, ls, LKM_EXMODE, 0, "n");	/* waits for the death of the opener alone */
	t_drop(&b);
	t_reap(&p);		/* closes our end: the grandchild ends */
	t_release(ls);
}

/* Open, lock, daemon(3), go on: refused, not silently lost. Then the right order. */
static void into_background(int fd, void *early)
{
	t_step("becoming a daemon");
	if (early) {
		ls = t_open(t_space_name());
		t_get(&a, ls, LKM_EXMODE, 0, "n");
	}
	CHECK(!daemon(1, 1), "daemon: %m");
	alarm(60);		/* this process has no parent to die with */
	if (early)
		every_call_refused();
	else {
		ls = t_open(t_space_name());
		t_get(&a, ls, LKM_EXMODE, 0, "n");
		t_regrant(&a, LKM_NLMODE, 0);
		t_drop(&a);
		EQUAL(dlm_close_lockspace(ls), 0, "close");
	}
	t_put(fd, 'd');
}

static void daemon_call(void)
{
	struct t_proc p;
	int early;

	ls = t_create();
	for (early = 1; early >= 0; early--) {
		p = t_spawn(into_background, early ? &ls : NULL);
		t_expect(&p, 'd');
		t_reap(&p);
		t_get(&b, ls, LKM_EXMODE, 0, "n");
		t_drop(&b);
	}
	t_release(ls);
}

/* A program forks while another of its threads is inside the library: the child is refused, never
 * hangs on a lock that nobody will give back, and may open a handle of its own. */
static volatile int stop;

static void *busy(void *arg)
{
	static struct t_lock l;

	while (!stop) {
		t_get(&l, ls, LKM_EXMODE, 0, "busy");
		t_drop(&l);
	}
	return arg;
}

static void child_of_threads(int fd, void *arg)
{
	struct dlm_lksb sb = {0};
	dlm_lshandle_t own;

	(void)arg;
	REFUSED(dlm_ls_unlock(ls, 1, 0, &sb, NULL), EBADF);
	own = t_open(t_space_name());
	t_get(&b, own, LKM_EXMODE, 0, "own");
	t_drop(&b);
	EQUAL(dlm_close_lockspace(own), 0, "close");
	t_put(fd, 'd');
}

static void fork_under_threads(void)
{
	int rounds = t_scaled(100, 5000), i;
	pthread_t thread;
	struct t_proc p;

	ls = t_create();
	CHECK(!pthread_create(&thread, NULL, busy, NULL), "thread");
	for (i = 0; i < rounds; i++) {
		p = t_spawn(child_of_threads, NULL);
		t_expect(&p, 'd');
		t_join(&p);
	}
	stop = 1;
	pthread_join(thread, NULL);
	t_release(ls);
}

/* The default lockspace is per process, too. */
static void child_default(int fd, void *arg)
{
	struct dlm_lksb sb = {0};
	uint32_t id = *(uint32_t *)arg;
	int status;

	status = dlm_unlock(id, 0, &sb, NULL);
	CHECK(status == -1 && (errno == EBADF || errno == ENOTCONN), "unlock in the child: %m");
	t_put(fd, 'd');
}

static void default_lockspace(void)
{
	static struct t_lock l;
	struct t_proc p;
	struct pollfd f;
	uint32_t id;

	ACCEPTED(dlm_lock(LKM_EXMODE, &l.sb, 0, "n", 1, 0, t_ast, &l, t_bast, NULL));
	f = (struct pollfd){.fd = dlm_get_fd(), .events = POLLIN};
	while (!l.asts) {
		EQUAL(poll(&f, 1, T_GUARD_MS), 1, "poll");
		ACCEPTED(dlm_dispatch(f.fd));
	}
	EQUAL(l.status, 0, "a request in the default lockspace");
	id = l.sb.sb_lkid;
	p = t_spawn(child_default, &id);
	t_expect(&p, 'd');
	t_join(&p);
	ACCEPTED(dlm_unlock(id, 0, &l.sb, &l));
	while (l.asts < 2) {
		EQUAL(poll(&f, 1, T_GUARD_MS), 1, "poll");
		ACCEPTED(dlm_dispatch(f.fd));
	}
	EQUAL(l.status, EUNLOCK, "the parent's unlock");
	t_release_default();
}

static const struct t_test tests[] = {
	{"BL-110", "a handle does not survive daemon(3), and says so", daemon_call, 0},
	{"D19", "a forked child is refused and harms nothing", child_is_refused, 0},
	{"D19b", "parent and child with a handle each", both_have_handles, 0},
	{"D19d", "the default lockspace in a forked child", default_lockspace, 0},
	{"D19t", "fork while another thread is inside the library", fork_under_threads, 300},
	{"D19k", "locks end with the opener, whoever inherited it", opener_dies, 0},
};
T_MAIN(tests)
