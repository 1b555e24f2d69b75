/*
 * Every call of the library once or more, good and bad, for a run under a memory checker: no error,
 * and nothing that the library allocated is lost.
 * @test libs=dlm,lt valgrind
 */
#include "t.h"
#include <dlm_ext.h>

static struct t_lock a, b;

static void locks(void)
{
	static struct t_lock many[200];
	dlm_lshandle_t ls = t_create(), other = t_open(t_space_name());
	char name[16];
	int i;

	ACCEPTED(dlmx_set_label(ls, "tour"));
	for (i = 0; i < 200; i++) {
		snprintf(name, sizeof name, "n%d", i % 50);
		t_lock(&many[i], ls, i % 6, i % 5 ? LKF_VALBLK : LKF_PERSISTENT, name);
	}
	for (i = 0; i < 200; i++)
		t_unlock(&many[i], i % 2 ? LKF_FORCEUNLOCK : 0);
	t_settle(ls);
	t_get(&a, ls, LKM_EXMODE, LKF_VALBLK, "n");
	memset(a.lvb, 'v', sizeof a.lvb);
	t_lock(&b, other, LKM_PRMODE, LKF_VALBLK, "n");
	t_regrant(&a, LKM_PRMODE, LKF_VALBLK);
	EQUAL(t_done(&b), 0, "the reader");
	CHECK(b.lvb[31] == 'v', "the value did not come");
	t_convert(&a, LKM_EXMODE, 0);
	t_convert(&b, LKM_EXMODE, 0);
	EQUAL(t_done(&b), EDEADLK, "the second upgrade");
	t_unlock(&a, LKF_CANCEL);
	EQUAL(t_done(&a), ECANCEL, "the first upgrade");
	ACCEPTED(t_try_timed(&a, ls, LKM_EXMODE, LKF_CONVERT, "", 1));
	EQUAL(t_done(&a), ETIMEDOUT, "a limit");
	t_convert(&a, LKM_EXMODE, 0);
	ACCEPTED(dlm_ls_deadlock_cancel(ls, a.sb.sb_lkid, 0));
	EQUAL(t_done(&a), EDEADLK, "a deadlock cancel");
	ACCEPTED(dlm_ls_purge(ls, 0, 0));
	t_lock(&a, ls, LKM_EXMODE, 0, "n");	/* waits while its handle is closed */
	EQUAL(dlm_close_lockspace(ls), 0, "close");
	t_release(other);
}

static void refusals(void)
{
	dlm_lshandle_t ls = t_create();
	struct dlmx_status s;
	uint64_t token;

	REFUSED(t_try_lock(&a, ls, 9, 0, "n"), EINVAL);
	REFUSED(t_try_lockn(&a, ls, 5, 0, "n", 65), EINVAL);
	REFUSED(dlm_ls_unlock(ls, 5, 0, &a.sb, &a), ENOENT);
	REFUSED(dlmx_token(ls, 5, &token), ENOENT);
	REFUSED(dlmx_status(ls, 5, &s), ENOENT);
	CHECK(!dlm_open_lockspace("nobody made this"), "opened");
	CHECK(!dlm_create_lockspace("", 0600), "created");
	CHECK(!dlm_new_lockspace(t_space_name(), 0600, DLM_LSFL_NEWEXCL), "created");
	t_get(&a, ls, LKM_EXMODE, LKF_PERSISTENT, "orphan");
	EQUAL(dlm_close_lockspace(ls), 0, "close");
	ls = t_open(t_space_name());
	WAIT_UNTIL(!t_try_lock(&b, ls, LKM_EXMODE, LKF_ORPHAN | LKF_PERSISTENT, "orphan"));
	t_drop(&b);
	t_release(ls);
}

static void waits(void)
{
	dlm_lshandle_t ls = t_create();
	struct dlm_lksb sb = {.sb_lvbptr = a.lvb};
	struct dlmx_status s;
	uint64_t token;
	int i;

	t_threaded(ls);
	for (i = 0; i < 50; i++) {
		EQUAL(t_wait_lock(ls, &sb, LKM_EXMODE, LKF_VALBLK, "n"), 0, "a request");
		ACCEPTED(dlmx_token(ls, sb.sb_lkid, &token));
		ACCEPTED(dlmx_status(ls, sb.sb_lkid, &s));
		EQUAL(t_wait_lock(ls, &sb, LKM_PRMODE, LKF_CONVERT | LKF_VALBLK, ""), 0, "convert");
		EQUAL(t_wait_unlock(ls, &sb, 0), EUNLOCK, "an unlock");
	}
	EQUAL(t_wait_lock(ls, &sb, LKM_EXMODE, 0, "n"), 0, "a request");
	errno = 0;
	EQUAL(dlmx_ls_lock_wait_timeout(ls, LKM_EXMODE, &(struct dlm_lksb){0}, 0, "n", 1, 0, NULL,
					NULL, NULL, 10), -1, "a timed wait");
	EQUAL(errno, ETIMEDOUT, "its errno");
	t_release(ls);
}

static void lost(void *arg, enum dlmx_loss_reason reason)
{
	*(int *)arg = reason;
}

static void losses(void)
{
	dlm_lshandle_t ls = t_create(), other;
	struct pollfd p;
	int reason = 0;

	ACCEPTED(dlmx_set_loss_callback(ls, lost, &reason));
	t_get(&a, ls, LKM_EXMODE, 0, "n");
	t_lock(&b, ls, LKM_EXMODE, 0, "n");
	EQUAL(t_cut(), 1, "connections cut");
	p = (struct pollfd){.fd = dlm_ls_get_fd(ls), .events = POLLIN};
	while (!reason) {
		EQUAL(poll(&p, 1, T_GUARD_MS), 1, "poll");
		dlm_dispatch(p.fd);
	}
	REFUSED(t_try_unlock(&a, 0), ENOTRECOVERABLE);
	EQUAL(dlm_close_lockspace(ls), 0, "close");
	other = t_open(t_space_name());
	t_release(other);
}

static void default_lockspace(void)
{
	struct dlm_lksb sb = {0};

#ifndef LT
	int id = 0;

	ACCEPTED(lock_resource("n", LKM_EXMODE, 0, &id));
	ACCEPTED(lock_resource("n", LKM_PRMODE, LKF_CONVERT, &id));
	ACCEPTED(unlock_resource(id));
	ACCEPTED(dlm_pthread_cleanup());
	ACCEPTED(dlm_pthread_init());
#endif
	ACCEPTED(dlm_lock_wait(LKM_EXMODE, &sb, 0, "n", 1, 0, NULL, NULL, NULL));
	ACCEPTED(dlm_unlock_wait(sb.sb_lkid, 0, &sb));
	CHECK(dlm_get_fd() >= 0, "no descriptor");
#ifndef LT
	ACCEPTED(dlm_pthread_cleanup());
#endif
	t_release_default();
}

static dlm_lshandle_t closing;

static void close_inside(struct t_lock *l)
{
	(void)l;
	EQUAL(dlm_close_lockspace(closing), 0, "close");
}

static void callbacks(void)
{
	dlm_lshandle_t ls = t_create();
	int i;

	for (i = 0; i < 5; i++) {
		closing = t_open(t_space_name());
		a.on_ast = close_inside;
		t_lock(&a, closing, LKM_EXMODE, 0, "n");
		while (!a.asts)
			dlm_dispatch(dlm_ls_get_fd(closing));
		a.on_ast = NULL;
	}
	t_release(ls);
}

static void tour(void)
{
	t_step("locks");
	locks();
	t_step("refusals");
	refusals();
	t_step("waits");
	waits();
	t_step("losses");
	losses();
	t_step("default lockspace");
	default_lockspace();
	t_step("callbacks");
	callbacks();
}

static const struct t_test tests[] = {{"tour", "every call, good and bad", tour, 300}};
T_MAIN(tests)
