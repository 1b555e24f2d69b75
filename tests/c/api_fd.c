/*
 * The descriptor of a handle: level-triggered readiness, poll and epoll, dup'ed and passed on, many
 * handles in one loop, no descriptor lost (libdlm-abi.md 2.6, 8).
 * @test libs=dlm,lt
 */
#include "t.h"
#include <sys/epoll.h>
#include <sys/select.h>

static struct t_lock a, b;

static int ready(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT | POLLPRI};

	EQUAL(poll(&p, 1, 0) >= 0, 1, "poll");
	CHECK(!(p.revents & (POLLERR | POLLHUP | POLLNVAL)), "poll says 0x%x", p.revents);
	return !!(p.revents & POLLIN);
}

static void wait_ready(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	EQUAL(poll(&p, 1, T_GUARD_MS), 1, "poll");
	EQUAL(p.revents, POLLIN, "events");
}

static void readiness(void)
{
	dlm_lshandle_t ls = t_create();
	int fd = dlm_ls_get_fd(ls), i;
	fd_set set;

	CHECK(fd >= 0, "descriptor %d", fd);
	CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC, "not close-on-exec");
	EQUAL(ready(fd), 0, "readiness of a new handle");
	ACCEPTED(dlm_dispatch(fd));
	t_lock(&a, ls, LKM_EXMODE, 0, "n");
	wait_ready(fd);
	for (i = 0; i < 5; i++)
		EQUAL(ready(fd), 1, "readiness while a completion waits");
	FD_ZERO(&set);
	FD_SET(fd, &set);
	EQUAL(select(fd + 1, &set, NULL, NULL, NULL), 1, "select");
	EQUAL(a.asts, 0, "callbacks outside dlm_dispatch");
	ACCEPTED(dlm_dispatch(fd));
	EQUAL(a.asts, 1, "callbacks in dlm_dispatch");
	EQUAL(t_done(&a), 0, "status");
	EQUAL(ready(fd), 0, "readiness after dlm_dispatch");
	t_step("calls that make no event do not make it readable");
	t_unlock(&a, LKF_CANCEL);
	REFUSED(dlm_ls_unlock(ls, 0x7ffffff0, 0, &b.sb, &b), ENOENT);
	REFUSED(t_try_convert(&a, 9, 0), EINVAL);
	EQUAL(ready(fd), 0, "readiness after refused calls");
	t_drop(&a);
	t_release(ls);
	REFUSED(dlm_dispatch(-1), EBADF);
	REFUSED(dlm_dispatch(9999), EBADF);
}

/* One dispatch takes everything, also what its own callbacks ask for at once. */
static void drains(void)
{
	static struct t_lock many[300];
	dlm_lshandle_t ls = t_create();
	int i, fd = dlm_ls_get_fd(ls);
	char name[16];

	for (i = 0; i < 300; i++) {
		snprintf(name, sizeof name, "n%d", i);
		t_lock(&many[i], ls, LKM_EXMODE, 0, name);
	}
	wait_ready(fd);
	ACCEPTED(dlm_dispatch(fd));
	for (i = 0; i < 300; i++)
		EQUAL(many[i].asts, 1, "completions after one dispatch");
	EQUAL(ready(fd), 0, "readiness after it");
	for (i = 0; i < 300; i++)
		t_unlock(&many[i], 0);
	ACCEPTED(dlm_dispatch(fd));
	for (i = 0; i < 300; i++)
		EQUAL(many[i].asts, 2, "completions after two dispatches");
	for (i = 0; i < 300; i++)
		CHECK(t_events[i].lock == &many[i], "completion %d is out of order", i);
	t_release(ls);
}

static void copies(void)
{
	dlm_lshandle_t ls = t_create();
	int fd = dlm_ls_get_fd(ls), copy = dup(fd), other = fcntl(fd, F_DUPFD_CLOEXEC, 200);
	int ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event e = {.events = EPOLLIN}, got;

	t_lock(&a, ls, LKM_EXMODE, 0, "n");
	wait_ready(copy);
	ACCEPTED(dlm_dispatch(copy));
	EQUAL(a.asts, 1, "completions through a dup'ed descriptor");
	CHECK(!epoll_ctl(ep, EPOLL_CTL_ADD, other, &e), "epoll_ctl: %m");
	EQUAL(epoll_wait(ep, &got, 1, 0), 0, "epoll before");
	t_unlock(&a, 0);
	EQUAL(epoll_wait(ep, &got, 1, T_GUARD_MS), 1, "epoll");
	EQUAL(epoll_wait(ep, &got, 1, 0), 1, "epoll again: level-triggered");
	ACCEPTED(dlm_dispatch(other));
	EQUAL(a.asts, 2, "completions through a second copy");
	EQUAL(epoll_wait(ep, &got, 1, 0), 0, "epoll after");
	close(copy);
	close(other);
	close(ep);
	t_get(&a, ls, LKM_EXMODE, 0, "n");
	t_drop(&a);
	t_release(ls);
}

/* A copy that outlives its handle, and a number that now means another file. */
static void stale_numbers(void)
{
	dlm_lshandle_t ls = t_create(), two;
	int fd = dlm_ls_get_fd(ls), copy = dup(fd), plain[2];

	EQUAL(dlm_close_lockspace(ls), 0, "close");
	if (dlm_dispatch(copy))
		EQUAL(errno, EBADF, "errno for a copy of a closed handle");
	close(copy);
	CHECK(!pipe(plain), "pipe: %m");
	EQUAL(dlm_dispatch(plain[0]) == 0, 0, "success of dispatch on a pipe");
	two = t_open(t_space_name());
	t_get(&a, two, LKM_EXMODE, 0, "n");
	t_drop(&a);
	close(plain[0]);
	close(plain[1]);
	t_release(two);
}

#define SPACES 40
static void many_handles(void)
{
	static struct t_lock l[SPACES];
	dlm_lshandle_t ls = t_create(), h[SPACES];
	int before, i, left = SPACES;
	struct pollfd p[SPACES];

	h[0] = t_open(t_space_name());
	t_get(&a, h[0], LKM_NLMODE, 0, "n");	/* whatever is opened once is open now */
	EQUAL(dlm_close_lockspace(h[0]), 0, "close");
	before = t_descriptors(getpid());
	for (i = 0; i < SPACES; i++) {
		h[i] = t_open(t_space_name());
		t_lock(&l[i], h[i], LKM_EXMODE, 0, "n");
		p[i] = (struct pollfd){.fd = dlm_ls_get_fd(h[i]), .events = POLLIN};
	}
	while (left) {
		EQUAL(poll(p, SPACES, T_GUARD_MS) > 0, 1, "poll");
		for (i = 0; i < SPACES; i++)
			if (p[i].revents) {
				t_drop((t_done(&l[i]), &l[i]));
				p[i].fd = -1;
				left--;
			}
	}
	for (i = 0; i < SPACES; i++)
		EQUAL(dlm_close_lockspace(h[i]), 0, "close");
	EQUAL(t_descriptors(getpid()), before, "descriptors after close");
	t_release(ls);
}

static const struct t_test tests[] = {
	{"fd-ready", "readable while, and only while, something waits", readiness, 0},
	{"fd-drain", "one dispatch takes all, in order", drains, 0},
	{"fd-dup", "dup'ed descriptors, epoll", copies, 0},
	{"fd-stale", "descriptors that outlive their handle", stale_numbers, 0},
	{"fd-many", "forty handles in one loop; descriptors come back", many_handles, 0},
};
T_MAIN(tests)
