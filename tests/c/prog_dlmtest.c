/*
 * dlmtest: the simplest program of all, with the calls of libdlm that block on the default
 * lockspace: lock_resource, convert, unlock_resource, dlm_pthread_cleanup.
 * @test libs=dlm
 */
#include "t.h"

static void all_modes(void)
{
	int mode, other, id;

	for (mode = LKM_NLMODE; mode <= LKM_EXMODE; mode++)
		for (other = LKM_NLMODE; other <= LKM_EXMODE; other++) {
			id = 0;
			ACCEPTED(lock_resource("TESTLOCK", mode, 0, &id));
			CHECK(id, "no lock id");
			int before = id;
			ACCEPTED(lock_resource("TESTLOCK", other, LKF_CONVERT, &id));
			EQUAL(id, before, "lock id after a conversion");
			ACCEPTED(unlock_resource(id));
			REFUSED(unlock_resource(id), ENOENT);
		}
	ACCEPTED(dlm_pthread_cleanup());
}

static void holder(int fd, void *arg)
{
	int id = 0;

	(void)arg;
	ACCEPTED(lock_resource("TESTLOCK", LKM_PRMODE, 0, &id));
	t_put(fd, 'h');
	t_expect(&(struct t_proc){.fd = fd}, 'e');
	ACCEPTED(unlock_resource(id));
	ACCEPTED(dlm_pthread_cleanup());
}

static void against_a_holder(void)
{
	struct t_proc p = t_spawn(holder, NULL);
	int id = 0, mine = 0;

	t_expect(&p, 'h');
	REFUSED(lock_resource("TESTLOCK", LKM_EXMODE, LKF_NOQUEUE, &id), EAGAIN);
	ACCEPTED(lock_resource("TESTLOCK", LKM_PRMODE, LKF_NOQUEUE, &mine));
	REFUSED(lock_resource("TESTLOCK", LKM_EXMODE, LKF_NOQUEUE | LKF_CONVERT, &mine), EAGAIN);
	ACCEPTED(unlock_resource(mine));
	t_put(p.fd, 'e');
	ACCEPTED(lock_resource("TESTLOCK", LKM_EXMODE, 0, &id));	/* waits for the holder */
	ACCEPTED(unlock_resource(id));
	t_join(&p);
	ACCEPTED(dlm_pthread_cleanup());
}

static void bad_arguments(void)
{
	int id = 0x7fffffff;

	REFUSED(lock_resource("TESTLOCK", LKM_EXMODE, 0, NULL), EINVAL);
	REFUSED(lock_resource("TESTLOCK", 77, 0, &id), EINVAL);
	REFUSED(unlock_resource(0x7fffffff), ENOENT);
	REFUSED(unlock_resource(0), EINVAL);
	ACCEPTED(dlm_pthread_cleanup());
	ACCEPTED(dlm_pthread_cleanup());
	errno = 0;
	EQUAL(unlock_resource(1), -1, "unlock_resource when nothing is open");
	CHECK(errno == ENOTCONN || errno == -ENOTCONN, "its errno is %d", errno);
}

/* PERSISTENT: the lock is still there after the program ended. */
static void lasting(int fd, void *arg)
{
	(void)arg;
	ACCEPTED(lock_resource("TESTLOCK", LKM_EXMODE, LKF_PERSISTENT, &(int){0}));
	t_put(fd, 'd');
}

static void persistent(void)
{
	struct t_proc p = t_spawn(lasting, NULL);
	dlm_lshandle_t ls;
	int id = 0;

	t_expect(&p, 'd');
	t_join(&p);
	REFUSED(lock_resource("TESTLOCK", LKM_CRMODE, LKF_NOQUEUE, &id), EAGAIN);
	ls = t_open("default");
	WAIT_UNTIL(!dlm_ls_purge(ls, 0, 0) &&
		   !lock_resource("TESTLOCK", LKM_EXMODE, LKF_NOQUEUE, &id));
	EQUAL(dlm_close_lockspace(ls), 0, "close");
	ACCEPTED(unlock_resource(id));
	ACCEPTED(dlm_pthread_cleanup());
}

/* Leaves no lockspace behind. */
static void run(void (*test)(void))
{
	test();
	t_release_default();
}

static void t1(void) { run(all_modes); }
static void t2(void) { run(against_a_holder); }
static void t3(void) { run(bad_arguments); }
static void t4(void) { run(persistent); }

static const struct t_test tests[] = {
	{"dlmtest", "lock, convert and unlock in all modes", t1, 0},
	{"dlmtest-n", "NOQUEUE against a holder: EAGAIN", t2, 0},
	{"dlmtest-bad", "bad arguments", t3, 0},
	{"dlmtest-p", "PERSISTENT outlives its program", t4, 0},
};
T_MAIN(tests)
