/*
 * Queues, conversions and blocking notices as several programs see them (bug-log.md): who is
 * granted, in which mode, in which order, and who is told.
 * @test libs=dlm,lt
 */
#include "t.h"

static struct t_lock a, b, c;

/* ALTPR and CONVDEADLK change the mode behind the caller's back; later calls must start from it. */
static void munged_modes(void)
{
	dlm_lshandle_t ls = t_create();

	t_get(&a, ls, LKM_PRMODE, 0, "alt");
	t_get(&b, ls, LKM_CWMODE, LKF_ALTPR, "alt");
	EQUAL(b.flags, DLM_SBF_ALTMODE, "sb_flags of a request granted in its alternative mode");
	CHECK(t_is_free(ls, LKM_PRMODE, "alt"), "two PR holders refuse a third");
	CHECK(!t_is_free(ls, LKM_CWMODE, "alt"), "the alternative mode is not PR");
	t_drop(&a);
	CHECK(t_is_free(ls, LKM_PRMODE, "alt"), "the alternative lock alone is not PR");
	CHECK(!t_is_free(ls, LKM_CWMODE, "alt"), "the alternative lock alone is not PR");
	t_regrant(&b, LKM_CRMODE, 0);
	EQUAL(b.flags, 0, "sb_flags after an ordinary conversion");
	CHECK(t_is_free(ls, LKM_PWMODE, "alt"), "the conversion down to CR did not reach the queue");
	t_drop(&b);

	t_get(&a, ls, LKM_PRMODE, 0, "demote");
	t_get(&b, ls, LKM_PRMODE, 0, "demote");
	t_convert(&a, LKM_EXMODE, 0);
	t_convert(&b, LKM_EXMODE, LKF_CONVDEADLK);
	EQUAL(t_done(&a), 0, "the first converter, once the second was demoted");
	EQUAL(b.asts, 1, "completions of the demoted converter while it waits");
	t_regrant(&a, LKM_NLMODE, 0);
	EQUAL(t_done(&b), 0, "the demoted converter");
	EQUAL(b.flags, DLM_SBF_DEMOTED, "sb_flags of the demoted converter");
	t_regrant(&b, LKM_PRMODE, 0);
	CHECK(t_is_free(ls, LKM_PRMODE, "demote"), "the demoted lock did not come down to PR");
	CHECK(!t_is_free(ls, LKM_CWMODE, "demote"), "the demoted lock is not held in PR");
	t_drop(&b);
	t_drop(&a);
	CHECK(t_is_free(ls, LKM_EXMODE, "demote"), "something stays parked on the name");
	t_release(ls);
}

static void two_readers(dlm_lshandle_t ls, const char *name)
{
	t_get(&a, ls, LKM_PRMODE, 0, name);
	t_get(&b, ls, LKM_PRMODE, 0, name);
}

static void conversion_deadlock(void)
{
	dlm_lshandle_t ls = t_create();

	t_step("(a) no flag: one victim, which keeps PR");
	two_readers(ls, "a");
	t_convert(&a, LKM_EXMODE, 0);
	t_convert(&b, LKM_EXMODE, 0);
	EQUAL(t_done(&b), EDEADLK, "the second converter");
	EQUAL(a.asts, 1, "completions of the first converter");
	CHECK(t_is_free(ls, LKM_NLMODE, "x"), "another name must be served");
	t_drop(&b);
	EQUAL(t_done(&a), 0, "the first converter after the victim dropped PR");
	t_drop(&a);

	t_step("(b) NODLCKWT on both: nobody is cancelled, both are told");
	two_readers(ls, "b");
	t_convert(&a, LKM_EXMODE, LKF_NODLCKWT);
	t_convert(&b, LKM_EXMODE, LKF_NODLCKWT);
	t_settle(ls);
	EQUAL(a.asts + b.asts, 2, "completions while both wait");
	CHECK(b.basts, "the second converter is not told that it blocks the first");
	t_step("(b) a pass over the queues tells the first one");
	t_get(&c, ls, LKM_CRMODE, LKF_NOORDER, "b");
	t_drop(&c);
	t_settle(ls);
	CHECK(a.basts, "the first converter is never told");
	t_unlock(&b, LKF_CANCEL);
	EQUAL(t_done(&b), ECANCEL, "the cancelled conversion");
	t_drop(&b);
	EQUAL(t_done(&a), 0, "the other one, once the first gave up and dropped PR");
	t_drop(&a);

	t_step("(c) NODLCKWT on one: only the other may be the victim");
	two_readers(ls, "c");
	t_convert(&a, LKM_EXMODE, LKF_NODLCKWT);
	t_convert(&b, LKM_EXMODE, 0);
	EQUAL(t_done(&b), EDEADLK, "the converter without the flag");
	t_drop(&b);
	EQUAL(t_done(&a), 0, "the converter with the flag");
	t_drop(&a);
	t_release(ls);
}

/* A client that does not read its callbacks for a while finds all of them, in order. */
static void deaf_client(void)
{
	static const int modes[] = {LKM_PRMODE, LKM_PWMODE, LKM_EXMODE};
	dlm_lshandle_t ls = t_create();
	struct t_proc other = t_agent(t_space_name());
	int i;

	t_get(&b, ls, LKM_EXMODE, 0, "n");
	t_lock(&a, ls, LKM_EXMODE, 0, "n");	/* waits, and its owner does not look any more */
	t_unlock(&b, 0);
	for (i = 0; i < 3; i++)
		EQUAL(t_agent_lock(&other, i, modes[i], 0, "n").ret, 0, "an agent's request");
	t_sleep_us(t_scaled(50, 2000) * 1000);
	EQUAL(a.asts, 0, "callbacks that ran outside dlm_dispatch");
	t_event_count = 0;
	EQUAL(t_done(&a), 0, "the granted lock");
	t_settle(ls);
	EQUAL(a.early, 0, "blocking notices before the grant");
	EQUAL(a.basts, 3, "blocking notices, for PR, PW and EX");
	t_drop(&a);
	for (i = 0; i < 3; i++) {
		EQUAL(t_agent_done(&other, i), 0, "the next in line");
		t_agent_drop(&other, i);
	}
	t_agent_end(&other);
	t_release(ls);
}

/* While a lock converts it is told nothing; granted, it hears of those behind it. */
static void notices_of_a_converter(void)
{
	dlm_lshandle_t ls = t_create();

	two_readers(ls, "n");
	t_convert(&a, LKM_EXMODE, 0);
	t_settle(ls);
	EQUAL(b.basts, 1, "notices of the PR holder for the conversion");
	t_lock(&c, ls, LKM_EXMODE, 0, "n");
	t_settle(ls);
	EQUAL(a.basts, 0, "notices of a lock that is converting");
	EQUAL(b.basts, 1, "notices of a holder that was told EX already");
	t_drop(&b);
	EQUAL(t_done(&a), 0, "the conversion after the last reader went");
	t_settle(ls);
	EQUAL(a.basts, 1, "notices of the new EX holder for the waiter behind it");
	t_drop(&a);
	EQUAL(t_done(&c), 0, "the waiter");
	t_drop(&c);
	t_release(ls);
}

/* One wake-up per hand-over: the others sleep on. */
#define CROWD 500
static struct t_lock crowd[CROWD];

static void no_herd(void)
{
	static struct pollfd fds[CROWD];
	int n = t_scaled(60, CROWD), i, k, ready;
	dlm_lshandle_t ls = t_create();
	long grants;

	t_get(&a, ls, LKM_EXMODE, 0, "n");
	for (i = 0; i < n; i++) {
		dlm_lshandle_t own = t_open(t_space_name());

		memset(&crowd[i], 0, sizeof crowd[i]);
		crowd[i].ls = own;
		crowd[i].sb.sb_lvbptr = crowd[i].lvb;
		ACCEPTED(dlm_ls_lock(own, LKM_EXMODE, &crowd[i].sb, 0, "n", 1, 0, t_ast, &crowd[i],
				     NULL, NULL));
		fds[i] = (struct pollfd){.fd = dlm_ls_get_fd(own), .events = POLLIN};
	}
	t_drop(&a);
	grants = t_counter("grants");
	for (k = 0; k < n; k++) {
		t_step("hand-over %d of %d", k, n);
		ready = poll(fds, n, T_GUARD_MS);
		EQUAL(ready, 1, "clients woken by one release");
		CHECK(fds[k].revents & POLLIN, "not the first in line was woken");
		EQUAL(t_done(&crowd[k]), 0, "the first in line");
		t_drop(&crowd[k]);
		EQUAL(dlm_close_lockspace(crowd[k].ls), 0, "close");
		fds[k].fd = -1;
		fds[k].revents = 0;
	}
	EQUAL(t_counter("grants") - grants, grants < 0 ? 0 : n - 1, "grants for the other hand-overs");
	t_release(ls);
}

/* Ending one waiter leaves those before and behind it where they are. */
static void only_the_one(int by_kill)
{
	dlm_lshandle_t ls = t_create();
	struct t_proc p[3];
	int i;

	t_get(&a, ls, LKM_EXMODE, 0, "n");
	for (i = 0; i < 3; i++) {
		p[i] = t_agent(t_space_name());
		EQUAL(t_agent_lock(&p[i], 0, LKM_EXMODE, 0, "n").ret, 0, "a waiter's request");
	}
	if (by_kill)
		t_kill(&p[1]);
	else {
		EQUAL(t_agent_unlock(&p[1], 0, LKF_CANCEL).ret, 0, "cancel");
		EQUAL(t_agent_done(&p[1], 0), ECANCEL, "the cancelled waiter");
		t_agent_end(&p[1]);
	}
	EQUAL(t_agent_look(&p[0], 0).asts, 0, "completions of the waiter before");
	EQUAL(t_agent_look(&p[2], 0).asts, 0, "completions of the waiter behind");
	t_drop(&a);
	EQUAL(t_agent_done(&p[0], 0), 0, "the first waiter");
	EQUAL(t_agent_look(&p[2], 0).asts, 0, "completions of the last waiter while the first holds");
	t_agent_drop(&p[0], 0);
	EQUAL(t_agent_done(&p[2], 0), 0, "the last waiter");
	t_agent_end(&p[0]);
	t_agent_end(&p[2]);
	t_release(ls);
}

static void cancel_one(void) { only_the_one(0); }
static void kill_one(void) { only_the_one(1); }

/* EX holder, then PR, PR, CR, PW, PR in line: the compatible head of the line, each time. */
static void head_of_the_line(void)
{
	static struct { int mode; struct t_lock l; } line[] = {
		{LKM_PRMODE, {.asts = 0}}, {LKM_PRMODE, {.asts = 0}}, {LKM_CRMODE, {.asts = 0}},
		{LKM_PWMODE, {.asts = 0}}, {LKM_PRMODE, {.asts = 0}},
	};
	dlm_lshandle_t ls = t_create();
	int i;

	t_get(&a, ls, LKM_EXMODE, 0, "n");
	for (i = 0; i < 5; i++)
		t_lock(&line[i].l, ls, line[i].mode, 0, "n");
	t_drop(&a);
	for (i = 0; i < 3; i++)
		EQUAL(t_done(&line[i].l), 0, "PR, PR, CR together");
	t_settle(ls);
	EQUAL(line[3].l.asts + line[4].l.asts, 0, "grants behind the waiting PW");
	t_drop(&line[0].l);
	t_settle(ls);
	EQUAL(line[3].l.asts, 0, "PW while one PR is left");
	t_drop(&line[1].l);
	EQUAL(t_done(&line[3].l), 0, "PW beside CR");
	CHECK(!t_is_free(ls, LKM_CWMODE, "n"), "the writer's mode is not PW");
	EQUAL(line[4].l.asts, 0, "the last reader while PW is held");
	t_drop(&line[3].l);
	EQUAL(t_done(&line[4].l), 0, "the last reader");
	CHECK(t_is_free(ls, LKM_PRMODE, "n"), "the last reader is not PR");
	t_drop(&line[4].l);
	t_drop(&line[2].l);
	CHECK(t_is_free(ls, LKM_EXMODE, "n"), "something is left on the name");
	t_release(ls);
}

/* Readers that come after the writer wait behind it. */
static void writer_not_starved(void)
{
	dlm_lshandle_t ls = t_create();
	struct t_lock *readers = calloc(60, sizeof *readers);
	int i;

	for (i = 0; i < 10; i++)
		t_get(&readers[i], ls, LKM_PRMODE, 0, "n");
	t_lock(&a, ls, LKM_EXMODE, 0, "n");
	for (i = 10; i < 60; i++) {
		t_lock(&readers[i], ls, LKM_PRMODE, 0, "n");
		t_settle(ls);
		EQUAL(readers[i].asts, 0, "a later reader in front of the writer");
		if (i - 10 < 10)
			t_drop(&readers[i - 10]);
	}
	EQUAL(t_done(&a), 0, "the writer after the first ten readers");
	t_settle(ls);
	for (i = 10; i < 60; i++)
		EQUAL(readers[i].asts, 0, "a reader beside the writer");
	t_drop(&a);
	for (i = 10; i < 60; i++) {
		EQUAL(t_done(&readers[i]), 0, "a reader after the writer");
		t_drop(&readers[i]);
	}
	free(readers);
	t_release(ls);
}

/* An upgrade goes before all new requests; of two upgrades one is told EDEADLK. */
static void upgrade_not_starved(void)
{
	static const uint32_t flags[] = {0, LKF_QUECVT};
	static struct t_lock late[20];
	dlm_lshandle_t ls = t_create();
	int round, i;

	for (round = 0; round < 2; round++) {
		two_readers(ls, "n");
		t_convert(&a, LKM_EXMODE, flags[round]);
		for (i = 0; i < 20; i++) {
			t_lock(&late[i], ls, i & 1 ? LKM_CRMODE : LKM_PRMODE, 0, "n");
			t_settle(ls);
			EQUAL(late[i].asts, 0, "a newcomer in front of the upgrade");
		}
		t_drop(&b);
		EQUAL(t_done(&a), 0, "the upgrade");
		t_drop(&a);
		for (i = 0; i < 20; i++) {
			EQUAL(t_done(&late[i]), 0, "a newcomer afterwards");
			t_drop(&late[i]);
		}
	}
	two_readers(ls, "two");
	t_convert(&a, LKM_EXMODE, LKF_QUECVT);
	t_convert(&b, LKM_EXMODE, LKF_QUECVT);
	EQUAL(t_done(&b), EDEADLK, "the second of two upgrades");
	t_drop(&b);
	EQUAL(t_done(&a), 0, "the first of two upgrades");
	t_drop(&a);
	t_release(ls);
}

/* After each pause the holder hears of each new conflict. */
static void always_told(void)
{
	dlm_lshandle_t ls = t_create();
	struct t_proc other = t_agent(t_space_name());
	int i;

	t_get(&a, ls, LKM_EXMODE, 0, "n");
	for (i = 0; i < 20; i++) {
		int before = a.basts;

		EQUAL(t_agent_lock(&other, 0, LKM_EXMODE, 0, "n").ret, 0, "the conflicting request");
		PUMP_UNTIL(ls, a.basts > before);
		EQUAL(t_agent_unlock(&other, 0, LKF_CANCEL).ret, 0, "taking it back");
		EQUAL(t_agent_done(&other, 0), ECANCEL, "the request taken back");
		t_regrant(&a, LKM_EXMODE, 0);	/* a grant makes the daemon forget what it told */
	}
	t_drop(&a);
	t_agent_end(&other);
	t_release(ls);
}

/* A client that was silent for long is told at once. */
static void idle_client(void)
{
	dlm_lshandle_t ls = t_create();
	struct t_proc other = t_agent(t_space_name());

	t_get(&a, ls, LKM_PRMODE, 0, "n");
	t_step("doing nothing for a while");
	t_sleep_us(t_scaled(1500, 600000) * 1000);
	EQUAL(t_agent_lock(&other, 0, LKM_EXMODE, 0, "n").ret, 0, "the conflicting request");
	PUMP_UNTIL(ls, a.basts == 1);
	t_drop(&a);
	EQUAL(t_agent_done(&other, 0), 0, "the conflicting request");
	t_agent_end(&other);
	t_release(ls);
}

static const struct t_test tests[] = {
	{"BL-007", "ALTMODE and DEMOTED locks go on in the mode they got", munged_modes, 0},
	{"BL-009", "crossing upgrades: one victim, or none with NODLCKWT", conversion_deadlock, 0},
	{"BL-011", "completion and notices wait for a client that does not read", deaf_client, 0},
	{"BL-039", "an idle holder is told at once", idle_client, 700},
	{"BL-042", "a converting lock is told once it is granted", notices_of_a_converter, 0},
	{"BL-073", "the holder is told of each new conflict", always_told, 0},
	{"BL-096", "a release wakes one client", no_herd, 300},
	{"BL-113", "cancelling one waiter ends that one", cancel_one, 0},
	{"BL-113k", "killing one waiter ends that one", kill_one, 0},
	{"BL-114", "the compatible head of the line is granted, step by step", head_of_the_line, 0},
	{"BL-119", "a writer is not starved by readers", writer_not_starved, 0},
	{"BL-120", "an upgrade is not starved by newcomers", upgrade_not_starved, 0},
};
T_MAIN(tests)
