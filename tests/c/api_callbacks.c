/*
 * Callbacks that call back in: lock, convert, unlock, the blocking calls, dispatch, close and
 * release from inside (libdlm-abi.md 2.5, 2.6, 8). In libdlm also on the helper thread.
 * @test libs=dlm,lt
 */
#include "t.h"

static struct t_lock a, b, c;
static dlm_lshandle_t ls, other;
static volatile int finished;

/* By dispatch, or by the helper thread where there is one. */
static void run_until_finished(int threaded)
{
	if (threaded)
		WAIT_UNTIL(finished);
	else
		PUMP_UNTIL(ls, finished);
}

static void done(struct t_lock *l)
{
	EQUAL(l->status, EUNLOCK, "status of the last unlock");
	finished = 1;
}

/* ---------------------------------------------------------------- asynchronous calls inside */
static void chain(struct t_lock *l)
{
	switch (l->asts) {	/* counted after this returns */
	case 0: t_convert(l, LKM_EXMODE, 0); break;
	case 1: t_convert(l, LKM_NLMODE, 0); break;
	case 2: t_unlock(l, 0); break;
	default: done(l);
	}
}

static void chained(int threaded)
{
	ls = t_create();
	if (threaded)
		t_threaded(ls);
	a.on_ast = chain;
	t_lock(&a, ls, LKM_PRMODE, 0, "n");
	run_until_finished(threaded);
	t_release(ls);
}

/* ---------------------------------------------------------------- blocking calls inside */
static void waits(struct t_lock *l)
{
	struct dlm_lksb sb = {0};

	if (finished || l->status == EUNLOCK)
		return;
	EQUAL(t_wait_lock(ls, &sb, LKM_EXMODE, 0, "inner"), 0, "a blocking request inside");
	EQUAL(t_wait_lock(ls, &sb, LKM_PRMODE, LKF_CONVERT, ""), 0, "a conversion inside");
	EQUAL(t_wait_unlock(ls, &sb, 0), EUNLOCK, "a blocking unlock inside");
	finished = 1;
}

static void waiting(int threaded)
{
	ls = t_create();
	if (threaded)
		t_threaded(ls);
	a.on_ast = waits;
	t_lock(&a, ls, LKM_EXMODE, 0, "n");
	run_until_finished(threaded);
	WAIT_UNTIL(a.asts);
	a.on_ast = NULL;
	t_release(ls);
}

/* A blocking callback that gives the lock back with a blocking unlock, as many programs do. */
static void give_back(struct t_lock *l)
{
	EQUAL(t_wait_unlock(l->ls, &l->sb, 0), EUNLOCK, "a blocking unlock in a blocking callback");
	finished = 1;
}

static void give_back_inside(int threaded)
{
	dlm_lshandle_t two;

	ls = t_create();
	two = t_open(t_space_name());
	if (threaded)
		t_threaded(ls);
	a.on_bast = give_back;
	t_lock(&a, ls, LKM_EXMODE, 0, "n");
	if (threaded)
		WAIT_UNTIL(a.asts == 1);
	else
		t_done(&a);
	t_lock(&b, two, LKM_EXMODE, 0, "n");
	run_until_finished(threaded);
	EQUAL(t_done(&b), 0, "the one who asked");
	t_drop(&b);
	EQUAL(dlm_close_lockspace(two), 0, "close");
	t_release(ls);
}

/* ---------------------------------------------------------------- close and dispatch inside */
static void closes(struct t_lock *l)
{
	(void)l;
	EQUAL(dlm_close_lockspace(ls), 0, "close inside a callback");
	finished = 1;
}

/* The handle may be closed by its helper thread before this call has come back. */
static void ask(int threaded)
{
	if (t_try_lock(&a, ls, LKM_EXMODE, 0, "n"))
		CHECK(threaded && errno == EBADF, "the request: %m");
}

/* What is pending on the handle goes without a callback; other handles are untouched. */
static void close_inside(int threaded)
{
	other = t_create();
	ls = t_open(t_space_name());
	if (threaded)
		t_threaded(ls);
	t_get(&c, other, LKM_EXMODE, 0, "kept");
	t_lock(&b, ls, LKM_EXMODE, 0, "kept");
	a.on_ast = closes;
	ask(threaded);
	if (threaded)
		WAIT_UNTIL(finished);
	else {
		struct pollfd p = {.fd = dlm_ls_get_fd(ls), .events = POLLIN};

		EQUAL(poll(&p, 1, T_GUARD_MS), 1, "poll");
		dlm_dispatch(p.fd);	/* the handle is gone when it returns */
		EQUAL(finished, 1, "closed inside");
	}
	t_drop(&c);
	t_get(&c, other, LKM_EXMODE, 0, "n");
	t_drop(&c);
	EQUAL(b.asts, 0, "callbacks of a closed handle");
	CHECK(t_is_free(other, LKM_EXMODE, "kept"), "the closed handle's request is left");
	t_release(other);
}

static void releases(struct t_lock *l)
{
	(void)l;
	t_release(ls);
	finished = 1;
}

static void release_inside(int threaded)
{
	ls = t_create();
	if (threaded)
		t_threaded(ls);
	a.on_ast = releases;
	ask(threaded);
	if (threaded)
		WAIT_UNTIL(finished);
	else
		dlm_dispatch(dlm_ls_get_fd(ls));
	EQUAL(finished, 1, "released inside");
	errno = 0;
	WAIT_UNTIL(!dlm_open_lockspace(t_space_name()) && errno == ENOENT);
}

static void dispatches(struct t_lock *l)
{
	(void)l;
	ACCEPTED(dlm_dispatch(dlm_ls_get_fd(ls)));
	finished++;
}

static void dispatch_inside(void)
{
	static struct t_lock many[50];
	char name[8];
	int i;

	ls = t_create();
	for (i = 0; i < 50; i++) {
		many[i].on_ast = dispatches;
		snprintf(name, sizeof name, "n%d", i);
		t_lock(&many[i], ls, LKM_EXMODE, 0, name);
	}
	PUMP_UNTIL(ls, finished == 50);
	for (i = 0; i < 50; i++)
		EQUAL(many[i].asts, 1, "completions");
	t_release(ls);
}

/* An AST with a NULL address inside an unlock: status block written, nobody called. */
static void no_address(void)
{
	struct dlm_lksb sb = {0};

	ls = t_create();
	t_get(&a, ls, LKM_EXMODE, 0, "n");
	ACCEPTED(dlm_ls_unlock(ls, a.sb.sb_lkid, 0, &sb, NULL));	/* NULL: the argument stays */
	PUMP_UNTIL(ls, sb.sb_status == EUNLOCK);
	REFUSED(dlm_ls_lock(ls, LKM_EXMODE, &sb, 0, "n", 1, 0, NULL, NULL, NULL, NULL), EINVAL);
	t_release(ls);
}

/* In libdlm the blocking calls want a helper thread: by dispatch alone the original hangs. */
#define BY_DISPATCH(fn) static void fn##_d(void) { fn(0); }
#define BY_THREAD(fn) static void fn##_t(void) { fn(1); }
BY_DISPATCH(chained)
BY_DISPATCH(close_inside)
BY_DISPATCH(release_inside)
#ifdef LT
BY_DISPATCH(waiting)
BY_DISPATCH(give_back_inside)
#else
BY_THREAD(chained)
BY_THREAD(close_inside)
BY_THREAD(release_inside)
BY_THREAD(waiting)
BY_THREAD(give_back_inside)
#endif

static const struct t_test tests[] = {
	{"cb-chain", "lock, convert, unlock from inside", chained_d, 0},
	{"cb-close", "close from inside", close_inside_d, 0},
	{"cb-release", "release from inside", release_inside_d, 0},
	{"cb-dispatch", "dispatch from inside", dispatch_inside, 0},
	{"cb-null", "no completion address", no_address, 0},
#ifdef LT
	{"cb-wait", "blocking calls from inside", waiting_d, 0},
	{"cb-give", "a blocking callback gives back by unlock_wait", give_back_inside_d, 0},
#else
	{"cb-chain-t", "lock, convert, unlock on the helper thread", chained_t, 0},
	{"cb-close-t", "close on the helper thread", close_inside_t, 0},
	{"cb-release-t", "release on the helper thread", release_inside_t, 0},
	{"cb-wait-t", "blocking calls on the helper thread", waiting_t, 0},
	{"cb-give-t", "a blocking callback gives back by unlock_wait", give_back_inside_t, 0},
#endif
};
T_MAIN(tests)
