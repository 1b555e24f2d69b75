/* Other processes: plain children in lockstep, and agents; see t.h. */
#include "t.h"
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

struct t_proc t_spawn(void (*fn)(int fd, void *arg), void *arg)
{
	struct t_proc p;
	int pair[2];

	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), "socketpair: %m");
	fflush(NULL);
	p.pid = fork();
	CHECK(p.pid >= 0, "fork: %m");
	if (!p.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		fn(pair[1], arg);
		exit(0);
	}
	close(pair[1]);
	p.fd = pair[0];
	return p;
}

void t_put(int fd, char c)
{
	CHECK(send(fd, &c, 1, MSG_NOSIGNAL) == 1, "the other process is gone (sending '%c'): %m", c);
}

char t_get_byte(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	long end = t_now() + T_GUARD_MS + T_GUARD_MS / 2;
	char c = 0;
	int got;

	do
		got = poll(&p, 1, T_GUARD_MS);
	while (got < 0 && errno == EINTR && t_now() < end);
	CHECK(got == 1, "the other process says nothing");
	got = recv(fd, &c, 1, 0);
	return got == 1 ? c : 0;
}

void t_expect(struct t_proc *p, char c)
{
	char got = t_get_byte(p->fd);

	CHECK(got == c, "process %d said '%c', expected '%c'", (int)p->pid, got ? got : '0', c);
}

void *t_shared(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED, "mmap: %m");
	return at;
}

int t_reap(struct t_proc *p)
{
	int status = 0;

	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
	while (waitpid(p->pid, &status, 0) < 0)
		CHECK(errno == EINTR, "waitpid %d: %m", (int)p->pid);
	p->pid = 0;
	return status;
}

void t_join(struct t_proc *p)
{
	pid_t pid = p->pid;
	int status;

	t_step("waiting for process %d to end", (int)pid);
	status = t_reap(p);
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status), "process %d ended with wait status 0x%x",
	      (int)pid, status);
}

void t_kill(struct t_proc *p)
{
	kill(p->pid, SIGKILL);
	t_reap(p);
}

/* ---------------------------------------------------------------- the agent's side */
static struct t_lock *slots;

static void obey(const struct t_order *o, struct t_answer *a, dlm_lshandle_t ls)
{
	struct t_lock *l = &slots[o->slot];
	uint64_t limit = o->timeout;
	uint32_t flags = o->flags;

	errno = 0;
	switch (o->op) {
	case A_LOCK:
		memcpy(l->lvb, o->lvb, sizeof l->lvb);
		if (limit) {
			char name[DLM_RESNAME_MAXLEN + 1] = "";

			memcpy(name, o->name, o->len);
			a->ret = t_try_timed(l, ls, o->mode, flags, name, limit);
		} else
			a->ret = t_try_lockn(l, ls, o->mode, flags, o->name, o->len);
		break;
	case A_CONVERT:
	case A_UNLOCK:
		l->ls = ls;
		memcpy(l->lvb, o->lvb, sizeof l->lvb);
		if (o->id)
			l->sb.sb_lkid = o->id;
		a->ret = o->op == A_UNLOCK ? t_try_unlock(l, flags) :
			limit ? t_try_timed(l, ls, o->mode, flags | LKF_CONVERT, "", limit) :
			t_try_convert(l, o->mode, flags);
		break;
	case A_DONE:
		t_done(l);
		break;
	case A_SETTLE:
		t_settle(ls);
		break;
	case A_PURGE:
		a->ret = dlm_ls_purge(ls, 0, o->id);
		break;
	}
	a->err = a->ret ? errno : 0;
	a->status = o->op == A_DONE || o->op == A_SETTLE ? l->status : l->sb.sb_status;
	a->flags = l->flags;
	a->asts = l->asts;
	a->basts = l->basts;
	a->early = l->early;
	a->id = l->sb.sb_lkid;
	memcpy(a->lvb, l->lvb, sizeof a->lvb);
}

static void agent(int fd, void *space)
{
	dlm_lshandle_t ls = t_open(space);
	struct pollfd p[2] = {
		{.fd = fd, .events = POLLIN},
		{.fd = dlm_ls_get_fd(ls), .events = POLLIN},
	};
	struct t_order o;
	int deaf = 0, got;

	slots = calloc(T_SLOTS, sizeof *slots);
	t_put(fd, 'o');
	for (;;) {
		struct t_answer a = {0};

		if (poll(p, deaf ? 1 : 2, -1) < 0)
			continue;
		if (!deaf && p[1].revents & POLLIN)
			dlm_dispatch(p[1].fd);
		if (!p[0].revents)
			continue;
		got = recv(fd, &o, sizeof o, 0);
		if (got != sizeof o)
			exit(0);	/* the parent is done with us */
		if (o.op == A_DEAF)
			deaf = o.slot;
		else if (o.op == A_CLOSE)
			a.ret = dlm_close_lockspace(ls);
		else
			obey(&o, &a, ls);
		if (send(fd, &a, sizeof a, MSG_NOSIGNAL) != sizeof a || o.op == A_CLOSE)
			exit(0);
	}
}

/* ---------------------------------------------------------------- the test's side */
struct t_proc t_agent(const char *space)
{
	struct t_proc p = t_spawn(agent, (void *)space);

	t_expect(&p, 'o');
	return p;
}

struct t_answer t_ask(struct t_proc *p, const struct t_order *o)
{
	struct pollfd f = {.fd = p->fd, .events = POLLIN};
	struct t_answer a = {0};

	CHECK(send(p->fd, o, sizeof *o, MSG_NOSIGNAL) == sizeof *o, "agent %d is gone", (int)p->pid);
	CHECK(poll(&f, 1, T_GUARD_MS + T_GUARD_MS / 2) == 1, "agent %d does not answer (order %d)",
	      (int)p->pid, o->op);
	CHECK(recv(p->fd, &a, sizeof a, 0) == sizeof a, "agent %d is gone", (int)p->pid);
	return a;
}

struct t_answer t_agent_lock(struct t_proc *p, int slot, int mode, uint32_t flags,
			     const char *name)
{
	struct t_order o = {.op = A_LOCK, .slot = slot, .mode = mode, .flags = flags};

	o.len = strlen(name);
	memcpy(o.name, name, o.len);
	return t_ask(p, &o);
}

struct t_answer t_agent_convert(struct t_proc *p, int slot, int mode, uint32_t flags)
{
	return t_ask(p, &(struct t_order){.op = A_CONVERT, .slot = slot, .mode = mode, .flags = flags});
}

struct t_answer t_agent_unlock(struct t_proc *p, int slot, uint32_t flags)
{
	return t_ask(p, &(struct t_order){.op = A_UNLOCK, .slot = slot, .flags = flags});
}

struct t_answer t_agent_look(struct t_proc *p, int slot)
{
	return t_ask(p, &(struct t_order){.op = A_SETTLE, .slot = slot});
}

int t_agent_done(struct t_proc *p, int slot)
{
	return t_ask(p, &(struct t_order){.op = A_DONE, .slot = slot}).status;
}

void t_agent_get(struct t_proc *p, int slot, int mode, uint32_t flags, const char *name)
{
	struct t_answer a = t_agent_lock(p, slot, mode, flags, name);

	EQUAL(a.ret, 0, "an agent's lock call");
	EQUAL(t_agent_done(p, slot), 0, "status of an agent's lock that must be granted");
}

void t_agent_drop(struct t_proc *p, int slot)
{
	EQUAL(t_agent_unlock(p, slot, 0).ret, 0, "an agent's unlock call");
	EQUAL(t_agent_done(p, slot), EUNLOCK, "status of an agent's unlock");
}

void t_agent_end(struct t_proc *p)
{
	EQUAL(t_ask(p, &(struct t_order){.op = A_CLOSE}).ret, 0, "an agent's close");
	t_join(p);
}

void t_kill_seen(struct t_proc *p, dlm_lshandle_t ls)
{
	struct t_lock l = {.ls = ls};

	t_agent_get(p, T_SLOTS - 1, LKM_EXMODE, 0, "alive");
	kill(p->pid, SIGKILL);
	t_get(&l, ls, LKM_EXMODE, 0, "alive");
	t_drop(&l);
	t_reap(p);
}
