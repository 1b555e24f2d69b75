/*
 * debian-dev.c -- written for the kernel's DLM: Debian's header, Debian's library to link with.
 *
 * Run with our library in LD_LIBRARY_PATH it must not notice. It knows nothing of ours: no
 * dlm_ext.h, no dlmx_ call. It prints a line for each check and `N passed, N failed`.
 */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include <libdlm.h>

static int passed, failed;

static void check(const char *what, int good)
{
	printf("%s - %s\n", good ? "ok" : "not ok", what);
	if (good) passed++; else failed++;
}

struct lock {
	struct dlm_lksb sb;
	char value[DLM_LVB_LEN];
	int done, blocking;
};

static void on_done(void *arg) { ((struct lock *)arg)->done++; }
static void on_blocking(void *arg) { ((struct lock *)arg)->blocking++; }

/* dispatches until *flag is what it is to be; the limit only ends a hang */
static int until(dlm_lshandle_t ls, int *flag, int want)
{
	struct pollfd p = {.fd = dlm_ls_get_fd(ls), .events = POLLIN};

	while (*flag < want) {
		if (poll(&p, 1, 20000) != 1) return 0;
		dlm_dispatch(p.fd);
	}
	return *flag == want;
}

static int ask(dlm_lshandle_t ls, struct lock *l, uint32_t mode, uint32_t flags)
{
	l->sb.sb_lvbptr = l->value;
	return dlm_ls_lock(ls, mode, &l->sb, flags, "name", 4, 0, on_done, l, on_blocking, NULL);
}

/* whose library is in this process? */
static int ours(const char *dir)
{
	char line[4096];
	int found = 0;
	FILE *maps = fopen("/proc/self/maps", "r");

	while (maps && fgets(line, sizeof line, maps))
		if (strstr(line, "libdlm") && strstr(line, dir)) found = 1;
	if (maps) fclose(maps);
	return found;
}

int main(int argc, char **argv)
{
	struct lock a, b;
	uint32_t major, minor, patch;
	dlm_lshandle_t ls;
	char name[64];

	if (argc != 2) return 2;
	memset(&a, 0, sizeof a);
	memset(&b, 0, sizeof b);
	snprintf(name, sizeof name, "debian%d", (int)getpid());
	check("the library in use is the one under test", ours(argv[1]));
	check("dlm_kernel_version", dlm_kernel_version(&major, &minor, &patch) == 0 && major >= 6);
	ls = dlm_new_lockspace(name, 0600, DLM_LSFL_NEWEXCL);
	check("a lockspace is made", ls != NULL);
	if (!ls) { printf("%d passed, %d failed\n", passed, failed); return 1; }
	errno = 0;
	check("and is made once", !dlm_new_lockspace(name, 0600, DLM_LSFL_NEWEXCL) && errno == EEXIST);

	check("EX is asked for", ask(ls, &a, LKM_EXMODE, LKF_VALBLK) == 0);
	check("and granted", until(ls, &a.done, 1) && a.sb.sb_status == 0 && a.sb.sb_lkid != 0);
	check("PR is asked for", ask(ls, &b, LKM_PRMODE, LKF_VALBLK) == 0);
	check("the holder is told", until(ls, &a.blocking, 1) && b.done == 0);
	memcpy(a.value, "thirty-two bytes of value, fully", DLM_LVB_LEN);
	check("the holder writes and goes down",
	      ask(ls, &a, LKM_NLMODE, LKF_CONVERT | LKF_VALBLK) == 0 && until(ls, &a.done, 2));
	check("the waiter gets lock and value", until(ls, &b.done, 1) && b.sb.sb_status == 0 &&
	      !memcmp(b.value, a.value, DLM_LVB_LEN));
	check("a refusal is a refusal", ask(ls, &a, LKM_EXMODE, LKF_CONVERT | LKF_NOQUEUE) == 0 &&
	      until(ls, &a.done, 3) && a.sb.sb_status == EAGAIN);
	check("unlock (1)", dlm_ls_unlock(ls, b.sb.sb_lkid, 0, &b.sb, &b) == 0 &&
	      until(ls, &b.done, 2) && b.sb.sb_status == EUNLOCK);
	check("unlock (2)", dlm_ls_unlock_wait(ls, a.sb.sb_lkid, 0, &a.sb) == 0 &&
	      a.sb.sb_status == EUNLOCK);
	check("the lockspace goes", dlm_release_lockspace(name, ls, 1) == 0);
	errno = 0;
	check("and is gone", !dlm_open_lockspace(name) && errno == ENOENT);
	printf("%d passed, %d failed\n", passed, failed);
	return failed != 0;
}
