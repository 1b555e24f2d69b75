/* Verdicts, watchdog and small helpers; see t.h. */
#include "t.h"
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#define SKIPPED 77
#define LIMIT_S 200

/* Shared by all processes of a test. The first failure is the one that is shown. */
static struct board {
	volatile int taken;
	volatile int default_used;
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
/* 0 ended, -1 the limit came. SIGCHLD is blocked, so that none is missed between look and sleep. */
static int wait_for(pid_t pid, int seconds)
{
	long end = t_now() + seconds * 1000L, left;
	siginfo_t info;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	for (;;) {
		info.si_pid = 0;
		if (!waitid(P_PID, pid, &info, WEXITED | WNOWAIT | WNOHANG) && info.si_pid == pid)
			return 0;
		left = end - t_now();
		if (left <= 0)
			return -1;
		sigtimedwait(&set, NULL, &(struct timespec){left / 1000, left % 1000 * 1000000L});
	}
}

static pid_t child(void)
{
	sigset_t set;
	pid_t pid = fork();

	if (!pid) {
		sigemptyset(&set);
		sigprocmask(SIG_SETMASK, &set, NULL);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	}
	return pid;
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

void t_release_default(void)
{
	board->default_used = 1;
}

/* In a process of its own: the watchdog itself never opens anything. */
static void clean_up(int all)
{
	pid_t pid = child();

	if (!pid) {
		if (all)
			t_release_all();
		else
			dlm_release_lockspace("default", dlm_open_lockspace("default"), 0);
		_exit(0);
	}
	if (wait_for(pid, 60) < 0)
		kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* $DLM_TEST_LIMIT: slow machines, memory checkers and full counts need longer guards. */
static int longer(void)
{
	const char *text = getenv("DLM_TEST_LIMIT");
	int times = text ? atoi(text) : 1;

	return times > 0 ? times : 1;
}

static int run_one(const struct t_test *t)
{
	int status = 0, stuck;
	pid_t pid;

	memset(board, 0, sizeof *board);
	snprintf(board->step, sizeof board->step, "start");
	fflush(NULL);
	pid = child();
	if (pid < 0) {
		printf("not ok %s %s: fork: %m\n", t->name, t->title);
		return 0;
	}
	if (!pid) {
		t->run();
		exit(0);
	}
	stuck = wait_for(pid, (t->limit_s ? t->limit_s : LIMIT_S) * longer()) < 0;
	if (stuck)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (board->default_used)
		clean_up(0);
	if (ends_well(t, status, stuck))
		return 1;
	clean_up(1);	/* the next test is not to pay for this one */
	return 0;
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
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
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
