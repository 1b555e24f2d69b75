/*
 * Both libraries in one process, each loaded for itself: same exported names, no mixing. Loaded and
 * unloaded again while nothing runs.
 * @test libs=none
 */
#include "t.h"
#include <dlfcn.h>

struct lib {
	void *so;
	dlm_lshandle_t (*create)(const char *, mode_t);
	int (*release)(const char *, dlm_lshandle_t, int);
	int (*lock)(dlm_lshandle_t, uint32_t, struct dlm_lksb *, uint32_t, const void *, unsigned,
		    uint32_t, void (*)(void *), void *, void (*)(void *), void *);
	int (*wait)(dlm_lshandle_t, uint32_t, struct dlm_lksb *, uint32_t, const void *, unsigned,
		    uint32_t, void *, void (*)(void *), void *);
	int (*unlock)(dlm_lshandle_t, uint32_t, uint32_t, struct dlm_lksb *, void *);
	int (*unlock_wait)(dlm_lshandle_t, uint32_t, uint32_t, struct dlm_lksb *);
	int (*get_fd)(dlm_lshandle_t);
	int (*dispatch)(int);
	int (*thread)(dlm_lshandle_t);
	dlm_lshandle_t ls;
	struct t_lock l;
};

static void *find(struct lib *lib, const char *name)
{
	void *at = dlsym(lib->so, name);

	CHECK(at, "dlsym %s: %s", name, dlerror());
	return at;
}

static void load(struct lib *lib, const char *name)
{
	char path[400];

	snprintf(path, sizeof path, "%s/%s", getenv("DLM_LIB_DIR") ?: "../../target/release", name);
	lib->so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	CHECK(lib->so, "dlopen: %s", dlerror());
	lib->create = find(lib, "dlm_create_lockspace");
	lib->release = find(lib, "dlm_release_lockspace");
	lib->lock = find(lib, "dlm_ls_lock");
	lib->wait = find(lib, "dlm_ls_lock_wait");
	lib->unlock = find(lib, "dlm_ls_unlock");
	lib->unlock_wait = find(lib, "dlm_ls_unlock_wait");
	lib->get_fd = find(lib, "dlm_ls_get_fd");
	lib->dispatch = find(lib, "dlm_dispatch");
	lib->thread = dlsym(lib->so, "dlm_ls_pthread_init");
}

static int await(struct lib *lib, int completions)
{
	struct pollfd p = {.fd = lib->get_fd(lib->ls), .events = POLLIN};

	while (lib->l.asts < completions) {
		EQUAL(poll(&p, 1, T_GUARD_MS), 1, "poll");
		ACCEPTED(lib->dispatch(p.fd));
	}
	return lib->l.status;
}

static void lock_by(struct lib *lib, uint32_t flags, int want)
{
	lib->l.asts = 0;
	ACCEPTED(lib->lock(lib->ls, LKM_EXMODE, &lib->l.sb, flags, "n", 1, 0, t_ast, &lib->l, t_bast,
			   NULL));
	EQUAL(await(lib, 1), want, "status of a request");
}

static void unlock_by(struct lib *lib)
{
	lib->l.asts = 0;
	ACCEPTED(lib->unlock(lib->ls, lib->l.sb.sb_lkid, 0, &lib->l.sb, &lib->l));
	EQUAL(await(lib, 1), EUNLOCK, "status of an unlock");
}

static void side_by_side(void)
{
	static struct lib one, two;
	struct dlm_lksb sb = {0};
	int i;

	load(&one, "libdlm.so.3");
	load(&two, "libdlm_lt.so.3");
	CHECK(one.thread && !two.thread, "which library has the helper thread");
	CHECK((void *)one.lock != (void *)two.lock, "both names lead to one library");
	CHECK((one.ls = one.create(t_space_name(), 0600)), "create: %m");
	CHECK((two.ls = two.create(t_space_name(), 0600)), "create: %m");
	for (i = 0; i < 50; i++) {
		lock_by(&one, 0, 0);
		lock_by(&two, LKF_NOQUEUE, EAGAIN);
		unlock_by(&one);
		lock_by(&two, LKF_NOQUEUE, 0);
		lock_by(&one, LKF_NOQUEUE, EAGAIN);
		unlock_by(&two);
	}
	lock_by(&one, 0, 0);
	EQUAL(two.wait(two.ls, LKM_EXMODE, &sb, LKF_NOQUEUE, "n", 1, 0, NULL, NULL, NULL), -1,
	      "a refused blocking try in libdlm_lt");
	unlock_by(&one);
	ACCEPTED(one.thread(one.ls));
	ACCEPTED(two.wait(two.ls, LKM_EXMODE, &sb, 0, "n", 1, 0, NULL, NULL, NULL));
	EQUAL(one.wait(one.ls, LKM_EXMODE, &one.l.sb, LKF_NOQUEUE, "n", 1, 0, NULL, NULL, NULL), 0,
	      "a refused blocking try in libdlm");
	EQUAL(one.l.sb.sb_status, EAGAIN, "its status");
	ACCEPTED(two.unlock_wait(two.ls, sb.sb_lkid, 0, &sb));
	ACCEPTED(one.release(t_space_name(), one.ls, 2));
	ACCEPTED(two.release(t_space_name(), two.ls, 2));
	dlclose(one.so);
	dlclose(two.so);
}

static const struct t_test tests[] = {
	{"two-libraries", "libdlm and libdlm_lt in one process", side_by_side, 0},
};
T_MAIN(tests)
