/*
 * hammer - locks names of one lockspace as fast as it gets them and checks that nobody else has them.
 *
 *   hammer BOARD WORKER LOCKSPACE NAMES SEED [KIND]
 *
 * KIND is what it does, values if it is not given:
 *   values  locks, conversions and tries; a null lock on every name keeps its value block, which is checked
 *   bare    the same without the null locks and the blocks: names vanish and come back all the time
 *   try     only NOQUEUE calls
 *   cycle   creates the lockspace, takes one lock, releases the lockspace, without pause
 *
 * BOARD is a file of 8 KiB that all workers of all nodes share: who holds which name, and what each name's
 * value block has to be. A holder marks itself, then looks for others; of two holders at once at least one sees the
 * other. A worker whose lockspace is lost takes its marks away, then closes, and only then opens anew: closing is
 * what makes it harmless to the others.
 *
 * While `hold` is set whoever is granted a lock keeps it, so that the tables of all nodes come to rest.
 *
 *   0 stop  8 exclusion violations  16 value errors  24 opened anew  32 refused calls  40 hold  48 longest try, ms
 *   64 + 8w grants of worker w      1024 + 8n value of name n       2048 + 64n + w mark of worker w on name n
 */
#include <errno.h>
#include <fcntl.h>
#include <libdlm.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define WORKERS 64
#define NAMES_MAX 64

static unsigned char *board;
static int worker, names;
static uint64_t seed;
static enum { VALUES, BARE, TRY, CYCLE } kind;

static _Atomic uint64_t *word(int at) { return (_Atomic uint64_t *)(board + at); }
static _Atomic unsigned char *mark(int name, int who) { return (_Atomic unsigned char *)(board + 2048 + 64 * name + who); }
static void add(int at) { atomic_fetch_add(word(at), 1); }
static int stopped(void) { return atomic_load(word(0)) != 0; }

static unsigned below(unsigned bound)
{
	seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17;
	return (unsigned)(seed >> 11) % bound;
}

static void complain(const char *what, int name, int other)
{
	printf("worker %d: %s on name %d (worker %d)\n", worker, what, name, other);
	fflush(stdout);
}

static void enter(int name, int exclusive)
{
	atomic_store(mark(name, worker), exclusive ? 2 : 1);
	for (int w = 0; w < WORKERS; w++) {
		unsigned char theirs = w == worker ? 0 : atomic_load(mark(name, w));
		if (theirs == 2 || (theirs && exclusive)) {
			add(8);
			complain("two holders", name, w);
		}
	}
}

#define UNKNOWN UINT64_MAX

/*
 * What is read under the lock is what was written last, unless it is said to be invalid; from then on anything
 * may be read, with or without that mark, until the next write (semantics.md 8.5: a mark can die with a master).
 */
static uint64_t check_value(int name, struct dlm_lksb *sb)
{
	uint64_t value, due = atomic_load(word(1024 + 8 * name));

	memcpy(&value, sb->sb_lvbptr, sizeof value);
	if (sb->sb_flags & DLM_SBF_VALNOTVALID) {
		atomic_store(word(1024 + 8 * name), UNKNOWN);
	} else if (due == 1 && value == 0) {
		/* The first writer of all died before it wrote: where no block is stored no mark is shown (L08). */
		atomic_store(word(1024 + 8 * name), 0);
	} else if (due != UNKNOWN && value != due) {
		add(16);
		printf("value %llu instead of %llu\n", (unsigned long long)value, (unsigned long long)due);
		complain("wrong value", name, worker);
		atomic_store(word(1024 + 8 * name), UNKNOWN);
	}
	return value;
}

/* A null lock on every name keeps its value block while nobody else is there. */
static int hold_values(dlm_lshandle_t ls)
{
	for (int name = 0; name < names; name++) {
		static char lvbs[NAMES_MAX][DLM_LVB_LEN];
		struct dlm_lksb sb = {.sb_lvbptr = lvbs[name]};
		char text[32];

		snprintf(text, sizeof text, "name-%d", name);
		if (dlm_ls_lock_wait(ls, LKM_NLMODE, &sb, LKF_VALBLK, text, strlen(text), 0, NULL, NULL, NULL))
			return -1;
	}
	return 0;
}

/* A call failed: -1, and counted where nothing excuses it. */
static int failed(const char *what, const struct dlm_lksb *sb)
{
	if (errno != ENOTRECOVERABLE && errno != EBADF && errno != ENOTCONN) {
		add(32);
		printf("worker %d: %s: %s, status %d\n", worker, what, strerror(errno), sb->sb_status);
		fflush(stdout);
	}
	return -1;
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ull + now.tv_nsec / 1000000;
}

/* A call that may be told to try again: 1 when it has to, -1 when the lockspace is lost. */
static int call(dlm_lshandle_t ls, uint32_t mode, struct dlm_lksb *sb, uint32_t flags, const char *name)
{
	uint64_t begin = now_ms();
	int failure = dlm_ls_lock_wait(ls, mode, sb, flags, name, strlen(name), 0, NULL, NULL, NULL) || sb->sb_status;
	int error = failure && sb->sb_status ? sb->sb_status : errno;

	if (flags & LKF_NOQUEUE) {
		uint64_t took = now_ms() - begin, most = atomic_load(word(48));
		while (took > most && !atomic_compare_exchange_weak(word(48), &most, took)) ;
	}
	if (!failure) return 0;
	if ((flags & LKF_NOQUEUE && error == EAGAIN) || (flags & LKF_CONVERT && error == EDEADLK)) return 1;
	return failed("lock", sb);
}

static void hold(void)
{
	while (atomic_load(word(40)) && !stopped()) usleep(1000);
}

/* A reader becomes a writer, or not, and says so on the board; -1 when the lockspace is lost. */
static int convert(dlm_lshandle_t ls, int name, const char *text, struct dlm_lksb *sb, int *exclusive)
{
	uint32_t flags = LKF_CONVERT | (kind == BARE ? 0 : LKF_VALBLK) | (below(2) ? LKF_NOQUEUE : 0);
	int result = call(ls, LKM_EXMODE, sb, flags, text);

	if (result) return result < 0 ? -1 : 0;
	*exclusive = 1;
	enter(name, 1);
	return 0;
}

/* One lock and unlock; -1 when the lockspace is lost. */
static int once(dlm_lshandle_t ls)
{
	char lvb[DLM_LVB_LEN] = "", text[32];
	struct dlm_lksb sb = {.sb_lvbptr = lvb};
	int name = below(names), exclusive = below(3) > 0, valued = kind == VALUES;
	uint32_t flags = (valued ? LKF_VALBLK : 0) | (kind == TRY || below(5) == 0 ? LKF_NOQUEUE : 0);

	snprintf(text, sizeof text, "name-%d", name);
	int result = call(ls, exclusive ? LKM_EXMODE : LKM_PRMODE, &sb, flags, text);
	if (result) {
		if (result > 0 && kind == TRY) add(64 + 8 * worker);
		return result < 0 ? -1 : 0;
	}
	enter(name, exclusive);
	uint64_t next = valued ? check_value(name, &sb) + 1 : 0;
	if (!exclusive && below(4) == 0) {
		if (convert(ls, name, text, &sb, &exclusive)) return -1;
		if (exclusive && valued) next = check_value(name, &sb) + 1;
	}
	if (below(4) == 0) usleep(below(2000));
	hold();
	if (exclusive && valued) {
		memcpy(lvb, &next, sizeof next);
		atomic_store(word(1024 + 8 * name), next);
	}
	atomic_store(mark(name, worker), 0);
	if (dlm_ls_unlock_wait(ls, sb.sb_lkid, exclusive && valued ? LKF_VALBLK : 0, &sb))
		return -1;
	add(64 + 8 * worker);
	return 0;
}

/* A lockspace that may be there already, one lock in it, and its end; -1 never. */
static void cycle(const char *space)
{
	dlm_lshandle_t ls = dlm_create_lockspace(space, 0600);
	struct dlm_lksb sb = {0};

	if (!ls) {
		add(32);
		printf("worker %d: create: %s\n", worker, strerror(errno));
		return;
	}
	int name = below(names);
	char text[32];
	snprintf(text, sizeof text, "name-%d", name);
	if (!call(ls, LKM_EXMODE, &sb, 0, text)) {
		enter(name, 1);
		atomic_store(mark(name, worker), 0);
		/* Every other time the lock goes with the lockspace. */
		if (below(2)) dlm_ls_unlock_wait(ls, sb.sb_lkid, 0, &sb);
	}
	if (dlm_release_lockspace(space, ls, 1)) failed("release", &sb);
	else add(64 + 8 * worker);
}

int main(int argc, char **argv)
{
	if (argc < 6) return 2;
	const char *what = argc > 6 ? argv[6] : "values";
	int fd = open(argv[1], O_RDWR);
	worker = atoi(argv[2]); names = atoi(argv[4]);
	seed = strtoull(argv[5], NULL, 0) * 0x9e3779b97f4a7c15u + 1;
	kind = !strcmp(what, "bare") ? BARE : !strcmp(what, "try") ? TRY : !strcmp(what, "cycle") ? CYCLE : VALUES;
	board = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || board == MAP_FAILED || worker >= WORKERS || names > NAMES_MAX) return 2;
	while (kind == CYCLE && !stopped()) cycle(argv[3]);
	while (!stopped()) {
		dlm_lshandle_t ls = dlm_create_lockspace(argv[3], 0600);
		if (!ls) {
			usleep(20000);	/* the daemon is not there, or just began a new life */
			continue;
		}
		if (kind != VALUES || !hold_values(ls))
			while (!stopped() && !once(ls)) ;
		for (int n = 0; n < names; n++) atomic_store(mark(n, worker), 0);
		dlm_close_lockspace(ls);
		if (!stopped()) add(24);
	}
	return 0;
}
