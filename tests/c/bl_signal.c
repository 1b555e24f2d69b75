/*
 * Signals with handlers, without SA_RESTART, during calls: a wait goes on, nothing is lost
 * (bug-log.md).
 * @test libs=dlm,lt
 */
#include "t.h"
#include <sys/time.h>

static struct t_lock held[100], a;
static volatile int handled;

static void on_signal(int number)
{
	(void)number;
	handled++;
}

static void handle(int number)
{
	struct sigaction act = {.sa_handler = on_signal};

	sigaction(number, &act, NULL);
}

/* Holds the name, signals its parent for a while, gives the name back, ends (SIGCHLD). */
static void pester(int fd, void *arg)
{
	static const int kinds[] = {SIGUSR1, SIGUSR2, SIGWINCH, SIGIO};
	struct itimerval off = {0};
	dlm_lshandle_t ls;
	int i;

	(void)arg;
	setitimer(ITIMER_REAL, &off, NULL);
	ls = t_open(t_space_name());
	t_get(&a, ls, LKM_EXMODE, 0, "one more");
	t_put(fd, 'h');
	t_sleep_us(5000);
	for (i = 0; i < 40; i++) {
		kill(getppid(), kinds[i % 4]);
		t_sleep_us(1500);
	}
	t_drop(&a);
	EQUAL(dlm_close_lockspace(ls), 0, "close");
}

static void during_wait(void)
{
	struct itimerval often = {{0, 3000}, {0, 3000}};
	dlm_lshandle_t ls = t_create(), probe = t_open(t_space_name());
	struct dlm_lksb sb = {0};
	struct t_proc p;
	char name[16];
	int i;

	handle(SIGUSR1);
	handle(SIGUSR2);
	handle(SIGWINCH);
	handle(SIGIO);
	handle(SIGALRM);
	handle(SIGCHLD);
	for (i = 0; i < 100; i++) {
		snprintf(name, sizeof name, "held%d", i);
		t_get(&held[i], probe, LKM_EXMODE, 0, name);
	}
	p = t_spawn(pester, NULL);
	t_expect(&p, 'h');
	t_threaded(ls);
	setitimer(ITIMER_REAL, &often, NULL);
	EQUAL(t_wait_lock(ls, &sb, LKM_EXMODE, 0, "one more"), 0, "a request under signals");
	EQUAL(t_wait_unlock(ls, &sb, 0), EUNLOCK, "an unlock under signals");
	for (i = 0; i < 200; i++) {
		EQUAL(t_wait_lock(ls, &sb, LKM_EXMODE, 0, "x"), 0, "a request under signals");
		EQUAL(t_wait_unlock(ls, &sb, 0), EUNLOCK, "an unlock under signals");
	}
	often.it_value.tv_usec = 0;
	setitimer(ITIMER_REAL, &often, NULL);
	t_join(&p);
	CHECK(handled >= 5, "only %d signals were handled", handled);
	EQUAL(dlm_close_lockspace(ls), 0, "close");
	ls = t_open(t_space_name());
	for (i = 0; i < 100; i++) {
		snprintf(name, sizeof name, "held%d", i);
		CHECK(!t_is_free(ls, LKM_CRMODE, name), "%s was lost", name);
		t_drop(&held[i]);
	}
	EQUAL(dlm_close_lockspace(probe), 0, "close");
	t_release(ls);
}

/* Opening and creating under signals. */
static void during_open(void)
{
	struct itimerval often = {{0, 700}, {0, 700}}, off = {{0, 0}, {0, 0}};
	int rounds = t_scaled(200, 5000), i;

	handle(SIGALRM);
	setitimer(ITIMER_REAL, &often, NULL);
	for (i = 0; i < rounds; i++) {
		dlm_lshandle_t ls = t_create(), other = t_open(t_space_name());

		t_get(&a, ls, LKM_EXMODE, 0, "n");
		EQUAL(dlm_close_lockspace(other), 0, "close");
		t_release(ls);
	}
	setitimer(ITIMER_REAL, &off, NULL);
}

static const struct t_test tests[] = {
	{"BL-026", "signals do not end a wait and drop no lock", during_wait, 0},
	{"BL-026o", "signals do not spoil open, create, close, release", during_open, 0},
};
T_MAIN(tests)
