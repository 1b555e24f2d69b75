/*
 * Threads (bug-log.md): many on one handle, the default lockspace used first by all at once, close
 * under them. libdlm only: the other library promises nothing to several threads on one handle.
 * @test libs=dlm timeout=900
 */
#include "t.h"

#define THREADS 32
static pthread_barrier_t together;
static dlm_lshandle_t space;
static struct t_lock a, b;

static void all_threads(void *(*fn)(void *))
{
	pthread_t t[THREADS];
	long i;

	for (i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&t[i], NULL, fn, (void *)i), "thread");
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
}

/* ---------------------------------------------------------------- the default lockspace */
static volatile int one_at_a_time;

static void *first_use(void *arg)
{
	char name[16];
	int id[2] = {0, 0};

	snprintf(name, sizeof name, "mine%ld", (long)arg);
	pthread_barrier_wait(&together);
	ACCEPTED(lock_resource(name, LKM_EXMODE, 0, &id[0]));
	ACCEPTED(lock_resource("shared", LKM_EXMODE, 0, &id[1]));
	CHECK(id[0] && id[1] && id[0] != id[1], "ids %08x and %08x", id[0], id[1]);
	EQUAL(__sync_fetch_and_add(&one_at_a_time, 1), 0, "other holders of EX");
	__sync_fetch_and_sub(&one_at_a_time, 1);
	ACCEPTED(unlock_resource(id[1]));
	ACCEPTED(lock_resource(name, LKM_PRMODE, LKF_CONVERT, &id[0]));
	ACCEPTED(unlock_resource(id[0]));
	REFUSED(unlock_resource(id[0]), ENOENT);
	return NULL;
}

static void default_first_use(void)
{
	int round;

	for (round = 0; round < t_scaled(10, 200); round++) {
		pthread_barrier_init(&together, NULL, THREADS);
		all_threads(first_use);
		ACCEPTED(dlm_pthread_cleanup());
		ACCEPTED(dlm_pthread_cleanup());
		pthread_barrier_destroy(&together);
	}
	t_release_default();
}

/* ---------------------------------------------------------------- everything on one handle */
struct signalled {
	struct dlm_lksb sb;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	int done, told, status;
};

static void done_signal(void *arg)
{
	struct signalled *s = arg;

	pthread_mutex_lock(&s->lock);
	s->status = s->sb.sb_status;
	s->done++;
	pthread_cond_signal(&s->cond);
	pthread_mutex_unlock(&s->lock);
}

static void told(void *arg)
{
	__sync_fetch_and_add(&((struct signalled *)arg)->told, 1);
}

static int finish(struct signalled *s)
{
	struct timespec end;
	int status;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += T_GUARD_MS / 1000;
	pthread_mutex_lock(&s->lock);
	while (!s->done)
		CHECK(!pthread_cond_timedwait(&s->cond, &s->lock, &end), "no completion comes");
	s->done--;
	status = s->status;
	pthread_mutex_unlock(&s->lock);
	return status;
}

static void *mixed_work(void *arg)
{
	struct signalled s = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
	int i, status, id = (int)(long)arg, rounds = t_scaled(60, 5000);
	char name[8];

	for (i = 0; i < rounds; i++) {
		snprintf(name, sizeof name, "n%d", (int)(t_random() % 5));
		ACCEPTED(dlm_ls_lock(space, t_random() % 6, &s.sb, 0, name, strlen(name), 0,
				     done_signal, &s, told, NULL));
		if (id % 4 == 1) {	/* cancel: either it was granted, or it is gone */
			if (dlm_ls_unlock(space, s.sb.sb_lkid, LKF_CANCEL, &s.sb, &s))
				EQUAL(errno, ENOENT, "errno of a cancel");
			if ((status = finish(&s)) == ECANCEL)
				continue;
			EQUAL(status, 0, "status of a request that was not cancelled");
		} else
			EQUAL(finish(&s), 0, "status of a request");
		if (id % 4 == 2) {
			ACCEPTED(dlm_ls_lock(space, LKM_NLMODE, &s.sb, LKF_CONVERT, NULL, 0, 0,
					     done_signal, &s, told, NULL));
			EQUAL(finish(&s), 0, "status of a conversion to NL");
		}
		if (id % 4 == 3)
			dlm_dispatch(dlm_ls_get_fd(space));
		ACCEPTED(dlm_ls_unlock(space, s.sb.sb_lkid, 0, &s.sb, &s));
		EQUAL(finish(&s), EUNLOCK, "status of an unlock");
	}
	return NULL;
}

static void one_handle(void)
{
	space = t_create();
	t_threaded(space);
	errno = 0;
	EQUAL(dlm_ls_pthread_init(space), -1, "a second dlm_ls_pthread_init");
	EQUAL(errno, EEXIST, "its errno");
	all_threads(mixed_work);
	t_release(space);
}

static void *wait_work(void *arg)
{
	struct dlm_lksb sb = {0};
	int i, rounds = t_scaled(60, 5000);

	for (i = 0; i < rounds; i++) {
		EQUAL(t_wait_lock(space, &sb, LKM_EXMODE, 0, "n"), 0, "a blocking request");
		EQUAL(__sync_fetch_and_add(&one_at_a_time, 1), 0, "other holders of EX");
		__sync_fetch_and_sub(&one_at_a_time, 1);
		EQUAL(t_wait_lock(space, &sb, LKM_PRMODE, LKF_CONVERT, ""), 0, "a conversion");
		EQUAL(t_wait_unlock(space, &sb, 0), EUNLOCK, "a blocking unlock");
	}
	return arg;
}

static void one_handle_waiting(void)
{
	space = t_create();
	t_threaded(space);
	all_threads(wait_work);
	t_release(space);
}

/* The id is in the status block when the call returns, though the helper thread may be just about to
 * write it. */
static void id_at_return(void)
{
	struct signalled s = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
	int i;

	space = t_create();
	t_threaded(space);
	for (i = 0; i < t_scaled(5000, 500000); i++) {
		s.sb.sb_lkid = 0;
		ACCEPTED(dlm_ls_lock(space, LKM_EXMODE, &s.sb, 0, "n", 1, 0, done_signal, &s, told,
				     NULL));
		CHECK(s.sb.sb_lkid, "round %d: no id when the call has returned", i);
		ACCEPTED(dlm_ls_unlock(space, s.sb.sb_lkid, 0, &s.sb, &s));
		finish(&s);
		finish(&s);
		EQUAL(s.status, EUNLOCK, "status of the unlock");
	}
	t_release(space);
}

/* ---------------------------------------------------------------- whose thread runs callbacks */
static pid_t expected;
static volatile int strangers, called;

/* The completion of a lock may also run in the blocking call of its own owner. */
static void where(void *owner)
{
	if (gettid() != expected && (!owner || gettid() != *(pid_t *)owner))
		strangers++;
	called++;
}

static void told_where(void *arg)
{
	where(NULL);
	(void)arg;
}

static void *wait_beside(void *arg)
{
	struct dlm_lksb sb = {0}, async = {0};
	pid_t self = gettid();
	int i, before;

	for (i = 0; i < t_scaled(100, 3000); i++) {
		ACCEPTED(dlm_ls_lock_wait(space, LKM_EXMODE, &sb, 0, "n", 1, 0, NULL, told_where,
					  NULL));
		before = called;
		ACCEPTED(dlm_ls_lock(space, LKM_NLMODE, &async, 0, "m", 1, 0, where, &self, told_where,
				     NULL));
		/* its completion, and that of the unlock that is waited for, both have the callback */
		ACCEPTED(dlm_ls_unlock_wait(space, async.sb_lkid, 0, &async));
		EQUAL(async.sb_status, EUNLOCK, "status of the unlock");
		CHECK(called > before, "the completion of an asynchronous request is not told");
		ACCEPTED(dlm_ls_unlock_wait(space, sb.sb_lkid, 0, &sb));
	}
	return arg;
}

static void on_event(void *arg) { expected = gettid(); *(volatile int *)arg = 1; }

/* Beside threads that wait, callbacks run on the helper thread, or in dlm_dispatch. */
static void callbacks_stay(int helper)
{
	static volatile int known;
	pthread_t t[8];
	int i;

	space = t_create();
	if (helper) {
		t_threaded(space);
		ACCEPTED(dlm_ls_lock(space, LKM_NLMODE, &a.sb, 0, "h", 1, 0, on_event, (void *)&known,
				     NULL, NULL));
		WAIT_UNTIL(known);
	} else
		expected = gettid();
	for (i = 0; i < 8; i++)
		CHECK(!pthread_create(&t[i], NULL, wait_beside, NULL), "thread");
	for (i = 0; i < 8; i++) {
		if (!helper)
			while (pthread_tryjoin_np(t[i], NULL))
				t_pump(space, 5);
		else
			pthread_join(t[i], NULL);
	}
	EQUAL(strangers, 0, "callbacks on a foreign thread");
	t_release(space);
}

static void callbacks_on_helper(void) { callbacks_stay(1); }
static void callbacks_in_dispatch(void) { callbacks_stay(0); }

/* ---------------------------------------------------------------- slow callbacks */
static volatile int slow, may_end;

static void stay(void *arg)
{
	(void)arg;
	while (!may_end) usleep(1000);
	slow++;
}

/* The helper thread is in a callback that does not end before a blocking call on the same handle has; the
 * callbacks of many other locks wait behind it (libdlm(3): a callback must not block). */
static void wait_beside_slow_callbacks(void)
{
	static struct dlm_lksb many[63];
	struct dlm_lksb sb = {0};
	char name[8];
	int i;

	space = t_create();
	t_threaded(space);
	for (i = 0; i < 63; i++) {
		snprintf(name, sizeof name, "slow-%d", i);
		ACCEPTED(dlm_ls_lock(space, LKM_EXMODE, &many[i], 0, name, strlen(name), 0, stay, NULL,
				     NULL, NULL));
	}
	EQUAL(t_wait_lock(space, &sb, LKM_EXMODE, 0, "n"), 0, "a blocking request");
	EQUAL(t_wait_unlock(space, &sb, 0), EUNLOCK, "a blocking unlock");
	EQUAL(slow, 0, "callbacks that have ended");
	may_end = 1;
	while (slow < 63) t_pump(space, 5);
	t_release(space);
}

/* ---------------------------------------------------------------- close under the others */
static volatile int closed, after_close, waiting;

/* Takes long enough for a close that does not wait to be caught. */
static void late(void *arg)
{
	(void)arg;
	t_sleep_us(100);
	if (closed)
		after_close++;
}

static void *until_closed(void *arg)
{
	struct dlm_lksb *sb = calloc(1, sizeof *sb);
	char name[16];

	snprintf(name, sizeof name, "held%d", (long)arg % 2 ? 1 : 0);
	__sync_fetch_and_add(&waiting, 1);
	errno = 0;
	EQUAL(dlm_ls_lock_wait(space, LKM_EXMODE, sb, 0, name, 5, 0, NULL, late, NULL), -1,
	      "a blocking request on a handle that is closed");
	CHECK(errno == EBADF || errno == ENOTCONN || errno == ENOTRECOVERABLE, "errno %m");
	return NULL;	/* sb stays: its request was cut off */
}

static void *closer(void *arg)
{
	WAIT_UNTIL(waiting == THREADS);
	t_sleep_us(20000);
	EQUAL(dlm_close_lockspace(space), 0, "close");
	closed = 1;
	return arg;
}

static void close_under_waiters(void)
{
	dlm_lshandle_t other = t_create();
	pthread_t thread;
	int round;

	for (round = 0; round < t_scaled(5, 100); round++) {
		closed = waiting = 0;
		space = t_open(t_space_name());
		t_threaded(space);
		t_get(&a, other, LKM_EXMODE, 0, "held0");
		t_get(&b, other, LKM_EXMODE, 0, "held1");
		CHECK(!pthread_create(&thread, NULL, closer, NULL), "thread");
		all_threads(until_closed);
		pthread_join(thread, NULL);
		t_drop(&a);
		t_drop(&b);
		CHECK(t_is_free(other, LKM_EXMODE, "held0"), "a cut-off request is left");
		EQUAL(after_close, 0, "callbacks after close had returned");
	}
	t_release(other);
}

/* The same under threads that call without pause: each call ends, well or with an error. */
static void *call_until_closed(void *arg)
{
	struct signalled *s = calloc(1, sizeof *s);	/* events may be cut off: it stays */
	int fd = dlm_ls_get_fd(space), bad = 0;

	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->cond, NULL);
	__sync_fetch_and_add(&waiting, 1);
	while (!bad) {
		errno = 0;
		if ((long)arg % 3 == 0)
			bad = dlm_dispatch(fd);	/* beside the helper thread */
		else if ((long)arg % 3 == 1)
			bad = dlm_ls_lock_wait(space, LKM_PRMODE, &s->sb, 0, "w", 1, 0, NULL, NULL, NULL) ||
			      s->sb.sb_status || dlm_ls_unlock_wait(space, s->sb.sb_lkid, 0, &s->sb);
		else
			bad = dlm_ls_lock(space, LKM_CRMODE, &s->sb, 0, "a", 1, 0, late, s, late, NULL) ||
			      dlm_ls_unlock(space, s->sb.sb_lkid, 0, &s->sb, s);
		if (bad && errno != EBADF && errno != ENOTCONN && errno != ENOTRECOVERABLE)
			t_fail("a call under close: %m");
		if (!bad)
			s = calloc(1, sizeof *s);
	}
	return NULL;
}

static void close_under_callers(void)
{
	dlm_lshandle_t other = t_create();
	pthread_t thread;
	int round;

	for (round = 0; round < t_scaled(5, 100); round++) {
		closed = waiting = 0;
		space = t_open(t_space_name());
		t_threaded(space);
		CHECK(!pthread_create(&thread, NULL, closer, NULL), "thread");
		all_threads(call_until_closed);
		pthread_join(thread, NULL);
		CHECK(t_is_free(other, LKM_EXMODE, "w"), "a lock is left");
		CHECK(t_is_free(other, LKM_EXMODE, "a"), "a lock is left");
		EQUAL(after_close, 0, "callbacks after close had returned");
	}
	t_release(other);
}

/* ---------------------------------------------------------------- a thread that forgets */
static void *take_and_end(void *arg)
{
	*(int *)arg = t_wait_lock(space, &a.sb, LKM_EXMODE, 0, "n");
	return NULL;
}

static void *give_back(void *arg)
{
	*(int *)arg = t_wait_unlock(space, &a.sb, 0);
	return NULL;
}

static int in_a_thread(void *(*fn)(void *))
{
	pthread_t t;
	int result = -1;

	CHECK(!pthread_create(&t, NULL, fn, &result), "thread");
	pthread_join(t, NULL);
	return result;
}

/* The lock of a thread that ended is held, can be spotted, and any other thread can drop it. */
static void thread_ends(void)
{
	dlm_lshandle_t probe = t_create();
	char *text, mine[40];
	int code;

	space = t_open(t_space_name());
	t_threaded(space);
	EQUAL(in_a_thread(take_and_end), 0, "a request");
	CHECK(!t_is_free(probe, LKM_CRMODE, "n"), "the lock went with its thread");
	if (t_has_tool()) {
		text = t_squeeze(t_tool(&code, "lock --json %s n", t_space_name()));
		snprintf(mine, sizeof mine, "\"pid\":%d", (int)getpid());
		CHECK(!code && strstr(text, mine), "the holder is not listed: %s", text);
		free(text);
	}
	EQUAL(in_a_thread(give_back), EUNLOCK, "unlock by another thread");
	CHECK(t_is_free(probe, LKM_EXMODE, "n"), "the lock is still held");
	EQUAL(dlm_close_lockspace(space), 0, "close");
	t_release(probe);
}

/* One id, unlocked by two threads at once: one succeeds, the other is told. */
static struct { struct t_lock l; volatile int good, gone; } twice;

static void *unlock_twice(void *arg)
{
	struct dlm_lksb sb = {0};

	(void)arg;
	pthread_barrier_wait(&together);
	errno = 0;
	if (!dlm_ls_unlock(space, twice.l.sb.sb_lkid, 0, &sb, &twice.l))
		__sync_fetch_and_add(&twice.good, 1);
	else if (errno == ENOENT)
		__sync_fetch_and_add(&twice.gone, 1);
	pthread_barrier_wait(&together);
	WAIT_UNTIL(twice.l.asts == 2);
	pthread_barrier_wait(&together);
	return NULL;
}

static void unlock_by_two(void)
{
	int round;

	space = t_create();
	t_threaded(space);
	for (round = 0; round < t_scaled(10, 300); round++) {
		twice.good = twice.gone = 0;
		ACCEPTED(t_try_lock(&twice.l, space, LKM_EXMODE, 0, "n"));
		WAIT_UNTIL(twice.l.asts == 1);
		pthread_barrier_init(&together, NULL, THREADS);
		all_threads(unlock_twice);
		pthread_barrier_destroy(&together);
		EQUAL(twice.good, 1, "unlocks that were accepted");
		EQUAL(twice.gone, THREADS - 1, "unlocks that were told ENOENT");
	}
	t_release(space);
}

static const struct t_test tests[] = {
	{"BL-070u", "of many unlocks of one id, one counts", unlock_by_two, 300},
	{"BL-097", "the lock of a thread that ended can be found and dropped", thread_ends, 0},
	{"BL-124d", "32 threads use the default lockspace first", default_first_use, 300},
	{"BL-124", "32 threads lock, convert, cancel and dispatch on one handle", one_handle, 300},
	{"id-at-return", "a new lock's id is there when the call returns", id_at_return, 300},
	{"cb-helper", "no callback on a foreign thread, with a helper", callbacks_on_helper, 300},
	{"cb-dispatch", "no callback on a foreign thread, by dispatch", callbacks_in_dispatch, 300},
	{"BL-077", "a blocking call does not wait for slow callbacks", wait_beside_slow_callbacks, 300},
	{"BL-124w", "32 threads block on one handle", one_handle_waiting, 300},
	{"BL-124c", "close from another thread ends the waits", close_under_waiters, 300},
	{"BL-124x", "close from another thread under calls", close_under_callers, 300},
};
T_MAIN(tests)
