/*
 * The harness of the C tests.
 *
 * A program is a table of tests. Each runs in a process of its own, so that a crash, a stuck call
 * or a lock left behind is one failed line and not a lost run. The parent is the watchdog: it
 * prints `ok NAME title`, `not ok NAME title: why` or `skip NAME title: reason`, and never waits
 * longer than the test's limit. Nothing here asserts timing: limits exist only to end a hang.
 */
#ifndef DLM_TEST_T_H
#define DLM_TEST_T_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <libdlm.h>

/* ---------------------------------------------------------------- tests and verdicts */
struct t_test {
	const char *name;	/* `BL-037`, `dlmtest` */
	const char *title;	/* what is shown, in a few words */
	void (*run)(void);	/* returns when all is well */
	int limit_s;		/* hang guard in seconds; 0 = 200 */
};
#define T_COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))
#define T_MAIN(table) \
	int main(int argc, char **argv) { return t_main(table, T_COUNT(table), argc, argv); }

int t_main(const struct t_test *tests, int n, int argc, char **argv);

/* Ends the test as failed / as not possible here. Usable from any process or thread of it. */
void t_fail_at(const char *file, int line, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 3, 4)));
void t_skip(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* What is being done; shown if the test gets stuck. */
void t_step(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define t_fail(...) t_fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(cond, ...) do { if (!(cond)) t_fail(__VA_ARGS__); } while (0)
/* An integer that must have one value. */
#define EQUAL(got, want, what) \
	do { \
		long g_ = (long)(got), w_ = (long)(want); \
		if (g_ != w_) t_fail("%s: %ld (%s), expected %ld (%s)", what, g_, t_name(g_), w_, t_name(w_)); \
	} while (0)
/* A call that must fail with an errno. */
#define REFUSED(call, want) \
	do { \
		errno = 0; \
		long r_ = (long)(call); \
		int e_ = errno; \
		if (r_ != -1 || e_ != (want)) \
			t_fail("%s: returned %ld, errno %s, expected -1, %s", #call, r_, t_name(e_), t_name(want)); \
	} while (0)
/* A call that must return 0. */
#define ACCEPTED(call) \
	do { \
		errno = 0; \
		long r_ = (long)(call); \
		int e_ = errno; \
		if (r_ != 0) t_fail("%s: returned %ld, errno %s", #call, r_, t_name(e_)); \
	} while (0)
/* Dispatches `ls` until `cond` holds. */
#define PUMP_UNTIL(ls, cond) \
	do { \
		long end_ = t_now() + T_GUARD_MS; \
		while (!(cond)) { \
			if (t_now() > end_) t_fail("never came true: %s", #cond); \
			t_pump(ls, 20); \
		} \
	} while (0)
/* Waits, without dispatching, until `cond` holds. */
#define WAIT_UNTIL(cond) \
	do { \
		long end_ = t_now() + T_GUARD_MS; \
		while (!(cond)) { \
			if (t_now() > end_) t_fail("never came true: %s", #cond); \
			usleep(500); \
		} \
	} while (0)

#define T_GUARD_MS 60000	/* any single wait; busy machines stop a process for half a minute */

const char *t_name(long status);	/* EAGAIN, EUNLOCK, 17 ... */
long t_now(void);			/* monotonic milliseconds */
int t_scaled(int base, int full);	/* base * DLM_TEST_SCALE, at most full */
unsigned t_random(void);		/* seeded per process from DLM_TEST_SEED */
void t_sleep_us(unsigned us);		/* a random amount up to `us` is t_sleep_us(t_random() % us) */

/* ---------------------------------------------------------------- lockspaces and locks */
/* The test's own lockspace: created, and released again with everything in it. */
const char *t_space_name(void);
dlm_lshandle_t t_create(void);
dlm_lshandle_t t_open(const char *name);
void t_release(dlm_lshandle_t ls);	/* force 2; the name must be free afterwards */
/* `default` was used. It is released after the test's end: a release waits until no handle is open,
 * and nothing closes the one that the library keeps. */
void t_release_default(void);
void t_release_all(void);	/* by force, whatever dlm_tool lists */

struct t_lock {
	struct dlm_lksb sb;
	char lvb[DLM_LVB_LEN];
	dlm_lshandle_t ls;
	volatile int asts, basts;	/* callbacks so far */
	int seen;			/* completions consumed by t_done */
	int status, flags;		/* of the last completion */
	int early;			/* blocking callbacks before the first completion */
	void (*on_ast)(struct t_lock *);
	void (*on_bast)(struct t_lock *);
	void *arg;
};

/* Order of callbacks of this process, all locks together. */
struct t_event { struct t_lock *lock; char kind; int status; };
extern struct t_event t_events[4096];
extern volatile int t_event_count;

void t_ast(void *lock);
void t_bast(void *lock);

/* Calls as the library returned them (0 or -1 with errno). */
int t_try_lock(struct t_lock *l, dlm_lshandle_t ls, int mode, uint32_t flags, const char *name);
int t_try_lockn(struct t_lock *l, dlm_lshandle_t ls, int mode, uint32_t flags, const void *name,
		unsigned len);
int t_try_timed(struct t_lock *l, dlm_lshandle_t ls, int mode, uint32_t flags, const char *name,
		uint64_t centiseconds);
int t_try_convert(struct t_lock *l, int mode, uint32_t flags);
int t_try_unlock(struct t_lock *l, uint32_t flags);
/* The same, where acceptance is part of the test. */
void t_lock(struct t_lock *l, dlm_lshandle_t ls, int mode, uint32_t flags, const char *name);
void t_convert(struct t_lock *l, int mode, uint32_t flags);
void t_unlock(struct t_lock *l, uint32_t flags);
/* Waits for the next completion of the lock and returns its status. */
int t_done(struct t_lock *l);
/* Accepted and granted; accepted and unlocked. */
void t_get(struct t_lock *l, dlm_lshandle_t ls, int mode, uint32_t flags, const char *name);
void t_regrant(struct t_lock *l, int mode, uint32_t flags);
void t_drop(struct t_lock *l);
/* Whether a request with NOQUEUE is granted; it is given back at once. */
int t_is_free(dlm_lshandle_t ls, int mode, const char *name);

/* A blocking request (dlm_ls_lock_wait; convert with LKF_CONVERT), and its end: the status, however
 * the library at hand tells it. libdlm needs t_threaded(ls) before. */
int t_wait_lock(dlm_lshandle_t ls, struct dlm_lksb *sb, int mode, uint32_t flags, const char *name);
int t_wait_unlock(dlm_lshandle_t ls, struct dlm_lksb *sb, uint32_t flags);
void t_threaded(dlm_lshandle_t ls);	/* libdlm: starts the helper thread; libdlm_lt: nothing */

/* Dispatches what comes within `ms`. */
void t_pump(dlm_lshandle_t ls, int ms);
/* Dispatches until everything that was on its way to this handle has been delivered: events of a
 * handle are one queue, so a completion asked for now comes behind them. */
void t_settle(dlm_lshandle_t ls);

/* ---------------------------------------------------------------- other processes */
/* A child that dies with its parent. Returns in the parent; the child runs fn and exits. */
struct t_proc { pid_t pid; int fd; };
struct t_proc t_spawn(void (*fn)(int fd, void *arg), void *arg);
void t_put(int fd, char c);		/* one byte each way, for steps in lockstep */
char t_get_byte(int fd);		/* 0 at end of file */
void *t_shared(size_t bytes);		/* zeroed memory that later children share */
void t_expect(struct t_proc *p, char c);
int t_reap(struct t_proc *p);		/* wait status; closes fd */
void t_join(struct t_proc *p);		/* must have exited with 0 */
void t_kill(struct t_proc *p);		/* SIGKILL and reap */

/* An agent: a process with a handle of its own that does what it is told and dispatches. */
enum { A_LOCK = 1, A_CONVERT, A_UNLOCK, A_DONE, A_LOOK, A_SETTLE, A_DEAF, A_CLOSE, A_PURGE };
struct t_order {
	int op, slot, mode;
	uint32_t flags, id;		/* id: instead of the slot's own, if not 0 */
	uint64_t timeout;
	int len;
	char name[DLM_RESNAME_MAXLEN], lvb[DLM_LVB_LEN];
};
struct t_answer {
	int ret, err, status, flags, asts, basts, early;
	uint32_t id;
	char lvb[DLM_LVB_LEN];
};
#define T_SLOTS 1100
struct t_proc t_agent(const char *space);
struct t_answer t_ask(struct t_proc *p, const struct t_order *o);
struct t_answer t_agent_lock(struct t_proc *p, int slot, int mode, uint32_t flags,
			     const char *name);
struct t_answer t_agent_convert(struct t_proc *p, int slot, int mode, uint32_t flags);
struct t_answer t_agent_unlock(struct t_proc *p, int slot, uint32_t flags);
struct t_answer t_agent_look(struct t_proc *p, int slot);	/* after settling */
int t_agent_done(struct t_proc *p, int slot);			/* next completion's status */
void t_agent_get(struct t_proc *p, int slot, int mode, uint32_t flags, const char *name);
void t_agent_drop(struct t_proc *p, int slot);
void t_agent_end(struct t_proc *p);				/* close and exit 0 */
/* SIGKILL to an agent; returns when its death has reached the queues. Uses the last slot. */
void t_kill_seen(struct t_proc *p, dlm_lshandle_t ls);

/* ---------------------------------------------------------------- the tool and the daemon */
/* Runs dlm_tool; stdout as text, to be freed; *code = exit code. Without the tool: skips. */
char *t_tool(int *code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int t_has_tool(void);
/* JSON text without blanks outside strings, in place. */
char *t_squeeze(char *json);
/* Counts occurrences of a text. */
int t_count(const char *text, const char *part);
/* One of the numbers of `dlm_tool counters`; -1 without the tool or the number. */
long t_counter(const char *name);
/* What the daemon still keeps for clients: empty string = nothing. */
const char *t_left_overs(void);

/* A daemon of the test's own, to be killed and restarted; DLM_SOCKET points to it. */
struct t_daemon { pid_t pid; char dir[200], socket[240]; };
void t_daemon_start(struct t_daemon *d, const char *extra_option);
void t_daemon_again(struct t_daemon *d);	/* same place, after its death */
void t_daemon_kill(struct t_daemon *d);		/* SIGKILL and reap */
void t_daemon_end(struct t_daemon *d);		/* kill and remove its directory */
int t_daemon_logged(struct t_daemon *d, const char *text);
pid_t t_daemon_pid(void);			/* of the daemon in use; 0 = unknown */
int t_cut(void);	/* breaks this process's connections to the daemon; how many */
long t_resident_kb(pid_t pid);
int t_descriptors(pid_t pid);

#endif
