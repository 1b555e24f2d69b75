/*
 * turns LAST: a number passed from process to process in the value block of one lock.
 *
 * Whoever holds the lock adds one. It keeps the lock until its blocking callback says that
 * somebody else wants it; going down to NL stores the number and lets the next one in. It begins
 * with a line of its input, so that all are there, and leaves at the end of it.
 */
#include "demo.h"

int main(int argc, char **argv)
{
	struct lock l = {.completed = 0};
	int last, told;
	char line[64];

	if (argc != 2) return 2;
	last = atoi(argv[1]);
	join();
	get(&l, "number", LKM_NLMODE, 0);
	printf("is ready\n");
	if (!fgets(line, sizeof line, stdin)) return 1;
	for (;;) {
		told = l.wanted;	/* the other one may ask as soon as we have it */
		get(&l, "number", LKM_EXMODE, LKF_CONVERT);
		if (atoi(l.value) >= last) break;
		snprintf(l.value, sizeof l.value, "%d", atoi(l.value) + 1);
		printf("makes it %s\n", l.value);
		if (atoi(l.value) < last) wait_for(&l.wanted, told);
		usleep(30000);		/* nobody is left out because it was slow to start */
		get(&l, "number", LKM_NLMODE, LKF_CONVERT);
	}
	get(&l, "number", LKM_NLMODE, LKF_CONVERT);
	printf("sees %s and stops\n", l.value);
	/* if the node that masters the name left now, it would take the number along */
	while (fgets(line, sizeof line, stdin)) ;
	drop(&l);
	if (dlm_release_lockspace("demo", space, 1)) die("dlm_release_lockspace");
	return 0;
}
