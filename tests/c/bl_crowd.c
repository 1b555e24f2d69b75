/*
 * Many threads in blocking calls on one handle, and no helper thread: they serve each other
 * (bug-log.md BL-087, BL-124). The originals hang, or work by luck; ours work by rule.
 * @test libs=dlm,lt timeout=900
 */
#include "t.h"

#define THREADS 32
static dlm_lshandle_t ls;
static volatile int inside;
static volatile long turns;

static void all_threads(void *(*fn)(void *))
{
	pthread_t t[THREADS];
	long i;

	for (i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&t[i], NULL, fn, (void *)i), "thread");
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
}

static void *in_turns(void *arg)
{
	struct dlm_lksb sb = {0};
	int i, rounds = t_scaled(60, 5000);

	for (i = 0; i < rounds; i++) {
		EQUAL(t_wait_lock(ls, &sb, LKM_EXMODE, 0, "n"), 0, "a blocking request");
		EQUAL(__sync_fetch_and_add(&inside, 1), 0, "other holders of EX");
		__sync_fetch_and_sub(&inside, 1);
		EQUAL(t_wait_unlock(ls, &sb, 0), EUNLOCK, "a blocking unlock");
		__sync_fetch_and_add(&turns, 1);
	}
	return arg;
}

static void one_name(void)
{
	ls = t_create();
	all_threads(in_turns);
	EQUAL(turns, THREADS * t_scaled(60, 5000), "turns");
	t_release(ls);
}

/* Each its own name, and now and then one that all share. */
static void *mostly_alone(void *arg)
{
	struct dlm_lksb own = {0}, common = {0};
	int i, rounds = t_scaled(100, 5000);
	char name[16];

	snprintf(name, sizeof name, "own%ld", (long)arg);
	for (i = 0; i < rounds; i++) {
		EQUAL(t_wait_lock(ls, &own, LKM_PRMODE, 0, name), 0, "a blocking request");
		if (i % 8 == 0) {
			EQUAL(t_wait_lock(ls, &common, LKM_PRMODE, 0, "common"), 0, "common");
			EQUAL(t_wait_lock(ls, &common, LKM_NLMODE, LKF_CONVERT, ""), 0, "down");
			EQUAL(t_wait_unlock(ls, &common, 0), EUNLOCK, "common");
		}
		EQUAL(t_wait_lock(ls, &own, LKM_EXMODE, LKF_CONVERT, ""), 0, "a conversion");
		EQUAL(t_wait_unlock(ls, &own, 0), EUNLOCK, "a blocking unlock");
	}
	return NULL;
}

static void many_names(void)
{
	ls = t_create();
	all_threads(mostly_alone);
	t_release(ls);
}

/* Two crowds on two handles, which hand one lock to and fro. */
static void child(int fd, void *arg)
{
	(void)arg;
	ls = t_open(t_space_name());
	all_threads(in_turns);
	EQUAL(dlm_close_lockspace(ls), 0, "close");
	t_put(fd, 'd');
}

static void two_crowds(void)
{
	dlm_lshandle_t mine = t_create();
	struct t_proc p[2];
	int i;

	for (i = 0; i < 2; i++)
		p[i] = t_spawn(child, NULL);
	for (i = 0; i < 2; i++) {
		t_expect(&p[i], 'd');
		t_join(&p[i]);
	}
	t_release(mine);
}

static const struct t_test tests[] = {
	{"BL-124n", "32 threads take turns at one name", one_name, 300},
	{"BL-124m", "32 threads at many names", many_names, 300},
	{"BL-087c", "two crowds of threads hand a lock to and fro", two_crowds, 300},
};
T_MAIN(tests)
