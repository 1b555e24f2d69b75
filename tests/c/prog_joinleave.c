/*
 * joinleave: create a lockspace, stay a moment, release it with force 1, again and again, alone and
 * with others doing the same.
 * @test libs=dlm,lt
 */
#include "t.h"

static void join_leave(int fd, void *name)
{
	int rounds = t_scaled(50, 2000), i;
	dlm_lshandle_t ls;

	for (i = 0; i < rounds; i++) {
		ls = dlm_create_lockspace(name, 0600);
		CHECK(ls, "round %d: create: %m", i);
		t_sleep_us(t_random() % 500);
		ACCEPTED(dlm_release_lockspace(name, ls, 1));
	}
	t_put(fd, 'd');
}

static void several(int n, int same)
{
	struct t_proc p[8];
	char names[8][20];
	int i;

	for (i = 0; i < n; i++) {
		snprintf(names[i], sizeof names[i], "join%d", same ? 0 : i);
		p[i] = t_spawn(join_leave, names[i]);
	}
	for (i = 0; i < n; i++) {
		t_expect(&p[i], 'd');
		t_join(&p[i]);
	}
	for (i = 0; i < n; i++) {
		errno = 0;
		CHECK(!dlm_open_lockspace(names[i]) && errno == ENOENT, "%s is left: %m", names[i]);
	}
}

static void alone(void) { several(1, 1); }
static void apart(void) { several(6, 0); }
static void together(void) { several(6, 1); }

static const struct t_test tests[] = {
	{"joinleave", "one program", alone, 300},
	{"joinleave-6", "six programs, a lockspace each", apart, 300},
	{"joinleave-1", "six programs, one lockspace", together, 300},
};
T_MAIN(tests)
