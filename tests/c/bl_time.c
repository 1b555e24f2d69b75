/*
 * Time limits, failures of requests, and what they leave in the queue: nothing (bug-log.md, D12).
 * @test libs=dlm,lt
 */
#include "t.h"

static struct t_lock a, b, c;

/* After each way to fail the queue has no entry of it and the next request is served. */
static void nothing_left(dlm_lshandle_t ls, const char *how)
{
	t_step("after: %s", how);
	t_regrant(&a, LKM_NLMODE, 0);
	CHECK(t_is_free(ls, LKM_EXMODE, "n"), "the queue is not empty after: %s", how);
	t_regrant(&a, LKM_PRMODE, 0);
}

static void failures_leave_nothing(void)
{
	dlm_lshandle_t ls = t_create(), other;
	struct t_proc p;

	t_get(&a, ls, LKM_PRMODE, 0, "n");
	ACCEPTED(t_try_timed(&b, ls, LKM_EXMODE, 0, "n", 2));
	EQUAL(t_done(&b), ETIMEDOUT, "a request with a time limit");
	nothing_left(ls, "time limit");
	t_lock(&b, ls, LKM_EXMODE, 0, "n");
	t_unlock(&b, LKF_CANCEL);
	EQUAL(t_done(&b), ECANCEL, "a cancelled request");
	nothing_left(ls, "cancel");
	t_lock(&b, ls, LKM_EXMODE, LKF_NOQUEUE, "n");
	EQUAL(t_done(&b), EAGAIN, "a NOQUEUE request");
	nothing_left(ls, "NOQUEUE");
	t_lock(&b, ls, LKM_EXMODE, LKF_NOQUEUE | LKF_NOQUEUEBAST, "n");
	EQUAL(t_done(&b), EAGAIN, "a NOQUEUEBAST request");
	nothing_left(ls, "NOQUEUEBAST");
	REFUSED(t_try_lock(&b, ls, 6, 0, "n"), EINVAL);
	REFUSED(t_try_lock(&b, ls, LKM_EXMODE, LKF_CANCEL, "n"), EINVAL);
	REFUSED(t_try_lock(&b, ls, LKM_EXMODE, LKF_EXPEDITE, "n"), EINVAL);
	nothing_left(ls, "bad flags");
	t_lock(&b, ls, LKM_EXMODE, 0, "n");
	t_unlock(&b, LKF_FORCEUNLOCK);
	EQUAL(t_done(&b), EUNLOCK, "a waiting request, unlocked by force");
	nothing_left(ls, "forced unlock");
	t_lock(&b, ls, LKM_EXMODE, 0, "n");
	ACCEPTED(dlm_ls_deadlock_cancel(ls, b.sb.sb_lkid, 0));
	EQUAL(t_done(&b), EDEADLK, "a request ended by a deadlock cancel");
	nothing_left(ls, "deadlock cancel");
	other = t_open(t_space_name());
	t_lock(&b, other, LKM_EXMODE, 0, "n");
	EQUAL(dlm_close_lockspace(other), 0, "close");
	nothing_left(ls, "handle closed");
	p = t_agent(t_space_name());
	EQUAL(t_agent_lock(&p, 0, LKM_EXMODE, 0, "n").ret, 0, "an agent's request");
	t_kill_seen(&p, ls);
	nothing_left(ls, "owner killed");
	t_drop(&a);
	t_release(ls);
}

static void conversions_leave_nothing(void)
{
	dlm_lshandle_t ls = t_create();

	t_get(&a, ls, LKM_PRMODE, 0, "n");
	t_get(&b, ls, LKM_PRMODE, 0, "n");
	ACCEPTED(t_try_timed(&b, ls, LKM_EXMODE, LKF_CONVERT, "", 2));
	EQUAL(t_done(&b), ETIMEDOUT, "a conversion with a time limit");
	CHECK(t_is_free(ls, LKM_PRMODE, "n"), "the conversion still stands in the queue");
	CHECK(!t_is_free(ls, LKM_CWMODE, "n"), "the old mode is gone");
	t_convert(&b, LKM_EXMODE, LKF_NOQUEUE);
	EQUAL(t_done(&b), EAGAIN, "a NOQUEUE conversion");
	CHECK(t_is_free(ls, LKM_PRMODE, "n"), "the conversion still stands in the queue");
	t_convert(&b, LKM_EXMODE, 0);
	REFUSED(t_try_convert(&b, LKM_NLMODE, 0), EBUSY);
	t_convert(&a, LKM_EXMODE, 0);
	EQUAL(t_done(&a), EDEADLK, "the second upgrade");
	t_unlock(&b, LKF_CANCEL);
	EQUAL(t_done(&b), ECANCEL, "the cancelled conversion");
	t_unlock(&b, LKF_CANCEL);	/* nothing to cancel any more (D5) */
	CHECK(t_is_free(ls, LKM_PRMODE, "n"), "a conversion still stands in the queue");
	t_drop(&a);
	t_regrant(&b, LKM_EXMODE, 0);
	t_drop(&b);
	t_release(ls);
}

/* Many limits end together; nobody stays in line. */
static void limits_of_many(void)
{
	static struct t_lock w[50];
	dlm_lshandle_t ls = t_create();
	int i;

	t_get(&a, ls, LKM_EXMODE, 0, "n");
	for (i = 0; i < 50; i++)
		ACCEPTED(t_try_timed(&w[i], ls, i % 3 ? LKM_EXMODE : LKM_PRMODE, 0, "n", 1 + i % 20));
	for (i = 0; i < 50; i++) {
		EQUAL(t_done(&w[i]), ETIMEDOUT, "a request behind a holder that stays");
		REFUSED(t_try_unlock(&w[i], 0), ENOENT);
	}
	t_lock(&b, ls, LKM_EXMODE, 0, "n");
	t_settle(ls);
	EQUAL(b.asts, 0, "grants beside the holder");
	t_drop(&a);
	EQUAL(t_done(&b), 0, "a new request, once the holder went");
	t_drop(&b);
	t_release(ls);
}

/* Grant, unlock and the end of the limit fall together; it never hits what comes later. */
static void limit_races_grant(void)
{
	dlm_lshandle_t ls = t_create();
	struct t_lock *w = &b;
	int rounds = t_scaled(100, 5000), granted = 0, late = 0, i;

	for (i = 0; i < rounds; i++) {
		t_get(&a, ls, LKM_EXMODE, 0, "n");
		ACCEPTED(t_try_timed(w, ls, LKM_EXMODE, 0, "n", 1));
		t_sleep_us(9000 + t_random() % 2000);
		t_drop(&a);
		if (t_done(w) == 0) {
			granted++;
			ACCEPTED(t_try_timed(w, ls, LKM_PRMODE, LKF_CONVERT, "", 1));
			EQUAL(t_done(w), 0, "a conversion right after the grant");
			t_sleep_us(t_random() % 4000);
			t_regrant(w, LKM_EXMODE, 0);
			t_drop(w);
		} else {
			late++;
			EQUAL(w->status, ETIMEDOUT, "a request that was not granted");
			REFUSED(t_try_convert(w, LKM_PRMODE, 0), ENOENT);
		}
		EQUAL(w->asts, w->seen, "completions of one request");
		CHECK(t_is_free(ls, LKM_EXMODE, "n"), "round %d left something", i);
	}
	t_step("%d granted, %d too late", granted, late);
	t_release(ls);
}

/* A limit belongs to one operation: after the grant it is gone. */
static void limit_ends_with_grant(void)
{
	dlm_lshandle_t ls = t_create();

	ACCEPTED(t_try_timed(&a, ls, LKM_PRMODE, 0, "n", 1));
	EQUAL(t_done(&a), 0, "a free lock with a limit");
	t_get(&b, ls, LKM_PRMODE, 0, "n");
	t_convert(&a, LKM_EXMODE, 0);	/* no limit: waits although the old limit's time passes */
	t_sleep_us(60000);
	t_settle(ls);
	EQUAL(a.asts, 1, "completions of a conversion without a limit");
	t_drop(&b);
	EQUAL(t_done(&a), 0, "the conversion");
	t_drop(&a);
	t_step("a limit of 0 is none");
	t_get(&a, ls, LKM_EXMODE, 0, "n");
	ACCEPTED(t_try_timed(&b, ls, LKM_EXMODE, 0, "n", 0));
	t_sleep_us(30000);
	t_settle(ls);
	EQUAL(b.asts, 0, "completions of a request without a limit");
	t_drop(&a);
	EQUAL(t_done(&b), 0, "the request");
	t_drop(&b);
	t_release(ls);
}

/* A cancel and an unlock end the limit too. */
static void limit_ends_with_cancel(void)
{
	dlm_lshandle_t ls = t_create();
	int i;

	t_get(&a, ls, LKM_EXMODE, 0, "n");
	for (i = 0; i < 50; i++) {
		ACCEPTED(t_try_timed(&b, ls, LKM_EXMODE, 0, "n", 1));
		if (t_try_unlock(&b, i & 1 ? LKF_CANCEL : 0))
			EQUAL(errno, ENOENT, "errno of an unlock that lost the race");
		t_done(&b);
		CHECK(b.status == ETIMEDOUT || b.status == (i & 1 ? ECANCEL : EUNLOCK),
		      "status %s", t_name(b.status));
	}
	t_sleep_us(30000);
	t_settle(ls);
	EQUAL(b.asts, 1, "completions of the last one");
	t_drop(&a);
	CHECK(t_is_free(ls, LKM_EXMODE, "n"), "something is left");
	t_release(ls);
}

/* Three programs, three names in rotated order: limits end each round, nobody stays stuck. */
static void cycle(int fd, void *arg)
{
	static const char *names[] = {"1", "2", "3"};
	static struct t_lock l[3];
	int me = (int)(long)arg, rounds = t_scaled(30, 500), won = 0, i, k, status;
	dlm_lshandle_t ls = t_open(t_space_name());

	for (i = 0; i < rounds; i++) {
		for (k = 0; k < 3; k++) {
			const char *name = names[(me + k) % 3];

			ACCEPTED(t_try_timed(&l[k], ls, LKM_EXMODE, 0, name, 1 + t_random() % 3));
			status = t_done(&l[k]);
			if (status)
				break;
		}
		if (k == 3)
			won++;
		else
			EQUAL(status, ETIMEDOUT, "a request in a cycle");
		while (k-- > 0)
			t_drop(&l[k]);
	}
	t_step("client %d had all three %d times of %d", me, won, rounds);
	t_put(fd, 'd');
	dlm_close_lockspace(ls);
}

static void three_in_a_circle(void)
{
	dlm_lshandle_t ls = t_create();
	struct t_proc p[3];
	long i;

	for (i = 0; i < 3; i++)
		p[i] = t_spawn(cycle, (void *)i);
	for (i = 0; i < 3; i++) {
		t_expect(&p[i], 'd');
		t_join(&p[i]);
	}
	CHECK(t_is_free(ls, LKM_EXMODE, "1") && t_is_free(ls, LKM_EXMODE, "2") &&
	      t_is_free(ls, LKM_EXMODE, "3"), "something is left");
	t_release(ls);
}

/* One process asks twice for the same name: two locks; the second waits, and a limit works. */
static void waits_for_itself(void)
{
	dlm_lshandle_t ls = t_create();
	char mine[40], *text;
	int code;

	t_get(&a, ls, LKM_EXMODE, 0, "n");
	t_lock(&b, ls, LKM_EXMODE, 0, "n");
	t_settle(ls);
	EQUAL(b.asts, 0, "completions of the second request");
	CHECK(a.sb.sb_lkid != b.sb.sb_lkid, "two requests share an id");
	if (t_has_tool()) {
		text = t_squeeze(t_tool(&code, "lock --json %s n", t_space_name()));
		EQUAL(code, 0, "exit code of lock --json");
		snprintf(mine, sizeof mine, "\"pid\":%d", (int)getpid());
		CHECK(t_count(text, mine) >= 2, "holder and waiter with one pid: %s", text);
		CHECK(strstr(text, "\"self_blocking\":[{"), "nothing warns of it: %s", text);
		free(text);
	}
	ACCEPTED(t_try_timed(&c, ls, LKM_EXMODE, 0, "n", 2));
	EQUAL(t_done(&c), ETIMEDOUT, "a third one, with a limit");
	t_drop(&a);
	EQUAL(t_done(&b), 0, "the second, after the first");
	t_drop(&b);
	t_release(ls);
}

/* A stopped holder harms nobody else, and limits work against it. */
static void stopped_client(void)
{
	dlm_lshandle_t ls = t_create();
	struct t_proc p = t_agent(t_space_name());
	char *text;
	int code, i;

	t_agent_get(&p, 0, LKM_EXMODE, 0, "n");
	kill(p.pid, SIGSTOP);
	t_lock(&a, ls, LKM_EXMODE, 0, "n");
	for (i = 0; i < 20; i++) {	/* also more notices than it will ever read */
		ACCEPTED(t_try_timed(&b, ls, LKM_EXMODE, 0, "n", 1));
		EQUAL(t_done(&b), ETIMEDOUT, "a request with a limit behind a stopped holder");
	}
	CHECK(t_is_free(ls, LKM_EXMODE, "other"), "another name is not served");
	if (t_has_tool()) {
		text = t_tool(&code, "lock %s n", t_space_name());
		EQUAL(code, 0, "exit code of dlm_tool lock");
		CHECK(strstr(text, "told") || strstr(text, "notice"),
		      "the holder's line does not say that it was told: %s", text);
		free(text);
	}
	EQUAL(a.asts, 0, "completions of the waiter");
	kill(p.pid, SIGCONT);
	CHECK(t_agent_look(&p, 0).basts >= 1, "the notice is lost");
	t_agent_drop(&p, 0);
	EQUAL(t_done(&a), 0, "the waiter");
	t_drop(&a);
	t_agent_end(&p);
	t_release(ls);
}

/* Who holds it? Each asker is told node, pid, program, mode, age and the queue. */
static void who_holds_it(void)
{
	static const char *const keys[] = {"\"node\"", "\"pid\"", "\"program\"", "\"label\"",
					   "\"granted\"", "\"age"};
	dlm_lshandle_t ls = t_create();
	struct t_proc p = t_agent(t_space_name());
	char mine[40], theirs[40], *text;
	int code;
	unsigned i;

	t_agent_get(&p, 0, LKM_EXMODE, 0, "n");
	t_lock(&a, ls, LKM_PRMODE, 0, "n");
	text = t_squeeze(t_tool(&code, "lock --json %s n", t_space_name()));
	EQUAL(code, 0, "exit code of lock --json");
	snprintf(mine, sizeof mine, "\"pid\":%d", (int)getpid());
	snprintf(theirs, sizeof theirs, "\"pid\":%d", (int)p.pid);
	CHECK(strstr(text, mine) && strstr(text, theirs), "pids are missing: %s", text);
	for (i = 0; i < sizeof keys / sizeof keys[0]; i++)
		CHECK(strstr(text, keys[i]), "%s is missing: %s", keys[i], text);
	free(text);
	free(t_tool(&code, "lock %s nobody-uses-this", t_space_name()));
	EQUAL(code, 1, "exit code for a name that nobody uses");
	t_agent_drop(&p, 0);
	EQUAL(t_done(&a), 0, "the waiter");
	t_drop(&a);
	t_agent_end(&p);
	t_release(ls);
}

static const struct t_test tests[] = {
	{"BL-058", "dlm_tool tells who holds and who waits", who_holds_it, 0},
	{"BL-067", "each failed request leaves the queue", failures_leave_nothing, 0},
	{"BL-067c", "each failed conversion leaves the queue", conversions_leave_nothing, 0},
	{"BL-068", "fifty limits end, nobody stays in line", limits_of_many, 0},
	{"BL-068r", "a grant that meets the limit: one of the two", limit_races_grant, 300},
	{"BL-088", "a process that waits for itself can be spotted", waits_for_itself, 0},
	{"BL-112", "a stopped holder", stopped_client, 0},
	{"BL-116", "three locks in rotated order with limits", three_in_a_circle, 300},
	{"BL-125", "a limit ends with its own operation", limit_ends_with_grant, 0},
	{"BL-125c", "a limit ends with cancel and unlock", limit_ends_with_cancel, 0},
};
T_MAIN(tests)
