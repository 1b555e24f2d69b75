/*
 * asttest: asynchronous lock and unlock in the default lockspace; callbacks by poll and dispatch,
 * or on the helper thread; and a program that crashes while it holds the lock.
 * @test libs=dlm,lt
 */
#include "t.h"

static struct t_lock l;

static void await(int completions, int threaded)
{
	struct pollfd p = {.fd = dlm_get_fd(), .events = POLLIN};

	CHECK(p.fd >= 0, "dlm_get_fd: %m");
	if (threaded) {
		WAIT_UNTIL(l.asts >= completions);
		return;
	}
	while (l.asts < completions) {
		EQUAL(poll(&p, 1, T_GUARD_MS), 1, "poll");
		ACCEPTED(dlm_dispatch(p.fd));
	}
}

static void lock_and_unlock(int threaded)
{
	int mode;

	for (mode = LKM_NLMODE; mode <= LKM_EXMODE; mode++) {
		memset(&l, 0, sizeof l);
		ACCEPTED(dlm_lock(mode, &l.sb, 0, "TESTLOCK", 8, 0, t_ast, &l, t_bast, NULL));
		await(1, threaded);
		EQUAL(l.status, 0, "ast called, status");
		ACCEPTED(dlm_lock(LKM_NLMODE, &l.sb, LKF_CONVERT, NULL, 0, 0, t_ast, &l, t_bast,
				  NULL));
		await(2, threaded);
		EQUAL(l.status, 0, "ast called, status");
		ACCEPTED(dlm_unlock(l.sb.sb_lkid, 0, &l.sb, &l));
		await(3, threaded);
		EQUAL(l.status, 65538, "ast called, status");
	}
}

static void by_poll(void)
{
	REFUSED(dlm_unlock(1, 0, &l.sb, &l), ENOTCONN);
	REFUSED(dlm_unlock_wait(1, 0, &l.sb), ENOTCONN);
	lock_and_unlock(0);
	t_release_default();
}

#ifndef LT
static void by_thread(void)
{
	ACCEPTED(dlm_pthread_init());
	REFUSED(dlm_pthread_init(), EEXIST);
	lock_and_unlock(1);
	ACCEPTED(dlm_pthread_cleanup());
	t_release_default();
}
#endif

static void crash(int fd, void *arg)
{
	(void)fd;
	(void)arg;
	ACCEPTED(dlm_lock(LKM_EXMODE, &l.sb, 0, "TESTLOCK", 8, 0, t_ast, &l, t_bast, NULL));
	await(1, 0);
	signal(SIGSEGV, SIG_DFL);
	raise(SIGSEGV);
}

static void crash_holding(void)
{
	struct t_proc p = t_spawn(crash, NULL);
	int status = t_reap(&p);

	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "the program did not crash");
	ACCEPTED(dlm_lock(LKM_EXMODE, &l.sb, 0, "TESTLOCK", 8, 0, t_ast, &l, t_bast, NULL));
	await(1, 0);
	EQUAL(l.status, 0, "a request after the holder crashed");
	ACCEPTED(dlm_unlock(l.sb.sb_lkid, 0, &l.sb, &l));
	await(2, 0);
	t_release_default();
}

static const struct t_test tests[] = {
	{"asttest", "status 0, then 65538, by poll", by_poll, 0},
#ifndef LT
	{"asttest-t", "status 0, then 65538, on the helper thread", by_thread, 0},
#endif
	{"asttest-C", "a crash gives the lock back", crash_holding, 0},
};
T_MAIN(tests)
