/*
 * rounds LOCK: takes a lock and gives it back, over and over, and says at each line of its input
 * how often it did. It ends with its input.
 */
#include "demo.h"

int main(int argc, char **argv)
{
	struct lock l = {.completed = 0};
	struct pollfd p = {.fd = 0, .events = POLLIN};
	unsigned rounds = 0;
	char line[64];

	if (argc != 2) return 2;
	setvbuf(stdin, NULL, _IONBF, 0);
	join();
	for (;;) {
		get(&l, argv[1], LKM_EXMODE, 0);
		drop(&l);
		if (!rounds++) printf("goes round with %s\n", argv[1]);
		if (poll(&p, 1, 1) <= 0) continue;
		if (!fgets(line, sizeof line, stdin)) break;
		printf("%u rounds\n", rounds);
	}
	if (dlm_release_lockspace("demo", space, 1)) die("dlm_release_lockspace");
	return 0;
}
