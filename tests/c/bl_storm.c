/*
 * Many operations at once, many clients, sudden deaths: nobody overlaps, nobody stalls, nothing is
 * left (bug-log.md). DLM_TEST_SCALE=100 makes the full counts.
 * @test libs=dlm,lt timeout=900
 */
#include "t.h"
#include <sched.h>
#include <semaphore.h>

static struct t_lock a;

/* ---------------------------------------------------------------- give and take on notice */
struct give { volatile int total, finished; int want; };
static struct give *give;

static void giver(int fd, void *arg)
{
	int me = (int)(long)arg, i, before, others;
	dlm_lshandle_t ls = t_open(t_space_name());

	t_put(fd, 'o');
	t_expect(&(struct t_proc){.fd = fd}, 'g');
	for (i = 0; i < give->want; i++) {
		t_lock(&a, ls, LKM_EXMODE, 0, "n");
		before = give->total;
		EQUAL(t_done(&a), 0, "a request for EX");
		EQUAL(a.early, 0, "blocking notices before the grant");
		/* two are ahead in line at most, and two may not have counted theirs yet */
		others = __sync_fetch_and_add(&give->total, 1) - before;
		CHECK(others <= 4, "client %d: %d grants went by", me, others);
		PUMP_UNTIL(ls, a.basts || give->finished == 2);
		t_drop(&a);
	}
	__sync_fetch_and_add(&give->finished, 1);
	dlm_close_lockspace(ls);
	t_put(fd, 'd');
}

static void no_livelock(void)
{
	dlm_lshandle_t ls = t_create();
	struct t_proc p[3];
	long i;

	give = t_shared(sizeof *give);
	give->want = t_scaled(100, 334);
	for (i = 0; i < 3; i++)
		p[i] = t_spawn(giver, (void *)i);
	for (i = 0; i < 3; i++)
		t_expect(&p[i], 'o');
	for (i = 0; i < 3; i++)
		t_put(p[i].fd, 'g');
	for (i = 0; i < 3; i++) {
		t_expect(&p[i], 'd');
		t_join(&p[i]);
	}
	t_release(ls);
}

/* ---------------------------------------------------------------- cancel right behind a request */
static struct {
	dlm_lshandle_t ls;
	sem_t go, done;
	volatile int stop, result, err;
} canceller;

static void *cancel_soon(void *arg)
{
	for (;;) {
		sem_wait(&canceller.go);
		if (canceller.stop)
			return arg;
		t_sleep_us(t_random() % 500);
		errno = 0;
		canceller.result = dlm_ls_unlock(canceller.ls, a.sb.sb_lkid, LKF_CANCEL, &a.sb, &a);
		canceller.err = errno;
		sem_post(&canceller.done);
	}
}

static void cancel_round(dlm_lshandle_t ls, int held)
{
	int over = 0;

	t_lock(&a, ls, LKM_EXMODE, 0, "n");
	sem_post(&canceller.go);
	while (!over) {
		t_pump(ls, 1);
		over = !sem_trywait(&canceller.done);
	}
	if (held) {
		EQUAL(canceller.result, 0, "cancel of a waiting request");
		EQUAL(t_done(&a), ECANCEL, "a cancelled request");
	} else {
		EQUAL(canceller.result, 0, "cancel of a granted lock");
		EQUAL(t_done(&a), 0, "a request for a free lock");
		t_drop(&a);
	}
	t_settle(ls);
	EQUAL(a.asts, a.seen, "completions of one request");
}

static void cancel_behind_request(void)
{
	dlm_lshandle_t ls = t_create();
	struct t_proc p = t_agent(t_space_name());
	int rounds = t_scaled(300, 20000), i;
	pthread_t thread;

	canceller.ls = ls;
	sem_init(&canceller.go, 0, 0);
	sem_init(&canceller.done, 0, 0);
	CHECK(!pthread_create(&thread, NULL, cancel_soon, NULL), "thread");
	for (i = 0; i < rounds; i++) {
		t_step("round %d of %d", i, rounds);
		cancel_round(ls, 0);
		t_agent_get(&p, 0, LKM_EXMODE, 0, "n");
		cancel_round(ls, 1);
		t_agent_drop(&p, 0);
	}
	canceller.stop = 1;
	sem_post(&canceller.go);
	pthread_join(thread, NULL);
	t_agent_end(&p);
	t_release(ls);
}

/* ---------------------------------------------------------------- try-locks and kill -9 */
#define NAMES 300
#define LIVES 20000
static struct trial {
	volatile int stop;
	volatile int owner[NAMES];	/* which life holds the name, 0 = nobody */
	volatile char doomed[LIVES];	/* this life is being killed */
	volatile long tries, grants;
} *trial;

static void enter(int name, int life)
{
	int before = __sync_val_compare_and_swap(&trial->owner[name], 0, life);

	if (!before)
		return;
	CHECK(trial->doomed[before], "lives %d and %d hold name %d at once", before, life, name);
	trial->owner[name] = life;
}

static void try_for_ever(int fd, void *arg)
{
	int life = (int)(long)arg, name;
	dlm_lshandle_t ls = t_open(t_space_name());
	char text[8];

	(void)fd;
	while (!trial->stop) {
		name = t_random() % NAMES;
		snprintf(text, sizeof text, "n%d", name);
		t_lock(&a, ls, LKM_EXMODE, LKF_NOQUEUE, text);
		trial->tries++;
		if (t_done(&a)) {
			EQUAL(a.status, EAGAIN, "a refused try");
			continue;
		}
		enter(name, life);
		trial->grants++;
		if (t_random() % 10 == 0)
			t_sleep_us(5000);
		trial->owner[name] = 0;
		t_drop(&a);
	}
}

static void try_locks(void)
{
	dlm_lshandle_t ls = t_create();
	int workers = t_scaled(20, 100), life = 0, i, k;
	long end = t_now() + t_scaled(2000, 120000);
	struct t_proc *p = calloc(workers, sizeof *p);
	int *lives = calloc(workers, sizeof *lives), before;
	pid_t daemon = t_daemon_pid();
	char name[8];

	before = t_descriptors(daemon);
	trial = t_shared(sizeof *trial);
	for (i = 0; i < workers; i++) {
		lives[i] = ++life;
		p[i] = t_spawn(try_for_ever, (void *)(long)life);
	}
	while (t_now() < end && life < LIVES - 1) {
		t_step("%d lives", life);
		t_sleep_us(t_random() % 20000);
		k = t_random() % workers;
		trial->doomed[lives[k]] = 1;
		t_kill(&p[k]);
		lives[k] = ++life;
		p[k] = t_spawn(try_for_ever, (void *)(long)life);
	}
	trial->stop = 1;
	for (i = 0; i < workers; i++)
		t_join(&p[i]);
	CHECK(trial->grants > 0, "%ld grants of %ld tries", trial->grants, trial->tries);
	for (i = 0; i < NAMES; i++) {	/* waits for those of the last killed */
		snprintf(name, sizeof name, "n%d", i);
		t_get(&a, ls, LKM_EXMODE, 0, name);
		t_drop(&a);
	}
	if (daemon)
		WAIT_UNTIL(t_descriptors(daemon) <= before);
	free(lives);
	free(p);
	t_release(ls);
}

/* ---------------------------------------------------------------- hand-overs by blocking calls */
static volatile int *inside;

static void hand_over(int fd, void *arg)
{
	dlm_lshandle_t ls = t_open(t_space_name());
	struct dlm_lksb sb = {0};
	int rounds = (int)(long)arg, i;

	t_threaded(ls);
	for (i = 0; i < rounds; i++) {
		EQUAL(t_wait_lock(ls, &sb, LKM_EXMODE, 0, "n"), 0, "a blocking request");
		CHECK(__sync_fetch_and_add(inside, 1) == 0, "two holders of EX");
		__sync_fetch_and_sub(inside, 1);
		EQUAL(t_wait_unlock(ls, &sb, 0), EUNLOCK, "a blocking unlock");
		if (i % 64 == 0)
			t_put(fd, '.');
	}
	EQUAL(dlm_close_lockspace(ls), 0, "close");
	t_put(fd, 'd');
}

/* Starts clients and waits for their signs of life; the test fails when one is silent for long. */
static void watch(int n, void (*fn)(int, void *), long rounds)
{
	struct t_proc p[3];
	int i, left = n;
	char c;

	for (i = 0; i < n; i++)
		p[i] = t_spawn(fn, (void *)rounds);
	while (left) {
		for (i = 0; i < n; i++) {
			if (p[i].fd < 0 || (c = t_get_byte(p[i].fd)) == '.')
				continue;
			CHECK(c == 'd', "a client ended early");
			t_join(&p[i]);
			left--;
		}
	}
}

static void no_lost_wakeup(void)
{
	dlm_lshandle_t ls = t_create();

	inside = t_shared(sizeof *inside);
	watch(2, hand_over, t_scaled(5000, 500000));
	t_release(ls);
}

/* The same by poll and dispatch, with two locks, each given back as soon as it is granted: so that
 * completions come singly and in pairs. One that comes while a dispatch is about to return must not
 * be overlooked. */
static void at_once(struct t_lock *l)
{
	if (!l->asts)		/* counted after this returns */
		t_unlock(l, 0);
}

static void hand_over_by_poll(int fd, void *arg)
{
	static struct t_lock l[2] = {{.on_ast = at_once}, {.on_ast = at_once}};
	dlm_lshandle_t ls = t_open(t_space_name());
	int rounds = (int)(long)arg, i;
	struct pollfd p = {.fd = dlm_ls_get_fd(ls), .events = POLLIN};

	for (i = 0; i < rounds; i++) {
		t_lock(&l[0], ls, LKM_EXMODE, 0, "x");
		t_lock(&l[1], ls, LKM_EXMODE, 0, "y");
		while (l[0].asts < 2 || l[1].asts < 2) {
			EQUAL(poll(&p, 1, T_GUARD_MS), 1, "poll: a completion is overlooked");
			ACCEPTED(dlm_dispatch(p.fd));
		}
		if (i % 64 == 0)
			t_put(fd, '.');
	}
	EQUAL(dlm_close_lockspace(ls), 0, "close");
	t_put(fd, 'd');
}

static void no_lost_event(void)
{
	dlm_lshandle_t ls = t_create();

	watch(3, hand_over_by_poll, t_scaled(5000, 300000));
	t_release(ls);
}

/* ---------------------------------------------------------------- names come and go */
static void memory_follows_locks(void)
{
	dlm_lshandle_t ls = t_create();
	int names = t_scaled(40000, 2000000), i;
	pid_t daemon = t_daemon_pid();
	long first = 0, mine = 0, last;
	char name[32];

	for (i = 0; i < names; i++) {
		if (i == names / 4) {
			first = t_resident_kb(daemon);
			mine = t_resident_kb(getpid());
		}
		snprintf(name, sizeof name, "a name used once %d", i);
		t_get(&a, ls, LKM_EXMODE, 0, name);
		t_drop(&a);
	}
	last = t_resident_kb(getpid());
	CHECK(last <= mine + mine / 5 + 1024, "client: %ld kB after %d names, %ld kB after %d", mine,
	      names / 4, last, names);
	if (daemon) {
		last = t_resident_kb(daemon);
		CHECK(last <= first + first / 5 + 2048, "daemon: %ld kB after %d, %ld kB after %d",
		      first, names / 4, last, names);
	}
	if (t_has_tool()) {
		char *json = t_squeeze(t_tool(&i, "ls --json %s", t_space_name()));

		CHECK(strstr(json, "\"resources\":0"), "names are still in memory: %s", json);
		free(json);
	}
	t_release(ls);
}

/* ---------------------------------------------------------------- short lives */
static void short_life(int fd, void *arg)
{
	static struct t_lock l[10];
	int number = (int)(long)arg, i;
	dlm_lshandle_t ls = t_open(t_space_name());
	char name[24];

	for (i = 0; i < 10; i++) {
		snprintf(name, sizeof name, "s%d", (number * 7 + i) % 40);
		t_lock(&l[i], ls, i & 1 ? LKM_PRMODE : LKM_EXMODE, 0, name);
	}
	if (number & 1)
		_exit(0);
	t_put(fd, 'k');
	pause();
}

static void short_lives(void)
{
	dlm_lshandle_t ls = t_create();
	int lives = t_scaled(300, 20000), before, i, k;
	pid_t daemon = t_daemon_pid();
	long memory = t_resident_kb(daemon);
	struct t_proc p[8];
	char name[24];

	before = t_descriptors(daemon);
	for (i = 0; i < lives; i += 8) {
		t_step("life %d of %d", i, lives);
		for (k = 0; k < 8; k++)
			p[k] = t_spawn(short_life, (void *)(long)(i + k));
		for (k = 0; k < 8; k++)
			if ((i + k) & 1)
				t_join(&p[k]);
			else {
				t_expect(&p[k], 'k');
				t_kill(&p[k]);
			}
	}
	for (i = 0; i < 40; i++) {
		snprintf(name, sizeof name, "s%d", i);
		t_get(&a, ls, LKM_EXMODE, 0, name);
		t_drop(&a);
	}
	if (daemon)
		WAIT_UNTIL(t_descriptors(daemon) <= before);
	CHECK(t_resident_kb(daemon) <= memory * 2 + 4096, "daemon: %ld kB, before %ld kB",
	      t_resident_kb(daemon), memory);
	t_release(ls);
}

/* ---------------------------------------------------------------- unlock and be gone */
static void unlock_and_go(int fd, void *arg)
{
	static struct t_lock l[3];
	dlm_lshandle_t ls = t_open(t_space_name());
	int i;

	(void)fd;
	(void)arg;
	for (i = 0; i < 3; i++)
		t_get(&l[i], ls, LKM_EXMODE, 0, i == 0 ? "x" : i == 1 ? "y" : "z");
	for (i = 0; i < 3; i++)
		t_unlock(&l[i], 0);
	_exit(0);
}

static void unlock_then_exit(void)
{
	dlm_lshandle_t ls = t_create();
	int rounds = t_scaled(300, 10000), i, k;
	struct t_proc p[2];

	for (i = 0; i < rounds; i++) {
		t_step("round %d of %d", i, rounds);
		for (k = 0; k < 2; k++)
			p[k] = t_spawn(unlock_and_go, NULL);
		for (k = 0; k < 2; k++)
			t_join(&p[k]);
	}
	for (i = 0; i < 3; i++) {
		t_get(&a, ls, LKM_EXMODE, 0, i == 0 ? "x" : i == 1 ? "y" : "z");
		t_drop(&a);
	}
	t_release(ls);
}

/* ---------------------------------------------------------------- two at once on a new name */
static struct race { volatile int arrived, inside; } *races;

static void racer(int fd, void *arg)
{
	int rounds = (int)(long)arg, i;
	dlm_lshandle_t ls = t_open(t_space_name());
	char name[24];

	for (i = 0; i < rounds; i++) {
		snprintf(name, sizeof name, "new%d", i);
		__sync_fetch_and_add(&races[i].arrived, 1);
		while (races[i].arrived < 2)
			sched_yield();
		t_lock(&a, ls, LKM_EXMODE, 0, name);
		EQUAL(t_done(&a), 0, "one of two requests");
		CHECK(__sync_fetch_and_add(&races[i].inside, 1) == 0, "two holders of %s", name);
		__sync_fetch_and_sub(&races[i].inside, 1);
		t_drop(&a);
	}
	dlm_close_lockspace(ls);
	t_put(fd, 'd');
}

static void two_at_once(void)
{
	dlm_lshandle_t ls = t_create();
	long rounds = t_scaled(500, 10000);
	struct t_proc p[2];
	int i;

	races = t_shared(rounds * sizeof *races);
	for (i = 0; i < 2; i++)
		p[i] = t_spawn(racer, (void *)rounds);
	for (i = 0; i < 2; i++) {
		t_expect(&p[i], 'd');
		t_join(&p[i]);
	}
	t_release(ls);
}

static const struct t_test tests[] = {
	{"BL-034", "a lock given back on notice goes round", no_livelock, 300},
	{"BL-037", "cancel right behind its request", cancel_behind_request, 300},
	{"BL-076", "try-locks without pause and kill -9", try_locks, 300},
	{"BL-084", "memory follows the locks, not the names ever used", memory_follows_locks, 900},
	{"BL-087", "hand-overs by blocking calls", no_lost_wakeup, 900},
	{"BL-087p", "hand-overs by poll and dispatch", no_lost_event, 900},
	{"BL-089", "short-lived clients leave nothing", short_lives, 900},
	{"BL-090", "unlock and _exit at once", unlock_then_exit, 900},
	{"BL-115", "two requests for a new name in one moment", two_at_once, 300},
};
T_MAIN(tests)
