/*
 * What <dlm_ext.h> adds: tokens, status query, loss callback, timed wait, label (bug-log.md BL-074,
 * BL-097, BL-100).
 * @test libs=dlm,lt
 */
#include "t.h"
#include <dlm_ext.h>
#include <sys/socket.h>

static struct t_lock a, b;
static dlm_lshandle_t ls, other;

static uint64_t token(struct t_lock *l)
{
	uint64_t token = 0;

	ACCEPTED(dlmx_token(l->ls, l->sb.sb_lkid, &token));
	return token;
}

static void tokens(void)
{
	uint64_t last = 0, now, held;
	int i;

	ls = t_create();
	other = t_open(t_space_name());
	for (i = 0; i < 100; i++) {
		struct t_lock *l = i & 1 ? &a : &b;

		t_get(l, i & 1 ? ls : other, LKM_EXMODE, 0, "n");
		now = token(l);
		CHECK(now > last, "token %llx after %llx", (unsigned long long)now,
		      (unsigned long long)last);
		held = now;
		t_regrant(l, LKM_PRMODE, 0);
		now = token(l);
		CHECK(now >= held, "a conversion's token went back");
		last = now;
		t_drop(l);
		REFUSED(dlmx_token(l->ls, l->sb.sb_lkid, &now), ENOENT);
	}
	REFUSED(dlmx_token(ls, 0x7ffffff0, &now), ENOENT);
	t_get(&a, ls, LKM_EXMODE, 0, "n");
	t_lock(&b, ls, LKM_EXMODE, 0, "n");
	REFUSED(dlmx_token(ls, b.sb.sb_lkid, &now), ENOENT);	/* never granted */
	REFUSED(dlmx_token(other, a.sb.sb_lkid, &now), ENOENT);	/* not this handle's */
	EQUAL(dlm_close_lockspace(other), 0, "close");
	t_release(ls);
}

static void status_of(struct t_lock *l, struct dlmx_status *s)
{
	memset(s, 0x77, sizeof *s);
	ACCEPTED(dlmx_status(l->ls, l->sb.sb_lkid, s));
	EQUAL(s->loss, DLMX_LOSS_NONE, "loss");
	EQUAL(s->spare[0] | s->spare[1] | s->spare[2], 0, "spare");
}

static void status(void)
{
	struct dlmx_status s;

	ls = t_create();
	other = t_open(t_space_name());
	t_get(&a, other, LKM_EXMODE, 0, "n");
	t_lock(&b, ls, LKM_PRMODE, 0, "n");
	status_of(&b, &s);
	EQUAL(s.mode, -1, "mode of a waiting request");
	EQUAL(s.status, EINPROG, "status of a waiting request");
	EQUAL(s.pending, 1, "pending operations");
	EQUAL(s.token, 0, "token of a waiting request");
	t_drop(&a);
	EQUAL(t_done(&b), 0, "the request");
	status_of(&b, &s);
	EQUAL(s.mode, LKM_PRMODE, "mode");
	EQUAL(s.status, 0, "status");
	EQUAL(s.pending, 0, "pending operations");
	EQUAL(s.token, token(&b), "token");
	ACCEPTED(dlmx_status(ls, 0, &s));
	EQUAL(s.events, 0, "events of an idle handle");
	CHECK(s.nodeid, "no node id");
	REFUSED(dlmx_status(ls, 0x7ffffff0, &s), ENOENT);
	EQUAL(s.loss, DLMX_LOSS_NONE, "loss");
	t_drop(&b);
	EQUAL(dlm_close_lockspace(other), 0, "close");
	t_release(ls);
}

#ifdef LT
#define PROMISES_NOTHING_TO_THREADS 1	/* a dispatcher could take the waiter's event */
#else
#define PROMISES_NOTHING_TO_THREADS 0
#endif
static volatile int stop, blocked_result = -2;

static void *blocks(void *arg)
{
	struct dlm_lksb *sb = arg;

	blocked_result = t_wait_lock(ls, sb, LKM_EXMODE, 0, "held");
	return NULL;
}

static void *dispatches(void *arg)
{
	while (!stop)
		t_pump(ls, 5);
	return arg;
}

/* The status query answers while one thread blocks and another dispatches. */
static void status_never_blocks(void)
{
	static struct dlm_lksb sb;
	struct dlmx_status s;
	pthread_t waiter, pump;
	int i;

	ls = t_create();
	other = t_open(t_space_name());
	t_get(&a, other, LKM_EXMODE, 0, "held");
	t_get(&b, ls, LKM_EXMODE, 0, "mine");
	t_threaded(ls);
	CHECK(!pthread_create(&waiter, NULL, blocks, &sb), "thread");
	PUMP_UNTIL(other, a.basts);
	stop = PROMISES_NOTHING_TO_THREADS;
	CHECK(!pthread_create(&pump, NULL, dispatches, NULL), "thread");
	for (i = 0; i < 20000; i++) {
		status_of(&b, &s);
		EQUAL(s.mode, LKM_EXMODE, "mode of a granted lock");
	}
	EQUAL(blocked_result, -2, "the thread that blocks");
	t_drop(&a);
	WAIT_UNTIL(blocked_result != -2);
	EQUAL(blocked_result, 0, "its result");
	stop = 1;
	pthread_join(waiter, NULL);
	pthread_join(pump, NULL);
	EQUAL(dlm_close_lockspace(other), 0, "close");
	t_release(ls);
}

/* ---------------------------------------------------------------- timed wait */
static int timed(struct dlm_lksb *sb, int mode, uint32_t flags, const char *name, uint32_t ms)
{
	errno = 0;
	return dlmx_ls_lock_wait_timeout(ls, mode, sb, flags, name, strlen(name), 0, NULL, NULL, NULL,
					 ms);
}

static void timed_wait(void)
{
	struct dlm_lksb sb = {0};

	ls = t_create();
	other = t_open(t_space_name());
	t_threaded(ls);
	t_get(&a, other, LKM_PRMODE, 0, "n");
	REFUSED(timed(&sb, LKM_EXMODE, 0, "n", 20), ETIMEDOUT);
	EQUAL(sb.sb_status, ETIMEDOUT, "sb_status");
	CHECK(t_is_free(other, LKM_PRMODE, "n"), "the request still stands in the queue");
	ACCEPTED(timed(&sb, LKM_PRMODE, 0, "n", 20));
	EQUAL(sb.sb_status, 0, "sb_status");
	REFUSED(timed(&sb, LKM_EXMODE, LKF_CONVERT, "", 20), ETIMEDOUT);
	CHECK(t_is_free(other, LKM_PRMODE, "n"), "the conversion still stands in the queue");
	t_drop(&a);
	CHECK(!t_is_free(other, LKM_CWMODE, "n"), "the old mode was lost");
	ACCEPTED(timed(&sb, LKM_EXMODE, LKF_CONVERT, "", DLMX_NO_TIMEOUT));
	EQUAL(t_wait_unlock(ls, &sb, 0), EUNLOCK, "unlock");
	REFUSED(timed(&sb, 99, 0, "n", 20), EINVAL);
	EQUAL(dlm_close_lockspace(other), 0, "close");
	t_release(ls);
}

/* The holder lets go at about the time the limit ends: granted or timed out, never both or none. */
static void timed_wait_races(void)
{
	struct dlm_lksb sb = {0};
	struct t_proc p;
	struct t_order o = {.op = A_UNLOCK};
	struct t_answer r;
	int rounds = t_scaled(100, 5000), i, got = 0, late = 0;

	p = t_agent((ls = t_create(), t_space_name()));
	other = t_open(t_space_name());
	t_threaded(ls);
	for (i = 0; i < rounds; i++) {
		t_agent_get(&p, 0, LKM_EXMODE, 0, "n");
		if (i & 1)	/* half of them are let go before */
			CHECK(send(p.fd, &o, sizeof o, MSG_NOSIGNAL) == sizeof o, "agent");
		if (timed(&sb, LKM_EXMODE, 0, "n", 10) == 0) {
			EQUAL(sb.sb_status, 0, "sb_status of a grant");
			got++;
			CHECK(!t_is_free(other, LKM_CRMODE, "n"), "granted, but not held");
			EQUAL(t_wait_unlock(ls, &sb, 0), EUNLOCK, "unlock");
		} else {
			EQUAL(errno, ETIMEDOUT, "errno");
			late++;
		}
		if (!(i & 1))
			CHECK(send(p.fd, &o, sizeof o, MSG_NOSIGNAL) == sizeof o, "agent");
		EQUAL(recv(p.fd, &r, sizeof r, 0), sizeof r, "agent's answer");
		EQUAL(r.ret, 0, "agent's unlock");
		EQUAL(t_agent_done(&p, 0), EUNLOCK, "agent's unlock");
		CHECK(t_is_free(other, LKM_EXMODE, "n"), "round %d left something", i);
	}
	CHECK(late, "%d granted, %d too late", got, late);
	t_agent_end(&p);
	EQUAL(dlm_close_lockspace(other), 0, "close");
	t_release(ls);
}

/* ---------------------------------------------------------------- loss and label */
static int losses, reason_told;

static void lost(void *arg, enum dlmx_loss_reason reason)
{
	EQUAL(arg == &losses, 1, "argument");
	losses++;
	reason_told = reason;
}

static void loss(void)
{
	struct dlmx_status s;
	int round;

	for (round = 0; round < 2; round++) {
		losses = 0;
		ls = t_create();
		other = t_open(t_space_name());
		t_get(&a, other, LKM_EXMODE, 0, "n");
		t_lock(&b, ls, LKM_EXMODE, 0, "n");
		if (!round)
			ACCEPTED(dlmx_set_loss_callback(ls, lost, &losses));
		EQUAL(dlm_close_lockspace(other), 0, "close");
		EQUAL(t_done(&b), 0, "the request");
		t_convert(&b, LKM_PRMODE, 0);
		EQUAL(t_done(&b), 0, "the conversion");
		CHECK(t_cut() == 1, "there is not one connection to cut");
		if (round)
			ACCEPTED(dlmx_set_loss_callback(ls, lost, &losses));
		for (long end = t_now() + T_GUARD_MS; !losses && t_now() < end;) {
			struct pollfd p = {.fd = dlm_ls_get_fd(ls), .events = POLLIN};

			EQUAL(poll(&p, 1, T_GUARD_MS), 1, "poll after the loss");
			dlm_dispatch(p.fd);
		}
		EQUAL(losses, 1, "calls of the loss callback");
		EQUAL(reason_told, DLMX_LOSS_DAEMON_GONE, "reason");
		dlm_dispatch(dlm_ls_get_fd(ls));
		EQUAL(losses, 1, "calls of the loss callback");
		ACCEPTED(dlmx_status(ls, 0, &s));
		EQUAL(s.loss, DLMX_LOSS_DAEMON_GONE, "loss");
		REFUSED(t_try_unlock(&b, 0), ENOTRECOVERABLE);
		EQUAL(dlm_close_lockspace(ls), 0, "close");
		t_release(t_open(t_space_name()));
	}
}

static void close_when_lost(void *arg, enum dlmx_loss_reason reason)
{
	struct dlmx_status s;

	EQUAL(reason, DLMX_LOSS_DAEMON_GONE, "reason");
	ACCEPTED(dlmx_status(ls, 0, &s));
	REFUSED(t_try_unlock(&a, 0), ENOTRECOVERABLE);
	EQUAL(dlm_close_lockspace(ls), 0, "close inside the loss callback");
	++*(volatile int *)arg;
}

static void loss_closes(void)
{
	struct pollfd p;
	int threaded;

	for (threaded = 0; threaded < 2; threaded++) {
		losses = 0;
		ls = t_create();
		ACCEPTED(dlmx_set_loss_callback(ls, close_when_lost, &losses));
		t_get(&a, ls, LKM_EXMODE, 0, "n");
		p = (struct pollfd){.fd = dlm_ls_get_fd(ls), .events = POLLIN};
		if (threaded)
			t_threaded(ls);
		EQUAL(t_cut(), 1, "connections cut");
#ifndef LT
		if (threaded)
			WAIT_UNTIL(*(volatile int *)&losses);
#endif
		while (!*(volatile int *)&losses) {
			EQUAL(poll(&p, 1, T_GUARD_MS), 1, "poll after the loss");
			dlm_dispatch(p.fd);
		}
		EQUAL(losses, 1, "calls of the loss callback");
		t_release(t_open(t_space_name()));
	}
}

static void label(void)
{
	char text[66], *out;
	int code;

	ls = t_create();
	memset(text, 'L', sizeof text);
	text[65] = 0;
	REFUSED(dlmx_set_label(ls, text), EINVAL);
	text[64] = 0;
	ACCEPTED(dlmx_set_label(ls, text));
	t_get(&a, ls, LKM_EXMODE, 0, "n");
	if (t_has_tool()) {
		ACCEPTED(dlmx_set_label(ls, "backup job 17"));
		out = t_tool(&code, "lock --json %s n", t_space_name());
		CHECK(!code && strstr(out, "backup job 17"), "the label is not shown: %s", out);
		free(out);
	}
	t_release(ls);
}

/* ---------------------------------------------------------------- tokens under kill and pause */
struct ledger { volatile uint64_t highest; volatile int stop; volatile long grants; };
static struct ledger *ledger;

/* A store that refuses whoever was overtaken; in one cluster without partitions nobody is. */
static void writer(int fd, void *arg)
{
	uint64_t mine, seen;

	(void)fd;
	(void)arg;
	ls = t_open(t_space_name());
	while (!ledger->stop) {
		t_get(&a, ls, LKM_EXMODE, 0, "store");
		mine = token(&a);
		seen = __sync_val_compare_and_swap(&ledger->highest, ledger->highest, mine);
		CHECK(seen < mine, "token %llx after %llx", (unsigned long long)mine,
		      (unsigned long long)seen);
		__sync_fetch_and_add(&ledger->grants, 1);
		if (t_random() % 8 == 0)
			t_sleep_us(t_random() % 2000);
		EQUAL(ledger->highest == mine, 1, "still the newest while it holds");
		t_drop(&a);
	}
}

static void tokens_under_fire(void)
{
	struct t_proc p[6];
	long end;
	int i, k;

	ledger = t_shared(sizeof *ledger);
	ls = t_create();
	for (i = 0; i < 6; i++)
		p[i] = t_spawn(writer, NULL);
	for (end = t_now() + t_scaled(2000, 300000); t_now() < end;) {
		t_sleep_us(t_random() % 20000);
		k = t_random() % 6;
		if (t_random() & 1) {
			kill(p[k].pid, SIGSTOP);
			t_sleep_us(t_random() % 10000);
			kill(p[k].pid, SIGCONT);
		} else {
			t_kill(&p[k]);
			p[k] = t_spawn(writer, NULL);
		}
	}
	ledger->stop = 1;
	for (i = 0; i < 6; i++)
		t_join(&p[i]);
	CHECK(ledger->grants > 0, "no grants");
	t_release(ls);
}

static const struct t_test tests[] = {
	{"ext-token", "tokens of one name only grow", tokens, 0},
	{"BL-074", "tokens and holders under kill and pause", tokens_under_fire, 400},
	{"ext-status", "what the status query tells", status, 0},
	{"BL-100", "the status query never blocks", status_never_blocks, 0},
	{"ext-timeout", "a timed wait ends and leaves nothing", timed_wait, 0},
	{"BL-125w", "a timed wait that races with its grant", timed_wait_races, 300},
	{"ext-loss", "the loss callback comes once", loss, 0},
	{"ext-loss-close", "a loss callback that closes its handle", loss_closes, 0},
	{"ext-label", "a label is shown by dlm_tool", label, 0},
};
T_MAIN(tests)
