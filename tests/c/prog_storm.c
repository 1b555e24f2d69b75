/*
 * dlmtest2: one thread, one poll loop, a storm of lockx, conversions, unlocks, forced unlocks and
 * cancels on few names. Every completion is expected, in a state in which it may come; none is
 * missing at the end. EBUSY and ENOENT are legal answers and nothing else is.
 * @test libs=dlm,lt timeout=900
 */
#include "t.h"

struct one {
	struct dlm_lksb sb;
	char lvb[DLM_LVB_LEN];
	int alive;			/* asked for, and no final completion seen */
	int granted;			/* a grant was seen */
	int flying;			/* lock and convert calls whose completion was not seen */
	unsigned noqueue;		/* bit k: the k-th of them has NOQUEUE */
	int unlocks, cancels;		/* accepted */
	long basts;
};

#define MOST 500
static struct one locks[MOST];
static dlm_lshandle_t ls;
static long operations, completions, busy, gone, casts[4];
static int names;

static void bast(void *arg)
{
	((struct one *)arg)->basts++;
}

/* One call in flight has ended; a new lock that failed is gone. */
static void landed(struct one *o, int good)
{
	CHECK(o->flying, "%d: status %s, but no call is in flight", (int)(o - locks),
	      t_name(o->sb.sb_status));
	o->flying--;
	o->noqueue >>= 1;
	o->granted |= good;
	o->alive = o->granted;
	if (!o->flying)
		o->cancels = 0;		/* those that came too late */
}

static void completed(void *arg)
{
	struct one *o = arg;
	int number = (int)(o - locks), status = o->sb.sb_status;

	completions++;
	CHECK(o->alive, "%d: status %s after the last completion", number, t_name(status));
	switch (status) {
	case 0:
		casts[0]++;
		landed(o, 1);
		break;
	case EAGAIN:
	case EDEADLK:
		CHECK(status == EAGAIN ? (int)(o->noqueue & 1) : o->granted, "%d: status %s", number,
		      t_name(status));
		casts[1]++;
		landed(o, 0);
		break;
	case ECANCEL:
		CHECK(o->cancels, "%d: cancelled by nobody", number);
		casts[2]++;
		landed(o, 0);
		break;
	case EUNLOCK:
		CHECK(o->unlocks, "%d: unlocked by nobody", number);
		casts[3]++;
		o->alive = 0;
		break;
	default:
		t_fail("%d: status %d", number, status);
	}
	if (!o->alive)
		o->granted = o->flying = o->noqueue = o->unlocks = o->cancels = 0;
}

/* EBUSY: an operation is in progress. ENOENT: the final completion is on its way. */
static void refused(void)
{
	if (errno == EBUSY)
		busy++;
	else {
		EQUAL(errno, ENOENT, "errno of a refused call");
		gone++;
	}
}

static void ask(struct one *o)
{
	static const uint32_t some[] = {0, 0, 0, LKF_NOQUEUE, LKF_HEADQUE, LKF_NOORDER, LKF_VALBLK,
					LKF_NOQUEUE | LKF_NOQUEUEBAST, LKF_ALTPR, LKF_ALTCW};
	uint32_t flags = some[t_random() % T_COUNT(some)];
	uint64_t xid = o - locks;
	char name[16];

	snprintf(name, sizeof name, "storm%d", (int)(t_random() % names));
	o->noqueue = !!(flags & LKF_NOQUEUE);
	o->flying = o->alive = 1;
	o->sb.sb_lvbptr = o->lvb;
	ACCEPTED(dlm_ls_lockx(ls, t_random() % 6, &o->sb, flags, name, strlen(name), 0, completed, o,
			      bast, &xid, NULL));
}

static void convert(struct one *o)
{
	static const uint32_t some[] = {0, 0, LKF_NOQUEUE, LKF_VALBLK, LKF_NODLCKWT, LKF_CONVDEADLK,
					LKF_HEADQUE, LKF_IVVALBLK};
	uint32_t flags = some[t_random() % T_COUNT(some)];

	errno = 0;
	if (dlm_ls_lockx(ls, t_random() % 6, &o->sb, flags | LKF_CONVERT, NULL, 0, 0, completed, o,
			 bast, NULL, NULL)) {
		refused();
		return;
	}
	/* accepted although something is in flight: its completion waits unread */
	CHECK(o->flying < 30, "%d: conversions are accepted without end", (int)(o - locks));
	if (flags & LKF_NOQUEUE)
		o->noqueue |= 1u << o->flying;
	o->flying++;
}

static void drop(struct one *o, uint32_t flags)
{
	errno = 0;
	if (dlm_ls_unlock(ls, o->sb.sb_lkid, flags, &o->sb, o)) {
		refused();
		return;
	}
	if (flags & LKF_CANCEL)
		o->cancels++;
	else
		o->unlocks++;
}

static void step(void)
{
	struct one *o = &locks[t_random() % t_scaled(100, MOST)];
	unsigned dice = t_random() % 16;

	operations++;
	if (!o->alive)
		ask(o);
	else if (o->unlocks)
		drop(o, 0);		/* once more: refused */
	else if (dice < (o->flying ? 2 : 6))
		convert(o);
	else if (dice < 10)
		drop(o, 0);
	else if (dice < 13)
		drop(o, LKF_CANCEL);
	else
		drop(o, LKF_FORCEUNLOCK);
}

static void dispatch(int ms)
{
	struct pollfd p = {.fd = dlm_ls_get_fd(ls), .events = POLLIN};

	if (poll(&p, 1, ms) == 1)
		ACCEPTED(dlm_dispatch(p.fd));
}

static void storm(void)
{
	int steps = t_scaled(40000, 4000000), i, left = MOST;
	long end;

	ls = t_create();
	names = 10;
	for (i = 0; i < steps; i++) {
		t_step("step %d of %d", i, steps);
		step();
		if (t_random() % 8 == 0)
			dispatch(0);
	}
	t_step("waiting for the rest");
	for (end = t_now() + T_GUARD_MS; t_now() < end;) {
		for (i = left = 0; i < MOST; i++) {
			left += locks[i].alive;
			if (locks[i].alive && !locks[i].unlocks)
				drop(&locks[i], LKF_FORCEUNLOCK);
		}
		if (!left)
			break;
		dispatch(50);
	}
	EQUAL(left, 0, "locks whose completion never came");
	t_settle(ls);
	CHECK(casts[0] && casts[1] && casts[2] && casts[3], "casts: %ld %ld %ld %ld", casts[0],
	      casts[1], casts[2], casts[3]);
	for (i = 0; i < names; i++) {
		char name[16];

		snprintf(name, sizeof name, "storm%d", i);
		CHECK(t_is_free(ls, LKM_EXMODE, name), "%s is not free", name);
	}
	t_release(ls);
}

static const struct t_test tests[] = {{"dlmtest2", "a storm of operations", storm, 300}};
T_MAIN(tests)
