/* Lockspaces and asynchronous locks, dispatched by hand, in both libraries the same; see t.h. */
#include "t.h"

struct t_event t_events[4096];
volatile int t_event_count;

const char *t_space_name(void)
{
	static char name[32];
	static pid_t owner;

	if (!owner) {	/* children of the test keep their parent's name */
		owner = getpid();
		snprintf(name, sizeof name, "t%d", (int)owner);
	}
	return name;
}

dlm_lshandle_t t_create(void)
{
	dlm_lshandle_t ls = dlm_create_lockspace(t_space_name(), 0600);

	if (!ls && getenv("DLM_TEST_NO_DAEMON"))
		t_skip("no daemon here");
	CHECK(ls, "create lockspace %s: %m", t_space_name());
	return ls;
}

dlm_lshandle_t t_open(const char *name)
{
	dlm_lshandle_t ls = dlm_open_lockspace(name);

	CHECK(ls, "open lockspace %s: %m", name);
	return ls;
}

void t_release(dlm_lshandle_t ls)
{
	ACCEPTED(dlm_release_lockspace(t_space_name(), ls, 2));
}

/* ---------------------------------------------------------------- callbacks */
static void log_event(struct t_lock *l, char kind)
{
	int at = __sync_fetch_and_add(&t_event_count, 1) % T_COUNT(t_events);

	t_events[at] = (struct t_event){l, kind, l->sb.sb_status};
}

void t_ast(void *arg)
{
	struct t_lock *l = arg;

	l->status = l->sb.sb_status;
	l->flags = (unsigned char)l->sb.sb_flags;
	log_event(l, 'a');
	if (l->on_ast)
		l->on_ast(l);
	__sync_fetch_and_add(&l->asts, 1);
}

void t_bast(void *arg)
{
	struct t_lock *l = arg;

	if (!l->asts)
		l->early++;
	log_event(l, 'b');
	if (l->on_bast)
		l->on_bast(l);
	__sync_fetch_and_add(&l->basts, 1);
}

/* ---------------------------------------------------------------- calls */
static void prepare(struct t_lock *l, dlm_lshandle_t ls)
{
	l->ls = ls;
	l->sb.sb_lvbptr = l->lvb;
	l->sb.sb_lkid = 0;
	l->asts = l->basts = l->seen = l->early = l->status = l->flags = 0;
}

int t_try_lockn(struct t_lock *l, dlm_lshandle_t ls, int mode, uint32_t flags, const void *name,
		unsigned len)
{
	prepare(l, ls);
	return dlm_ls_lock(ls, mode, &l->sb, flags, name, len, 0, t_ast, l, t_bast, NULL);
}

int t_try_lock(struct t_lock *l, dlm_lshandle_t ls, int mode, uint32_t flags, const char *name)
{
	return t_try_lockn(l, ls, mode, flags, name, strlen(name));
}

int t_try_timed(struct t_lock *l, dlm_lshandle_t ls, int mode, uint32_t flags, const char *name,
		uint64_t centiseconds)
{
	if (!(flags & LKF_CONVERT))
		prepare(l, ls);
	return dlm_ls_lockx(ls, mode, &l->sb, flags | LKF_TIMEOUT, name, strlen(name), 0, t_ast, l,
			    t_bast, NULL, &centiseconds);
}

int t_try_convert(struct t_lock *l, int mode, uint32_t flags)
{
	return dlm_ls_lock(l->ls, mode, &l->sb, flags | LKF_CONVERT, NULL, 0, 0, t_ast, l, t_bast,
			   NULL);
}

int t_try_unlock(struct t_lock *l, uint32_t flags)
{
	return dlm_ls_unlock(l->ls, l->sb.sb_lkid, flags, &l->sb, l);
}

void t_lock(struct t_lock *l, dlm_lshandle_t ls, int mode, uint32_t flags, const char *name)
{
	ACCEPTED(t_try_lock(l, ls, mode, flags, name));
}

void t_convert(struct t_lock *l, int mode, uint32_t flags)
{
	ACCEPTED(t_try_convert(l, mode, flags));
}

void t_unlock(struct t_lock *l, uint32_t flags)
{
	ACCEPTED(t_try_unlock(l, flags));
}

void t_pump(dlm_lshandle_t ls, int ms)
{
	struct pollfd p = {.fd = dlm_ls_get_fd(ls), .events = POLLIN};

	if (poll(&p, 1, ms) < 0 && errno != EINTR)
		t_fail("poll: %m");
	if (p.revents & POLLIN)
		ACCEPTED(dlm_dispatch(p.fd));
}

int t_done(struct t_lock *l)
{
	PUMP_UNTIL(l->ls, l->asts > l->seen);
	l->seen++;
	return l->status;
}

void t_get(struct t_lock *l, dlm_lshandle_t ls, int mode, uint32_t flags, const char *name)
{
	t_lock(l, ls, mode, flags, name);
	EQUAL(t_done(l), 0, "status of a lock that must be granted");
	CHECK(l->sb.sb_lkid, "a granted lock has no id");
}

void t_regrant(struct t_lock *l, int mode, uint32_t flags)
{
	t_convert(l, mode, flags);
	EQUAL(t_done(l), 0, "status of a conversion that must be granted");
}

void t_drop(struct t_lock *l)
{
	t_unlock(l, 0);
	EQUAL(t_done(l), EUNLOCK, "status of an unlock");
}

int t_is_free(dlm_lshandle_t ls, int mode, const char *name)
{
	struct t_lock l = {.ls = ls};
	int status;

	t_lock(&l, ls, mode, LKF_NOQUEUE, name);
	status = t_done(&l);
	if (!status)
		t_drop(&l);
	else
		EQUAL(status, EAGAIN, "status of a refused NOQUEUE request");
	return !status;
}

void t_settle(dlm_lshandle_t ls)
{
	struct t_lock l = {.ls = ls};

	t_get(&l, ls, LKM_NLMODE, LKF_EXPEDITE, "settle");
	t_drop(&l);
}

/* ---------------------------------------------------------------- blocking calls */
void t_threaded(dlm_lshandle_t ls)
{
#ifdef LT
	(void)ls;
#else
	ACCEPTED(dlm_ls_pthread_init(ls));
#endif
}

int t_wait_lock(dlm_lshandle_t ls, struct dlm_lksb *sb, int mode, uint32_t flags, const char *name)
{
	errno = 0;
	if (dlm_ls_lock_wait(ls, mode, sb, flags, name, strlen(name), 0, NULL, NULL, NULL))
		return errno;
	return sb->sb_status;
}

int t_wait_unlock(dlm_lshandle_t ls, struct dlm_lksb *sb, uint32_t flags)
{
	errno = 0;
	if (dlm_ls_unlock_wait(ls, sb->sb_lkid, flags, sb))
		return errno;
	return sb->sb_status;
}
