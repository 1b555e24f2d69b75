/*
 * threads: n threads lock one resource in EX, each with a condition variable of its own over the
 * asynchronous call; a helper thread runs the callbacks.
 * @test libs=dlm
 */
#include "t.h"

#define THREADS 25
static dlm_lshandle_t ls;
static volatile int inside, worked;

struct waiter {
	struct dlm_lksb sb;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	int called;
};

static void called(void *arg)
{
	struct waiter *w = arg;

	pthread_mutex_lock(&w->mutex);
	w->called = 1;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->mutex);
}

static int await(struct waiter *w)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += T_GUARD_MS / 1000;
	pthread_mutex_lock(&w->mutex);
	while (!w->called)
		CHECK(!pthread_cond_timedwait(&w->cond, &w->mutex, &end), "no callback comes");
	w->called = 0;
	pthread_mutex_unlock(&w->mutex);
	return w->sb.sb_status;
}

static void *work(void *arg)
{
	struct waiter w = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
	int i;

	for (i = 0; i < t_scaled(10, 1000); i++) {
		ACCEPTED(dlm_ls_lock(ls, LKM_EXMODE, &w.sb, 0, "threads", 7, 0, called, &w, NULL,
				     NULL));
		EQUAL(await(&w), 0, "status of the lock");
		EQUAL(__sync_fetch_and_add(&inside, 1), 0, "other threads inside");
		t_sleep_us(100);
		__sync_fetch_and_sub(&inside, 1);
		__sync_fetch_and_add(&worked, 1);
		ACCEPTED(dlm_ls_unlock(ls, w.sb.sb_lkid, 0, &w.sb, &w));
		EQUAL(await(&w), EUNLOCK, "status of the unlock");
	}
	return arg;
}

static void threads(void)
{
	pthread_t t[THREADS];
	int i;

	ls = t_create();
	ACCEPTED(dlm_ls_pthread_init(ls));
	for (i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&t[i], NULL, work, NULL), "thread");
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	EQUAL(worked, THREADS * t_scaled(10, 1000), "turns");
	t_release(ls);
}

static const struct t_test tests[] = {{"threads", "25 threads take turns", threads, 300}};
T_MAIN(tests)
