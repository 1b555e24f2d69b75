/*
 * What stays when a client goes: orphans, value blocks, closed handles (bug-log.md).
 * @test libs=dlm,lt
 */
#include "t.h"

static struct t_lock a, b, c;

#define LASTING LKF_PERSISTENT

static int adopt(struct t_lock *l, dlm_lshandle_t ls, int mode, uint32_t flags, const char *name)
{
	uint64_t xid = 7;

	memset(l, 0, sizeof *l);
	l->ls = ls;
	errno = 0;
	/* lvmlockd passes callbacks that must never be called */
	return dlm_ls_lockx(ls, mode, &l->sb, flags | LKF_ORPHAN, name, strlen(name), 0,
			    (void (*)(void *))1, (void *)1, (void (*)(void *))1, &xid, NULL);
}

static void kill_and_adopt(void)
{
	dlm_lshandle_t ls = t_create();
	struct t_proc p = t_agent(t_space_name());
	uint32_t id;

	t_agent_get(&p, 0, LKM_EXMODE, LASTING, "n");
	id = t_agent_look(&p, 0).id;
	t_kill_seen(&p, ls);
	CHECK(!t_is_free(ls, LKM_CRMODE, "n"), "an orphan in EX lets others in");
	EQUAL(adopt(&a, ls, LKM_PRMODE, LASTING, "n"), -1, "adoption in the wrong mode");
	EQUAL(errno, EAGAIN, "errno of an adoption in the wrong mode");
	EQUAL(adopt(&a, ls, LKM_EXMODE, LASTING, "none"), -1, "adoption where there is none");
	EQUAL(errno, ENOENT, "errno of an adoption where there is none");
	EQUAL(adopt(&a, ls, LKM_EXMODE, LASTING, "n"), 0, "adoption");
	EQUAL(a.sb.sb_lkid, id, "id of the adopted lock");
	CHECK(!t_is_free(ls, LKM_CRMODE, "n"), "the adopted lock lets others in");
	a.sb.sb_lvbptr = a.lvb;
	t_regrant(&a, LKM_PRMODE, 0);
	CHECK(t_is_free(ls, LKM_PRMODE, "n"), "the adopted lock did not come down");
	t_drop(&a);
	CHECK(t_is_free(ls, LKM_EXMODE, "n"), "the adopted lock is still there");
	t_release(ls);
}

/* Twenty lasting EX locks of a dead process: to be seen, and to be removed, those only. */
static void see_and_purge(int with_tool)
{
	dlm_lshandle_t ls = t_create();
	struct t_proc p = t_agent(t_space_name()), q = t_agent(t_space_name());
	char name[16], owner[40], *text;
	int i, code, pid = p.pid;

	for (i = 0; i < 20; i++) {
		snprintf(name, sizeof name, "dead%d", i);
		t_agent_get(&p, i, LKM_EXMODE, LASTING, name);
	}
	t_agent_get(&q, 0, LKM_EXMODE, LASTING, "other");
	t_kill_seen(&p, ls);
	t_kill_seen(&q, ls);
	if (with_tool) {
		text = t_squeeze(t_tool(&code, "lockdump --json %s", t_space_name()));
		EQUAL(code, 0, "exit code of lockdump --json");
		EQUAL(t_count(text, "\"orphan\":true"), 21, "orphans in lockdump --json");
		snprintf(owner, sizeof owner, "\"pid\":%d", pid);
		EQUAL(t_count(text, owner), 20, "orphans with the dead owner's pid");
		free(text);
		free(t_tool(&code, "purge --pid %d %s", pid, t_space_name()));
		EQUAL(code, 0, "exit code of purge");
	} else
		ACCEPTED(dlm_ls_purge(ls, 0, pid));
	for (i = 0; i < 20; i++) {
		snprintf(name, sizeof name, "dead%d", i);
		CHECK(t_is_free(ls, LKM_EXMODE, name), "%s is still locked", name);
	}
	CHECK(!t_is_free(ls, LKM_EXMODE, "other"), "another owner's orphan was purged");
	ACCEPTED(dlm_ls_purge(ls, 0, 0));
	CHECK(t_is_free(ls, LKM_EXMODE, "other"), "pid 0 does not purge all orphans");
	t_release(ls);
}

static void purge_by_call(void) { see_and_purge(0); }
static void purge_by_tool(void) { see_and_purge(1); }

/* The holder of EX dies before it writes its value block: the old bytes are never unflagged. */
static void stale_value(void)
{
	dlm_lshandle_t ls = t_create();
	struct t_proc p = t_agent(t_space_name());

	t_get(&a, ls, LKM_EXMODE, LKF_VALBLK, "n");
	memcpy(a.lvb, "v1", 3);
	t_regrant(&a, LKM_NLMODE, LKF_VALBLK);
	t_agent_get(&p, 0, LKM_EXMODE, LKF_VALBLK, "n");
	CHECK(!strcmp(t_agent_look(&p, 0).lvb, "v1"), "the second holder does not see v1");
	t_kill_seen(&p, ls);
	t_regrant(&a, LKM_PRMODE, LKF_VALBLK);
	EQUAL(a.flags, DLM_SBF_VALNOTVALID, "sb_flags after the writer died");
	t_regrant(&a, LKM_EXMODE, LKF_VALBLK);
	EQUAL(a.flags, DLM_SBF_VALNOTVALID, "sb_flags before the next write");
	memcpy(a.lvb, "v2", 3);
	t_regrant(&a, LKM_NLMODE, LKF_VALBLK);
	t_get(&b, ls, LKM_PRMODE, LKF_VALBLK, "n");
	EQUAL(b.flags, 0, "sb_flags after a new write");
	CHECK(!strcmp(b.lvb, "v2"), "the value read is not v2");
	t_drop(&b);
	t_drop(&a);
	t_release(ls);
}

/* A thousand locks in every state; one close ends them all. */
static void close_with_all(void)
{
	dlm_lshandle_t ls = t_create(), mine = t_open(t_space_name());
	static struct t_lock l[1000], other[100], orphan;
	struct t_proc p = t_agent(t_space_name());
	char name[16];
	int i, called;

	t_agent_get(&p, 0, LKM_EXMODE, LASTING, "orphan");
	t_kill_seen(&p, ls);
	for (i = 0; i < 1000; i++) {
		snprintf(name, sizeof name, "r%d", i);
		if (i < 100)		/* these will wait or convert against another handle */
			t_get(&other[i], ls, LKM_PRMODE, 0, name);
		if (i < 40)
			t_lock(&l[i], mine, LKM_EXMODE, 0, name);
		else
			t_get(&l[i], mine, LKM_PRMODE, i % 3 ? 0 : LKF_VALBLK, name);
		if (i >= 40 && i < 80)
			t_convert(&l[i], LKM_EXMODE, 0);
	}
	EQUAL(adopt(&orphan, mine, LKM_EXMODE, LASTING, "orphan"), 0, "adoption");
	t_unlock(&l[0], LKF_CANCEL);	/* its completion will not be read */
	t_unlock(&l[50], LKF_CANCEL);
	t_unlock(&l[500], 0);
	called = t_event_count;
	EQUAL(dlm_close_lockspace(mine), 0, "close");
	EQUAL(t_event_count, called, "callbacks so far: none comes because of the close");
	for (i = 0; i < 1000; i++) {
		snprintf(name, sizeof name, "r%d", i);
		if (i < 100)
			t_drop(&other[i]);
		CHECK(t_is_free(ls, LKM_EXMODE, name), "%s is still locked", name);
	}
	CHECK(!t_is_free(ls, LKM_CRMODE, "orphan"), "a PERSISTENT lock is no orphan after close");
	ACCEPTED(dlm_ls_purge(ls, 0, 0));
	CHECK(t_is_free(ls, LKM_EXMODE, "orphan"), "the orphan was not purged");
	t_release(ls);
}

/* The next in line does not wait for a lease or a timer of the dead. */
static void death_hands_over(void)
{
	dlm_lshandle_t ls = t_create();
	int i, rounds = t_scaled(20, 500);

	for (i = 0; i < rounds; i++) {
		struct t_proc p = t_agent(t_space_name());

		t_agent_get(&p, 0, LKM_EXMODE, 0, "n");
		t_lock(&a, ls, LKM_EXMODE, 0, "n");
		kill(p.pid, SIGKILL);
		EQUAL(t_done(&a), 0, "the next in line after the holder was killed");
		t_drop(&a);
		t_reap(&p);
	}
	t_release(ls);
}

/* PERSISTENT requests that still wait, and PERSISTENT upgrades, when their owner dies. */
static void waiting_is_no_orphan(void)
{
	dlm_lshandle_t ls = t_create();
	struct t_proc p = t_agent(t_space_name());

	t_get(&a, ls, LKM_PRMODE, 0, "w");
	t_get(&b, ls, LKM_PRMODE, 0, "c");
	t_agent_lock(&p, 0, LKM_EXMODE, LASTING, "w");
	t_agent_get(&p, 1, LKM_PRMODE, LASTING, "c");
	t_agent_convert(&p, 1, LKM_EXMODE, LASTING);
	t_kill_seen(&p, ls);
	t_drop(&a);
	CHECK(t_is_free(ls, LKM_EXMODE, "w"), "a waiting request became an orphan");
	t_drop(&b);
	CHECK(t_is_free(ls, LKM_PRMODE, "c"), "the orphan's upgrade went on");
	CHECK(!t_is_free(ls, LKM_CWMODE, "c"), "the orphan lost its old mode");
	ACCEPTED(dlm_ls_purge(ls, 0, 0));	/* crashed the kernel (D8) */
	CHECK(t_is_free(ls, LKM_EXMODE, "c"), "the orphan was not purged");
	t_release(ls);
}

/* 1,000 locks stay while other names come and go. */
static void held_is_never_forgotten(void)
{
	static struct t_lock kept[1000];
	dlm_lshandle_t ls = t_create(), probe = t_open(t_space_name());
	int names = t_scaled(20000, 500000), i;
	char name[24];

	for (i = 0; i < 1000; i++) {
		snprintf(name, sizeof name, "kept%d", i);
		t_get(&kept[i], ls, i & 1 ? LKM_EXMODE : LKM_NLMODE, 0, name);
	}
	for (i = 0; i < names; i++) {
		snprintf(name, sizeof name, "name%d", i);
		t_get(&c, probe, LKM_EXMODE, 0, name);
		t_drop(&c);
	}
	for (i = 0; i < 1000; i++) {
		snprintf(name, sizeof name, "kept%d", i);
		EQUAL(t_is_free(probe, LKM_EXMODE, name), !(i & 1), name);
		t_drop(&kept[i]);
	}
	dlm_close_lockspace(probe);
	t_release(ls);
}

static const struct t_test tests[] = {
	{"BL-012", "a killed owner's lasting lock is adopted", kill_and_adopt, 0},
	{"BL-013", "orphans of one pid are purged, those only", purge_by_call, 0},
	{"BL-013t", "orphans are listed and purged by dlm_tool", purge_by_tool, 0},
	{"BL-031", "a value that may be old is flagged until it is written", stale_value, 0},
	{"BL-040", "held locks stay while other names come and go", held_is_never_forgotten, 600},
	{"BL-101", "close ends locks in every state", close_with_all, 0},
	{"BL-102", "the next in line is granted when the holder is killed", death_hands_over, 300},
	{"D8", "a waiting PERSISTENT request is never an orphan", waiting_is_no_orphan, 0},
};
T_MAIN(tests)
