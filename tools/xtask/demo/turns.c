/*
 * turns NAME LAST: a number passed from process to process in the value block of one lock.
 *
 * Whoever holds the lock adds one. It keeps the lock until its blocking callback says that
 * somebody else wants it; going down to NL stores the number and lets the other one in.
 */
#include "demo.h"

int main(int argc, char **argv)
{
	struct lock l = {.completed = 0};
	int last, told;

	if (argc != 3) return 2;
	last = atoi(argv[2]);
	join();
	get(&l, "number", LKM_NLMODE, 0);
	for (;;) {
		told = l.wanted;	/* the other one may ask as soon as we have it */
		get(&l, "number", LKM_EXMODE, LKF_CONVERT);
		if (atoi(l.value) >= last) break;
		snprintf(l.value, sizeof l.value, "%d", atoi(l.value) + 1);
		printf("makes it %s\n", l.value);
		if (atoi(l.value) < last) wait_for(&l.wanted, told);
		get(&l, "number", LKM_NLMODE, LKF_CONVERT);
	}
	printf("sees %s and stops\n", l.value);
	drop(&l);
	if (dlm_release_lockspace("demo", space, 1)) die("dlm_release_lockspace");
	return 0;
}
