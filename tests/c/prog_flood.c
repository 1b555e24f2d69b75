/*
 * flood: asynchronous CR locks as many as go, each unlocked from inside its own completion
 * callback; the count rises and never stalls.
 * @test libs=dlm,lt
 */
#include "t.h"

#define FLYING 1000
static dlm_lshandle_t ls;
static long begun, ended, flying, highest;

struct drop { struct t_lock l; };

static void landed(void *arg)
{
	struct drop *d = arg;

	if (d->l.sb.sb_status == EUNLOCK) {
		ended++;
		flying--;
		free(d);
		return;
	}
	EQUAL(d->l.sb.sb_status, 0, "status of a CR request");
	ACCEPTED(dlm_ls_unlock(ls, d->l.sb.sb_lkid, 0, &d->l.sb, d));
}

static void flood(void)
{
	long want = t_scaled(20000, 2000000);
	struct pollfd p = {.events = POLLIN};
	struct drop *d;
	char name[20];

	ls = t_create();
	p.fd = dlm_ls_get_fd(ls);
	while (ended < want) {
		while (flying < FLYING && begun < want) {
			d = calloc(1, sizeof *d);
			snprintf(name, sizeof name, "flood%ld", begun % 257);
			ACCEPTED(dlm_ls_lock(ls, LKM_CRMODE, &d->l.sb, 0, name, strlen(name), 0, landed,
					     d, NULL, NULL));
			begun++;
			if (++flying > highest)
				highest = flying;
		}
		EQUAL(poll(&p, 1, T_GUARD_MS), 1, "the flood stalls; poll");
		ACCEPTED(dlm_dispatch(p.fd));
	}
	EQUAL(flying, 0, "locks in flight at the end");
	t_release(ls);
}

static const struct t_test tests[] = {{"flood", "locks unlocked in their callbacks", flood, 600}};
T_MAIN(tests)
