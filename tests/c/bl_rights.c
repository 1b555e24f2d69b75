/*
 * Who may create and open (bug-log.md BL-122): owner, group and mode of a lockspace count as those
 * of its device node would. Needs root, to become others.
 * @test libs=dlm,lt
 */
#include "t.h"
#include <grp.h>
#include <sys/stat.h>

static struct t_lock a;

struct who { uid_t uid; gid_t gid; const char *name; int want; };

static void try_open(int fd, void *arg)
{
	struct who *w = arg;
	dlm_lshandle_t ls;
	int code;

	CHECK(!setgroups(0, NULL) && !setgid(w->gid) && !setuid(w->uid), "becoming %d: %m", w->uid);
	if (t_has_tool()) {	/* listing the locks needs the right to open */
		free(t_tool(&code, "lockdump --json %s", w->name));
		EQUAL(code, w->want ? 1 : 0, "exit code of lockdump --json");
	}
	errno = 0;
	ls = dlm_open_lockspace(w->name);
	if (w->want)
		CHECK(!ls && errno == w->want, "open as %d/%d: %p, %m", w->uid, w->gid, ls);
	else {
		CHECK(ls, "open as %d/%d: %m", w->uid, w->gid);
		t_get(&a, ls, LKM_EXMODE, 0, "n");
		t_drop(&a);
		EQUAL(dlm_close_lockspace(ls), 0, "close");
	}
	t_put(fd, 'd');
}

static void opens(uid_t uid, gid_t gid, const char *name, int want)
{
	struct who w = {uid, gid, name, want};
	struct t_proc p = t_spawn(try_open, &w);

	t_expect(&p, 'd');
	t_join(&p);
}

static void need_root(void)
{
	char dir[200], *slash;

	if (geteuid())
		t_skip("only root can become somebody else");
	snprintf(dir, sizeof dir, "%.199s", getenv("DLM_SOCKET") ?: "");
	if ((slash = strrchr(dir, '/')))
		*slash = 0;
	chmod(dir, 0755);	/* the runner's own directory: others must reach the socket */
}

static void modes(void)
{
	static const struct { mode_t mode; int group, stranger; } rows[] = {
		{0600, EACCES, EACCES}, {0660, 0, EACCES}, {0666, 0, 0}, {0606, EACCES, 0},
	};
	unsigned i;

	need_root();
	for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		dlm_lshandle_t ls = dlm_create_lockspace(t_space_name(), rows[i].mode);

		t_step("mode %o", rows[i].mode);
		CHECK(ls, "create: %m");
		opens(0, 0, t_space_name(), 0);
		opens(65534, 0, t_space_name(), rows[i].group);
		opens(65534, 65534, t_space_name(), rows[i].stranger);
		t_release(ls);
	}
}

static void try_create(int fd, void *arg)
{
	(void)arg;
	CHECK(!setgroups(0, NULL) && !setgid(65534) && !setuid(65534), "setuid: %m");
	errno = 0;
	CHECK(!dlm_create_lockspace("stranger", 0600), "a stranger may create");
	CHECK(errno == EPERM || errno == EACCES, "errno of a stranger's create: %m");
	errno = 0;
	CHECK(!dlm_open_lockspace("nobody made this") && errno == ENOENT, "open: %m");
	t_put(fd, 'd');
}

static void strangers_create(void)
{
	struct t_proc p;

	need_root();
	p = t_spawn(try_create, NULL);
	t_expect(&p, 'd');
	t_join(&p);
}

/* A stranger who may open a lockspace still cannot remove it. */
static void try_release(int fd, void *arg)
{
	dlm_lshandle_t ls;

	(void)arg;
	CHECK(!setgroups(0, NULL) && !setgid(65534) && !setuid(65534), "setuid: %m");
	ls = t_open(t_space_name());
	dlm_release_lockspace(t_space_name(), ls, 2);	/* returns 0 whatever the answer was */
	t_put(fd, 'd');
}

static void strangers_release(void)
{
	dlm_lshandle_t ls;
	struct t_proc p;

	need_root();
	ls = dlm_create_lockspace(t_space_name(), 0666);
	CHECK(ls, "create: %m");
	t_get(&a, ls, LKM_EXMODE, 0, "n");
	p = t_spawn(try_release, NULL);
	t_expect(&p, 'd');
	t_join(&p);
	t_regrant(&a, LKM_PRMODE, 0);
	EQUAL(dlm_close_lockspace(t_open(t_space_name())), 0, "the lockspace is still there");
	t_release(ls);
}

static const struct t_test tests[] = {
	{"BL-122", "the mode of a lockspace decides who opens it", modes, 0},
	{"BL-122c", "strangers do not create", strangers_create, 0},
	{"BL-122r", "strangers do not release", strangers_release, 0},
};
T_MAIN(tests)
