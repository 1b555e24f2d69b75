/*
 * door NAME: takes a lock exclusively, leaves its name in the value block, and never gives it back
 * until standard input ends.
 */
#include "demo.h"

int main(int argc, char **argv)
{
	struct lock l = {.completed = 0};
	struct pollfd p[2] = {{.fd = 0, .events = POLLIN}, {.events = POLLIN}};
	char byte;
	int told = 0;

	if (argc != 2) return 2;
	join();
	ask(&l, "door", LKM_EXMODE, 0);
	printf("asks for the door\n");
	wait_for(&l.completed, 0);
	if (l.sb.sb_status) { errno = l.sb.sb_status; die("not granted"); }
	printf("has the door; value block: \"%.32s\", %s\n", l.value,
	       l.sb.sb_flags & DLM_SBF_VALNOTVALID ? "NOT VALID (its writer died)" : "valid");
	snprintf(l.value, sizeof l.value, "last used by %s", argv[1]);
	get(&l, "door", LKM_EXMODE, LKF_CONVERT);	/* stores the value and keeps the lock */
	printf("wrote \"%.32s\" into the value block\n", l.value);
	p[1].fd = dlm_ls_get_fd(space);
	for (;;) {
		if (poll(p, 2, -1) < 0) continue;
		if (p[1].revents) dlm_dispatch(p[1].fd);
		if (l.wanted != told) printf("is told that somebody waits, and keeps the door\n");
		told = l.wanted;
		if (p[0].revents && read(0, &byte, 1) <= 0) break;
	}
	drop(&l);
	printf("gives the door back\n");
	if (dlm_release_lockspace("demo", space, 1)) die("dlm_release_lockspace");
	return 0;
}
