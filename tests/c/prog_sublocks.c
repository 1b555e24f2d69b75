/*
 * sublocks: a tree of blocking locks in the default lockspace, each naming its parent's id, which
 * is passed on and has no effect. The original hangs here with libdlm unless a helper thread runs.
 * @test libs=dlm,lt
 */
#include "t.h"

#define DEPTH 4
#define CHILDREN 3
static int made;

static void branch(const char *parent_name, uint32_t parent, int depth)
{
	struct dlm_lksb sb[CHILDREN];
	char name[CHILDREN][DLM_RESNAME_MAXLEN];
	int i;

	memset(sb, 0, sizeof sb);
	for (i = 0; i < CHILDREN; i++) {
		snprintf(name[i], sizeof name[i], "%.40s-%d", parent_name, i);
		ACCEPTED(dlm_lock_wait(LKM_EXMODE, &sb[i], 0, name[i], strlen(name[i]), parent, NULL,
				       NULL, NULL));
		EQUAL(sb[i].sb_status, 0, "lock failed; status");
		CHECK(sb[i].sb_lkid && sb[i].sb_lkid != parent, "id %08x", sb[i].sb_lkid);
		made++;
		if (depth > 1)
			branch(name[i], sb[i].sb_lkid, depth - 1);
	}
	for (i = 0; i < CHILDREN; i++) {
		ACCEPTED(dlm_unlock_wait(sb[i].sb_lkid, 0, &sb[i]));
		EQUAL(sb[i].sb_status, EUNLOCK, "status of the unlock");
	}
}

static void sublocks(void)
{
	struct dlm_lksb top = {0};

#ifndef LT
	ACCEPTED(dlm_pthread_init());
#endif
	ACCEPTED(dlm_lock_wait(LKM_EXMODE, &top, 0, "top", 3, 0, NULL, NULL, NULL));
	branch("top", top.sb_lkid, DEPTH);
	EQUAL(made, 3 + 9 + 27 + 81, "locks of the tree");
	ACCEPTED(dlm_lock_wait(LKM_NLMODE, &top, LKF_CONVERT, NULL, 0, 0xdead, NULL, NULL, NULL));
	ACCEPTED(dlm_unlock_wait(top.sb_lkid, 0, &top));
#ifndef LT
	ACCEPTED(dlm_pthread_cleanup());
#endif
	t_release_default();
}

static const struct t_test tests[] = {{"sublocks", "a tree of locks with parents", sublocks, 0}};
T_MAIN(tests)
