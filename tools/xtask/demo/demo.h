/* What the demo's programs share: one lock, its callbacks, and waiting for them. */
#ifndef DEMO_H
#define DEMO_H
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <libdlm.h>

struct lock {
	struct dlm_lksb sb;
	char value[DLM_LVB_LEN];	/* the value block travels with the lock */
	int completed;			/* completion callbacks so far */
	int wanted;			/* blocking callbacks so far: somebody waits for us */
};

static dlm_lshandle_t space;

static void on_completion(void *arg) { ((struct lock *)arg)->completed++; }
static void on_blocking(void *arg) { ((struct lock *)arg)->wanted++; }

static void die(const char *what)
{
	printf("failed: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void join(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	space = dlm_create_lockspace("demo", 0600);
	if (!space) die("dlm_create_lockspace");
}

/* runs callbacks until one has come */
static inline void wait_for(int *counter, int above)
{
	struct pollfd p = {.fd = dlm_ls_get_fd(space), .events = POLLIN};

	while (*counter <= above)
		if (poll(&p, 1, -1) > 0) dlm_dispatch(p.fd);
}

/* asks, without waiting; with LKF_CONVERT the lock changes its mode */
static inline void ask(struct lock *l, const char *name, unsigned mode, unsigned flags)
{
	l->sb.sb_lvbptr = l->value;
	if (dlm_ls_lock(space, mode, &l->sb, flags | LKF_VALBLK, name, strlen(name), 0,
			on_completion, l, on_blocking, NULL))
		die("dlm_ls_lock");
}

static inline void get(struct lock *l, const char *name, unsigned mode, unsigned flags)
{
	int before = l->completed;

	ask(l, name, mode, flags);
	wait_for(&l->completed, before);
	if (l->sb.sb_status) { errno = l->sb.sb_status; die("not granted"); }
}

static inline void drop(struct lock *l)
{
	int before = l->completed;

	if (dlm_ls_unlock(space, l->sb.sb_lkid, 0, &l->sb, l)) die("dlm_ls_unlock");
	wait_for(&l->completed, before);
	if (l->sb.sb_status != EUNLOCK) die("not unlocked");
}
#endif
