/*
 * lstest: a lockspace of its own, created with a mode or opened, asynchronous lock and unlock,
 * release; the helper thread started twice on purpose.
 * @test libs=dlm,lt
 */
#include "t.h"

static struct t_lock l, m;

static void lock_and_unlock(dlm_lshandle_t ls, int threaded)
{
	int mode;

	for (mode = LKM_NLMODE; mode <= LKM_EXMODE; mode++) {
		t_lock(&l, ls, mode, 0, "TESTLOCK");
		if (threaded)
			WAIT_UNTIL(l.asts == 1);
		EQUAL(t_done(&l), 0, "status of the lock");
		t_unlock(&l, 0);
		if (threaded)
			WAIT_UNTIL(l.asts == 2);
		EQUAL(t_done(&l), 65538, "status of the unlock");
	}
}

static void create_0444(void)
{
	dlm_lshandle_t ls = dlm_create_lockspace(t_space_name(), 0444);

	CHECK(ls, "create: %m");
	CHECK(dlm_ls_get_fd(ls) >= 0, "no descriptor");
	lock_and_unlock(ls, 0);
	t_release(ls);
	errno = 0;
	CHECK(!dlm_open_lockspace(t_space_name()) && errno == ENOENT, "open after release: %m");
}

static void create_and_open(void)
{
	dlm_lshandle_t ls = t_create(), again = t_create(), other = t_open(t_space_name());

	errno = 0;
	CHECK(!dlm_new_lockspace(t_space_name(), 0600, DLM_LSFL_NEWEXCL) && errno == EEXIST,
	      "exclusive creation of an existing lockspace: %m");
	lock_and_unlock(other, 0);
	EQUAL(dlm_close_lockspace(other), 0, "close");
	t_step("two creations: the first release takes one back, and no lock of other handles");
	t_get(&m, ls, LKM_EXMODE, 0, "kept");
	t_release(again);
	t_regrant(&m, LKM_PRMODE, 0);
	t_step("not forced, with a lock: refused inside, 0 outside, the handle is gone");
	other = t_open(t_space_name());
	ACCEPTED(dlm_release_lockspace(t_space_name(), other, 0));
	t_regrant(&m, LKM_EXMODE, 0);
	t_drop(&m);
	ACCEPTED(dlm_release_lockspace(t_space_name(), ls, 0));
	errno = 0;
	CHECK(!dlm_open_lockspace(t_space_name()) && errno == ENOENT, "open after release: %m");
	ls = dlm_new_lockspace(t_space_name(), 0600, DLM_LSFL_NEWEXCL | DLM_LSFL_TIMEWARN);
	CHECK(ls, "exclusive creation of a new lockspace: %m");
	lock_and_unlock(ls, 0);
	t_release(ls);
}

#ifndef LT
static void twice_threaded(void)
{
	dlm_lshandle_t ls = t_create();

	EQUAL(dlm_ls_pthread_init(ls), 0, "first dlm_ls_pthread_init");
	REFUSED(dlm_ls_pthread_init(ls), EEXIST);
	lock_and_unlock(ls, 1);
	t_release(ls);
}
#endif

/* Two lockspaces, one name: two locks. */
static void two_spaces(void)
{
	dlm_lshandle_t ls = t_create(), other = dlm_create_lockspace("another", 0600);

	CHECK(other, "create: %m");
	t_get(&l, ls, LKM_EXMODE, 0, "n");
	t_get(&m, other, LKM_EXMODE, 0, "n");
	ACCEPTED(dlm_release_lockspace("another", other, 1));
	t_regrant(&l, LKM_NLMODE, 0);
	t_drop(&l);
	t_release(ls);
}

static const struct t_test tests[] = {
	{"lstest", "create with mode 0444, lock, unlock, release", create_0444, 0},
	{"lstest-o", "create twice, open, release", create_and_open, 0},
#ifndef LT
	{"lstest-p", "the helper thread started twice: 0, then -1", twice_threaded, 0},
#endif
	{"lstest-2", "one name in two lockspaces", two_spaces, 0},
};
T_MAIN(tests)
