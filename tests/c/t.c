/* Verdicts, watchdog and small helpers; see t.h. */
#include "t.h"
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define SKIPPED 77
#define LIMIT_S 60

/* Shared by all processes of a test. The first failure is the one that is shown. */
static struct board {
	volatile int taken;
	char why[1000];
	char step[200];
} *board;

static void say(char *out, size_t size, const char *fmt, va_list ap)
{
	vsnprintf(out, size, fmt, ap);
	for (char *p = out; *p; p++)
		if (*p == '\n')
			*p = ' ';
}

void t_fail_at(const char *file, int line, const char *fmt, ...)
{
	char text[500];
	va_list ap;

	va_start(ap, fmt);
	say(text, sizeof text, fmt, ap);
	va_end(ap);
	if (board && !__sync_lock_test_and_set(&board->taken, 1))
		snprintf(board->why, sizeof board->why, "%s:%d: %s [%s]", file, line, text,
			 board->step);
	_exit(1);
}

void t_skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (board && !__sync_lock_test_and_set(&board->taken, 1))
		say(board->why, sizeof board->why, fmt, ap);
	va_end(ap);
	_exit(SKIPPED);
}

void t_step(const char *fmt, ...)
{
	char text[sizeof board->step];
	va_list ap;

	va_start(ap, fmt);
	say(text, sizeof text, fmt, ap);
	va_end(ap);
	if (board)
		memcpy(board->step, text, sizeof text);
}

const char *t_name(long status)
{
	static __thread char number[4][24];
	static __thread int turn;
	char *out = number[turn++ & 3];
	const char *name;

	switch (status) {
	case 0: return "0";
	case ECANCEL: return "ECANCEL";
	case EUNLOCK: return "EUNLOCK";
	case EINPROG: return "EINPROG";
	}
	name = status > 0 ? strerrorname_np(status) : NULL;
	if (name)
		return name;
	snprintf(out, sizeof number[0], "%ld", status);
	return out;
}

long t_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int t_scaled(int base, int full)
{
	const char *text = getenv("DLM_TEST_SCALE");
	double n = base * (text && *text ? atof(text) : 1.0);

	if (n > full)
		n = full;
	return n < 1 ? 1 : (int)n;
}

unsigned t_random(void)
{
	static __thread uint64_t state;
	const char *seed = getenv("DLM_TEST_SEED");

	if (!state)
		state = ((uint64_t)(seed ? atoll(seed) : 1) << 32 | (uint64_t)gettid()) * 2654435761u | 1;
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state >> 32;
}

void t_sleep_us(unsigned us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000L};

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

/* ---------------------------------------------------------------- the watchdog */
/* 0 ended, -1 the limit came. */
static int wait_for(pid_t pid, int seconds)
{
	int fd = syscall(SYS_pidfd_open, pid, 0), got;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	long end = t_now() + seconds * 1000L, left;

	do {
		left = end - t_now();
		got = poll(&p, 1, left > 0 ? left : 0);
	} while (got < 0 && errno == EINTR);
	close(fd);
	return got == 1 ? 0 : -1;
}

static int ends_well(const struct t_test *t, int status, int stuck)
{
	const char *left;

	if (!stuck && WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
		printf("skip %s %s: %s\n", t->name, t->title, board->why);
		return 1;
	}
	if (stuck)
		printf("not ok %s %s: stuck at: %s %s\n", t->name, t->title, board->step, board->why);
	else if (WIFSIGNALED(status))
		printf("not ok %s %s: killed by signal %d (%s) at: %s\n", t->name, t->title,
		       WTERMSIG(status), strsignal(WTERMSIG(status)), board->step);
	else if (WEXITSTATUS(status) || board->taken)
		printf("not ok %s %s: %s\n", t->name, t->title,
		       board->taken ? board->why : "exited without a word");
	else if (*(left = t_left_overs()))
		printf("not ok %s %s: left behind: %s\n", t->name, t->title, left);
	else {
		printf("ok %s %s\n", t->name, t->title);
		return 1;
	}
	return 0;
}

static int run_one(const struct t_test *t)
{
	int status = 0, stuck;
	pid_t pid;

	memset(board, 0, sizeof *board);
	snprintf(board->step, sizeof board->step, "start");
	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		printf("not ok %s %s: fork: %m\n", t->name, t->title);
		return 0;
	}
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		t->run();
		exit(0);
	}
	stuck = wait_for(pid, t->limit_s ? t->limit_s : LIMIT_S) < 0;
	if (stuck)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return ends_well(t, status, stuck);
}

static int wanted(const char *name, int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++)
		if (strstr(name, argv[i]))
			return 1;
	return argc < 2;
}

int t_main(const struct t_test *tests, int n, int argc, char **argv)
{
	int bad = 0, i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	for (i = 0; i < n; i++)
		if (wanted(tests[i].name, argc, argv))
			bad += !run_one(&tests[i]);
	return bad > 0;
}
