/*
 * Arguments, return values and what happens to the status block, call by call (libdlm-abi.md 2.1 to
 * 2.5, 2.7); where the two libraries differ, as each of them says.
 * @test libs=dlm,lt
 */
#include "t.h"

static struct t_lock a, b;
static dlm_lshandle_t ls;

static void checks_before_submit(void)
{
	struct dlm_lksb sb = {.sb_status = 4711};
	int range;

	ls = t_create();
	REFUSED(dlm_ls_lock(NULL, 77, &sb, ~0u, NULL, 999, 0, NULL, NULL, NULL, &range), ENOSYS);
	REFUSED(dlm_ls_lock_wait(NULL, 77, &sb, ~0u, NULL, 999, 0, NULL, NULL, &range), ENOSYS);
	REFUSED(dlm_ls_lock(ls, 5, &sb, LKF_VALBLK, "n", 1, 0, t_ast, &a, NULL, NULL), EINVAL);
	REFUSED(dlm_ls_lock_wait(ls, 5, &sb, LKF_VALBLK, "n", 1, 0, NULL, NULL, NULL), EINVAL);
	REFUSED(dlm_ls_lock(ls, 5, &sb, 0, "n", 65, 0, t_ast, &a, NULL, NULL), EINVAL);
	EQUAL(sb.sb_status, 4711, "sb_status after failed argument checks");
	REFUSED(dlm_ls_lockx(ls, 5, &sb, LKF_VALBLK, "n", 1, 0, t_ast, &a, NULL, NULL, NULL), EINVAL);
	REFUSED(dlm_ls_unlock(NULL, 0, 0, &sb, NULL), ENOTCONN);
	REFUSED(dlm_ls_unlock(ls, 0, 0, &sb, NULL), EINVAL);
	REFUSED(dlm_ls_unlock_wait(NULL, 0, 0, &sb), ENOTCONN);
	REFUSED(dlm_ls_unlock_wait(ls, 0, 0, &sb), EINVAL);
	REFUSED(dlm_ls_deadlock_cancel(NULL, 0, 0), ENOTCONN);
	REFUSED(dlm_ls_deadlock_cancel(ls, 0, 0), EINVAL);
	REFUSED(dlm_ls_purge(NULL, 0, 0), ENOTCONN);
	t_release(ls);
}

static void checks_of_the_daemon(void)
{
	static const struct { uint32_t mode, flags; } bad[] = {
		{6, 0}, {255, 0}, {LKM_EXMODE, LKF_CANCEL}, {LKM_EXMODE, LKF_QUECVT},
		{LKM_EXMODE, LKF_CONVDEADLK}, {LKM_EXMODE, LKF_EXPEDITE},
		{LKM_NLMODE, LKF_EXPEDITE | LKF_NOQUEUE}, {LKM_NLMODE, LKF_EXPEDITE | LKF_QUECVT},
	};
	unsigned i;

	ls = t_create();
	for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		t_step("mode %u flags 0x%x", bad[i].mode, bad[i].flags);
		REFUSED(t_try_lock(&a, ls, bad[i].mode, bad[i].flags, "n"), EINVAL);
		EQUAL(a.sb.sb_status, EINPROG, "sb_status after a refused submit");
	}
	REFUSED(dlm_ls_lock(ls, 5, &a.sb, 0, "n", 1, 0, NULL, NULL, t_bast, NULL), EINVAL);
	t_step("only the low eight bits of a mode count");
	t_get(&a, ls, 0x100 + LKM_EXMODE, 0, "n");
	CHECK(!t_is_free(ls, LKM_CRMODE, "n"), "mode 261 is not EX");
	t_step("conversions");
	REFUSED(t_try_convert(&a, 6, 0), EINVAL);
	REFUSED(t_try_convert(&a, LKM_EXMODE, LKF_QUECVT), EINVAL);
	REFUSED(t_try_convert(&a, LKM_NLMODE, LKF_EXPEDITE), EINVAL);
	REFUSED(t_try_convert(&a, LKM_NLMODE, LKF_CONVDEADLK | LKF_NOQUEUE), EINVAL);
	b.ls = ls;
	b.sb.sb_lkid = 0;
	REFUSED(t_try_convert(&b, LKM_NLMODE, 0), ENOENT);
	t_step("name and length of a conversion are ignored");
	ACCEPTED(dlm_ls_lock(ls, LKM_PRMODE, &a.sb, LKF_CONVERT, "other", 5, 99, t_ast, &a, t_bast,
			     NULL));
	EQUAL(t_done(&a), 0, "a conversion with a name");
	CHECK(t_is_free(ls, LKM_EXMODE, "other"), "a conversion's name was used");
	t_step("unknown bits, parents and odd combinations are accepted");
	t_get(&b, ls, LKM_PRMODE, LKF_HEADQUE | LKF_NOORDER | LKF_ALTPR | LKF_ALTCW, "m");
	t_drop(&b);
	t_get(&b, ls, LKM_PRMODE, LKF_FORCEUNLOCK | LKF_IVVALBLK | LKF_NOQUEUEBAST, "m");
	t_drop(&b);
	t_drop(&a);
	t_release(ls);
}

static void status_block(void)
{
	char lvb[DLM_LVB_LEN] = "mine", *pointer = lvb;
	struct dlm_lksb sb = {.sb_lvbptr = lvb};

	ls = t_create();
	t_get(&b, ls, LKM_EXMODE, 0, "n");
	ACCEPTED(dlm_ls_lock(ls, LKM_EXMODE, &sb, LKF_VALBLK, "n", 1, 0, t_ast, &a, NULL, NULL));
	EQUAL(sb.sb_status, EINPROG, "sb_status while pending");
	CHECK(sb.sb_lkid, "sb_lkid after the call");
	t_drop(&b);
	PUMP_UNTIL(ls, sb.sb_status != EINPROG);
	EQUAL(sb.sb_status, 0, "sb_status");
	CHECK(sb.sb_lvbptr == pointer, "sb_lvbptr was changed");
	ACCEPTED(dlm_ls_unlock(ls, sb.sb_lkid, 0, &sb, &a));
	EQUAL(sb.sb_status, EINPROG, "sb_status while an unlock is pending");
	PUMP_UNTIL(ls, sb.sb_status != EINPROG);
	EQUAL(sb.sb_status, EUNLOCK, "sb_status");
	t_release(ls);
}

/* VALBLK on an unlock writes the caller's bytes (D3); without it they are not looked at. */
static void value_on_unlock(void)
{
	ls = t_create();
	t_get(&b, ls, LKM_NLMODE, 0, "n");	/* keeps the name alive */
	t_get(&a, ls, LKM_EXMODE, LKF_VALBLK, "n");
	memset(a.lvb, 'x', sizeof a.lvb);
	t_unlock(&a, LKF_VALBLK);
	EQUAL(t_done(&a), EUNLOCK, "status");
	t_get(&a, ls, LKM_EXMODE, LKF_VALBLK, "n");
	CHECK(a.lvb[0] == 'x' && a.lvb[DLM_LVB_LEN - 1] == 'x', "the unlock's bytes are not there");
	memset(a.lvb, 'y', sizeof a.lvb);
	t_regrant(&a, LKM_EXMODE, LKF_VALBLK);		/* EX to EX writes */
	memset(a.lvb, 'z', sizeof a.lvb);
	t_drop(&a);					/* flags 0: the bytes last given */
	t_get(&a, ls, LKM_PRMODE, LKF_VALBLK, "n");
	CHECK(a.lvb[0] == 'y', "an unlock without VALBLK wrote '%c'", a.lvb[0]);
	t_drop(&a);
	t_drop(&b);
	t_release(ls);
}

static void waits(void)
{
	struct dlm_lksb sb = {0}, other = {0};
	dlm_lshandle_t two;
	int r;

	ls = t_create();
	two = t_open(t_space_name());
	t_threaded(ls);
	t_get(&b, two, LKM_EXMODE, 0, "held");
	errno = 0;
	r = dlm_ls_lock_wait(ls, LKM_EXMODE, &sb, LKF_NOQUEUE, "held", 4, 0, NULL, NULL, NULL);
#ifdef LT
	CHECK(r == -1 && errno == EAGAIN, "a refused try: %d, %m", r);
#else
	EQUAL(r, 0, "a refused try: the call");
#endif
	EQUAL(sb.sb_status, EAGAIN, "a refused try: sb_status");
	ACCEPTED(dlm_ls_lock_wait(ls, LKM_PRMODE, &sb, 0, "n", 1, 0, NULL, NULL, NULL));
	EQUAL(sb.sb_status, 0, "sb_status of a grant");
	ACCEPTED(dlm_ls_lock(ls, LKM_PRMODE, &other, LKF_WAIT, "n", 1, 0, t_ast, &a, NULL, NULL));
	EQUAL(other.sb_status, 0, "LKF_WAIT makes an asynchronous call wait");
	(void)dlm_ls_lock_wait(ls, LKM_EXMODE, &other, LKF_CONVERT | LKF_NOQUEUE, NULL, 0, 0, NULL,
			       NULL, NULL);
	EQUAL(other.sb_status, EAGAIN, "a refused conversion: sb_status");
	REFUSED(dlm_ls_lock_wait(ls, 99, &sb, 0, "n", 1, 0, NULL, NULL, NULL), EINVAL);
	EQUAL(sb.sb_status, EINPROG, "sb_status after a refused submit");
	ACCEPTED(dlm_ls_unlock_wait(ls, other.sb_lkid, 0, &other));
	EQUAL(other.sb_status, EUNLOCK, "sb_status of an unlock");
	REFUSED(dlm_ls_unlock_wait(ls, other.sb_lkid, 0, &other), ENOENT);
	t_drop(&b);
	EQUAL(dlm_close_lockspace(two), 0, "close");
	t_release(ls);
}

static void versions(void)
{
	uint32_t v[3] = {9, 9, 9};

	EQUAL(dlm_kernel_version(v, v + 1, v + 2), 0, "dlm_kernel_version");
	CHECK(v[0] == 6 && v[1] == 0 && v[2] == 2, "service version %u.%u.%u", v[0], v[1], v[2]);
	memset(v, 9, sizeof v);
	dlm_library_version(v, v + 1, v + 2);
	CHECK(v[0] == 6 && v[1] == 0 && v[2] == 2, "library version %u.%u.%u", v[0], v[1], v[2]);
}

/* The failure of one blocking call does not spoil the next (bug-log.md). */
static void after_each_failure(void)
{
	struct dlm_lksb sb = {0}, good = {0};
	dlm_lshandle_t two;
	int i;

	ls = t_create();
	two = t_open(t_space_name());
	t_threaded(ls);
	t_get(&b, two, LKM_EXMODE, 0, "held");
	for (i = 0; i < 20; i++) {
		EQUAL(t_wait_lock(ls, &sb, LKM_EXMODE, LKF_NOQUEUE, "held"), EAGAIN, "a try");
		EQUAL(t_wait_lock(ls, &sb, 99, 0, "held"), EINVAL, "a bad mode");
		sb.sb_lkid = 0x7ffffff0;
		EQUAL(t_wait_lock(ls, &sb, LKM_EXMODE, LKF_CONVERT, ""), ENOENT, "a bad id");
		EQUAL(t_wait_unlock(ls, &sb, 0), ENOENT, "a bad id");
		EQUAL(t_wait_lock(ls, &good, LKM_EXMODE, 0, "other"), 0, "another name");
		EQUAL(t_wait_lock(ls, &good, LKM_NLMODE, LKF_CONVERT, ""), 0, "a conversion");
		EQUAL(t_wait_unlock(ls, &good, 0), EUNLOCK, "an unlock");
		t_drop(&b);
		EQUAL(t_wait_lock(ls, &good, LKM_EXMODE, 0, "held"), 0, "the same name");
		EQUAL(t_wait_unlock(ls, &good, 0), EUNLOCK, "an unlock");
		t_get(&b, two, LKM_EXMODE, 0, "held");
	}
	EQUAL(dlm_close_lockspace(two), 0, "close");
	t_release(ls);
}

static const struct t_test tests[] = {
	{"args-library", "what the library checks itself", checks_before_submit, 0},
	{"args-daemon", "what the daemon checks", checks_of_the_daemon, 0},
	{"args-lksb", "the status block", status_block, 0},
	{"D3", "the value block of an unlock", value_on_unlock, 0},
	{"args-wait", "return values of the blocking calls", waits, 0},
	{"BL-107", "a failed blocking call does not spoil the next", after_each_failure, 0},
	{"versions", "6.0.2 both", versions, 0},
};
T_MAIN(tests)
