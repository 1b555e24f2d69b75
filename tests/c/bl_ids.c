/*
 * Lock ids, names, and calls that must be refused: each way with its own errno, and without
 * harm to anybody (bug-log.md; semantics.md D1, D2).
 * @test libs=dlm,lt
 */
#include "t.h"

static struct t_lock a, b, c;

/* An id that is nobody's, in this lockspace. */
static uint32_t random_id(void)
{
	return 0x40000000u | t_random();
}

static void unlock_without_holding(void)
{
	dlm_lshandle_t ls = t_create();
	dlm_lshandle_t elsewhere = dlm_create_lockspace("elsewhere", 0600);
	struct t_proc p = t_agent(t_space_name());
	uint32_t foreign, far;
	int i;

	CHECK(elsewhere, "create: %m");
	t_get(&a, ls, LKM_EXMODE, 0, "mine");
	REFUSED(dlm_ls_unlock(ls, 0, 0, &a.sb, &a), EINVAL);
	for (i = 0; i < 200; i++) {
		uint32_t id = random_id();

		if (id != a.sb.sb_lkid)
			REFUSED(dlm_ls_unlock(ls, id, 0, &b.sb, &b), ENOENT);
	}
	t_agent_get(&p, 0, LKM_EXMODE, 0, "theirs");
	foreign = t_agent_look(&p, 0).id;
	REFUSED(dlm_ls_unlock(ls, foreign, 0, &b.sb, &b), EPERM);
	REFUSED(dlm_ls_unlock(ls, foreign, LKF_CANCEL, &b.sb, &b), EPERM);
	REFUSED(dlm_ls_unlock(ls, foreign, LKF_FORCEUNLOCK, &b.sb, &b), EPERM);
	for (i = 0; i < 10; i++)	/* ids of a lockspace mean nothing in another one */
		t_get(&b, elsewhere, LKM_CRMODE, 0, "far");
	far = b.sb.sb_lkid;
	if (far != a.sb.sb_lkid && far != foreign)
		REFUSED(dlm_ls_unlock(ls, far, 0, &c.sb, &c), ENOENT);
	t_drop(&b);
	CHECK(!t_is_free(ls, LKM_CRMODE, "theirs"), "a foreign lock was touched");
	CHECK(!t_is_free(ls, LKM_CRMODE, "mine"), "my lock was touched");
	t_lock(&c, ls, LKM_EXMODE, 0, "theirs");
	t_unlock(&c, 0);		/* waiting, without CANCEL: the request ends (4.2) */
	EQUAL(t_done(&c), EUNLOCK, "plain unlock of a waiting request");
	t_agent_drop(&p, 0);
	t_agent_end(&p);
	t_drop(&a);
	ACCEPTED(dlm_release_lockspace("elsewhere", elsewhere, 2));
	t_release(ls);
}

static void every_way_to_fail(void)
{
	dlm_lshandle_t ls = t_create();
	struct t_lock *l = &a;

	t_get(l, ls, LKM_PRMODE, 0, "n");
	REFUSED(dlm_ls_unlock(NULL, l->sb.sb_lkid, 0, &l->sb, l), ENOTCONN);
	REFUSED(dlm_ls_unlock(ls, 0, 0, &l->sb, l), EINVAL);
	REFUSED(t_try_unlock(l, LKF_CANCEL | LKF_FORCEUNLOCK), EINVAL);
	REFUSED(t_try_unlock(l, LKF_NOQUEUE), EINVAL);
	REFUSED(t_try_unlock(l, LKF_PERSISTENT), EINVAL);
	t_step("cancel where nothing is pending: accepted, no completion");
	t_unlock(l, LKF_CANCEL);
	t_settle(ls);
	EQUAL(l->asts, 1, "completions after an empty cancel");
	t_step("an unlock whose completion was not read yet");
	t_unlock(l, 0);
	REFUSED(t_try_unlock(l, 0), ENOENT);
	REFUSED(t_try_unlock(l, LKF_CANCEL), ENOENT);
	REFUSED(t_try_convert(l, LKM_EXMODE, 0), ENOENT);
	EQUAL(t_done(l), EUNLOCK, "the first unlock");
	REFUSED(t_try_unlock(l, 0), ENOENT);
	t_step("the failed calls left nothing behind");
	CHECK(t_is_free(ls, LKM_EXMODE, "n"), "the name is still locked");
	t_release(ls);
}

static void same_id_from_two(void)
{
	dlm_lshandle_t ls = t_create();
	int i;

	for (i = 0; i < 200; i++) {
		t_get(&a, ls, LKM_EXMODE, 0, "n");
		b = a;
		t_unlock(&a, 0);
		REFUSED(t_try_unlock(&b, 0), ENOENT);
		EQUAL(t_done(&a), EUNLOCK, "the one that counted");
	}
	t_release(ls);
}

/* Ids are not given to the next lock: a stale one stays stale. */
static void stale_ids(void)
{
	static uint32_t old[3000];
	dlm_lshandle_t ls = t_create();
	int i, k, rounds = t_scaled(1000, 3000);

	for (i = 0; i < rounds; i++) {
		t_get(&a, ls, LKM_EXMODE, 0, "n");
		old[i] = a.sb.sb_lkid;
		for (k = i > 50 ? i - 50 : 0; k < i; k++)
			CHECK(old[k] != old[i], "id %08x was given out again", old[i]);
		t_drop(&a);
	}
	t_get(&a, ls, LKM_EXMODE, 0, "n");
	for (i = 0; i < rounds; i++)
		if (old[i] != a.sb.sb_lkid)
			REFUSED(dlm_ls_unlock(ls, old[i], 0, &b.sb, &b), ENOENT);
	b.ls = ls;
	b.sb.sb_lkid = old[0];
	REFUSED(t_try_convert(&b, LKM_NLMODE, 0), ENOENT);
	REFUSED(dlm_ls_deadlock_cancel(ls, old[0], 0), ENOENT);
	CHECK(!t_is_free(ls, LKM_CRMODE, "n"), "a stale id reached the new lock");
	t_drop(&a);
	t_release(ls);
}

/* Only the handle that owns a lock may touch it, even inside one process. */
static void foreign_handle(void)
{
	dlm_lshandle_t ls = t_create(), other = t_open(t_space_name());

	t_get(&a, ls, LKM_PRMODE, 0, "n");
	b = a;
	b.ls = other;
	REFUSED(t_try_convert(&b, LKM_NLMODE, 0), EPERM);
	REFUSED(t_try_unlock(&b, 0), EPERM);
	REFUSED(t_try_unlock(&b, LKF_CANCEL), EPERM);
	REFUSED(dlm_ls_deadlock_cancel(other, a.sb.sb_lkid, 0), EPERM);
	t_settle(ls);
	EQUAL(a.asts, 1, "completions of the lock");
	CHECK(!t_is_free(other, LKM_EXMODE, "n"), "a foreign handle dropped the lock");
	EQUAL(dlm_close_lockspace(other), 0, "close");
	CHECK(!t_is_free(ls, LKM_EXMODE, "n"), "a foreign handle's close dropped the lock");
	t_drop(&a);
	t_release(ls);
}

/* A lock id and status block carried to another process. */
static void carried_away(void)
{
	dlm_lshandle_t ls = t_create();
	struct t_proc p = t_agent(t_space_name());
	struct t_order o = {.op = A_CONVERT, .slot = 3, .mode = LKM_NLMODE};
	struct t_answer r;

	t_get(&a, ls, LKM_EXMODE, LKF_PERSISTENT, "n");
	o.id = a.sb.sb_lkid;
	r = t_ask(&p, &o);
	CHECK(r.ret == -1 && r.err == EPERM, "convert elsewhere: %d, %s", r.ret, t_name(r.err));
	o.op = A_UNLOCK;
	r = t_ask(&p, &o);
	CHECK(r.ret == -1 && r.err == EPERM, "unlock elsewhere: %d, %s", r.ret, t_name(r.err));
	CHECK(!t_is_free(ls, LKM_CRMODE, "n"), "the lock was changed from elsewhere");
	t_step("the supported way: lasting lock, close, adopt");
	EQUAL(dlm_close_lockspace(ls), 0, "close");
	EQUAL(t_agent_lock(&p, 0, LKM_EXMODE, LKF_PERSISTENT | LKF_ORPHAN, "n").ret, 0, "adoption");
	EQUAL(t_agent_look(&p, 0).id, o.id, "id of the adopted lock");
	t_agent_drop(&p, 0);
	t_agent_end(&p);
	t_release(t_open(t_space_name()));
}

/* ---------------------------------------------------------------- names */
static void name_lengths(void)
{
	static const unsigned good[] = {0, 1, 63, 64}, bad[] = {65, 255, 4096};
	char text[4200], space[70];
	dlm_lshandle_t ls = t_create(), other;
	unsigned i;

	memset(text, 'n', sizeof text);
	for (i = 0; i < 4; i++) {
		ACCEPTED(t_try_lockn(&a, ls, LKM_EXMODE, 0, text, good[i]));
		EQUAL(t_done(&a), 0, "a name of a good length");
		ACCEPTED(t_try_lockn(&b, ls, LKM_EXMODE, LKF_NOQUEUE, text, good[i]));
		EQUAL(t_done(&b), EAGAIN, "the same name again");
		if (good[i] < 64) {
			ACCEPTED(t_try_lockn(&b, ls, LKM_EXMODE, LKF_NOQUEUE, text, good[i] + 1));
			EQUAL(t_done(&b), 0, "a name longer by one");
			t_drop(&b);
		}
		t_drop(&a);
	}
	for (i = 0; i < 3; i++) {
		a.sb.sb_status = 1234;
		REFUSED(t_try_lockn(&a, ls, LKM_EXMODE, 0, text, bad[i]), EINVAL);
		EQUAL(a.sb.sb_status, 1234, "sb_status after a failed argument check");
	}
	for (i = 62; i < 66; i++) {
		memset(space, 's', sizeof space);
		space[i] = 0;
		errno = 0;
		other = dlm_create_lockspace(space, 0600);
		if (i <= DLM_LOCKSPACE_LEN) {
			CHECK(other, "lockspace name of %u bytes: %m", i);
			ACCEPTED(dlm_release_lockspace(space, other, 2));
		} else
			CHECK(!other && errno == EINVAL, "lockspace name of %u bytes: %m", i);
	}
	errno = 0;
	CHECK(!dlm_create_lockspace("", 0600) && errno == EINVAL, "empty lockspace name: %m");
	CHECK(!dlm_open_lockspace("nobody made this") && errno == ENOENT, "unknown name: %m");
	t_release(ls);
}

static const struct { const char *text; unsigned len; } odd[] = {
	{"a", 1}, {"ab", 2}, {"a/b", 3}, {"a-b", 3}, {"a_b", 3}, {"A", 1}, {"a ", 2}, {" a", 2},
	{"a\0b", 3}, {"a\0c", 3}, {"a\0", 2}, {"\0", 1}, {"\0\0", 2}, {"", 0}, {"\xc3\x28", 2},
	{"a\nb", 3}, {"\"a\"", 3}, {"'a'", 3}, {"-a", 2}, {"--help", 6}, {"..", 2}, {"/", 1},
	{"a\\b", 3}, {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
	 "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
	 "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
	 "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 64},
};

/* Different bytes never conflict; the same bytes always do. */
static void odd_names(void)
{
	static struct t_lock held[T_COUNT(odd)];
	dlm_lshandle_t ls = t_create();
	char *text;
	int i, code;

	for (i = 0; i < T_COUNT(odd); i++) {
		ACCEPTED(t_try_lockn(&held[i], ls, LKM_EXMODE, LKF_NOQUEUE, odd[i].text, odd[i].len));
		EQUAL(t_done(&held[i]), 0, odd[i].text);
	}
	for (i = 0; i < T_COUNT(odd); i++) {
		ACCEPTED(t_try_lockn(&a, ls, LKM_CRMODE, LKF_NOQUEUE, odd[i].text, odd[i].len));
		EQUAL(t_done(&a), EAGAIN, odd[i].text);
	}
	if (t_has_tool()) {
		text = t_tool(&code, "lockdump --json %s", t_space_name());
		EQUAL(code, 0, "exit code of lockdump --json");
		CHECK(!strchr(text, 0xff) && !memchr(text, 0xc3, strlen(text)),
		      "raw bytes in JSON text");
		EQUAL(t_count(t_squeeze(text), "\"granted\":\"EX\""), T_COUNT(odd), "locks listed");
		free(text);
	}
	for (i = 0; i < T_COUNT(odd); i++)
		t_drop(&held[i]);
	t_release(ls);
}

static const struct t_test tests[] = {
	{"BL-070", "unlock of what is not held is refused, and harms nobody", unlock_without_holding, 0},
	{"BL-070t", "of two unlocks of one lock, one counts", same_id_from_two, 0},
	{"BL-098", "each way an unlock fails has its errno", every_way_to_fail, 0},
	{"D1", "a stale id never reaches another lock", stale_ids, 0},
	{"D2", "only the owning handle may touch a lock", foreign_handle, 0},
	{"BL-105", "names up to the limit, and beyond", name_lengths, 0},
	{"BL-106", "names are bytes with a length", odd_names, 0},
	{"BL-108", "a lock carried to another process is refused there", carried_away, 0},
};
T_MAIN(tests)
