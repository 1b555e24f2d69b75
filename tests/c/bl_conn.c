/*
 * The connection between a client and the daemon: made by many at once, broken at any moment, fed
 * with nonsense (bug-log.md).
 * @test libs=dlm,lt timeout=900
 */
#include "t.h"
#include <sys/socket.h>
#include <sys/un.h>

static struct t_lock a, b;

/* ---------------------------------------------------------------- many create one lockspace */
static void create_and_lock(int fd, void *arg)
{
	dlm_lshandle_t ls;

	(void)arg;
	t_expect(&(struct t_proc){.fd = fd}, 'g');
	ls = t_create();
	t_get(&a, ls, LKM_EXMODE, 0, "n");
	t_drop(&a);
	t_release(ls);
	t_put(fd, 'd');
}

static void many_create(void)
{
	struct t_proc p[40];
	int round, i, rounds = t_scaled(5, 100);

	t_space_name();
	for (round = 0; round < rounds; round++) {
		for (i = 0; i < 40; i++)
			p[i] = t_spawn(create_and_lock, NULL);
		for (i = 0; i < 40; i++)
			t_put(p[i].fd, 'g');
		for (i = 0; i < 40; i++) {
			t_expect(&p[i], 'd');
			t_join(&p[i]);
		}
	}
	errno = 0;
	CHECK(!dlm_open_lockspace(t_space_name()) && errno == ENOENT, "released by all: %m");
}

/* ---------------------------------------------------------------- broken during unlock */
static void *cut_soon(void *arg)
{
	t_sleep_us(*(unsigned *)arg);
	CHECK(t_cut() == 1, "there is not one connection to cut");
	return arg;
}

static void cut_during_unlock(void)
{
	dlm_lshandle_t ls;
	int rounds = t_scaled(100, 1000), i, told = 0;
	pthread_t thread;
	unsigned wait;

	ls = t_create();
	for (i = 0; i < rounds; i++) {
		t_step("round %d of %d", i, rounds);
		t_get(&a, ls, LKM_EXMODE, 0, "n");
		t_get(&b, ls, LKM_PRMODE, 0, "m");
		wait = t_random() % 300;
		CHECK(!pthread_create(&thread, NULL, cut_soon, &wait), "thread");
		t_sleep_us(t_random() % 150);
		if (t_try_unlock(&a, 0)) {
			EQUAL(errno, ENOTRECOVERABLE, "errno of an unlock on a broken connection");
			told++;
		}
		pthread_join(thread, NULL);
		WAIT_UNTIL(t_try_unlock(&b, 0) && errno == ENOTRECOVERABLE);
		EQUAL(dlm_close_lockspace(ls), 0, "close");
		ls = t_open(t_space_name());
		t_get(&a, ls, LKM_EXMODE, 0, "n");	/* the old locks went with the connection */
		t_drop(&a);
		t_get(&a, ls, LKM_EXMODE, 0, "m");
		t_drop(&a);
	}
	t_step("%d of %d unlocks were told at once", told, rounds);
	t_release(ls);
}

/* The client's own earlier request must not stand in its way. */
static void cut_during_request(void)
{
	dlm_lshandle_t ls = t_create();
	struct t_proc p = t_agent(t_space_name());
	int rounds = t_scaled(100, 1000), i;

	for (i = 0; i < rounds; i++) {
		t_step("round %d of %d", i, rounds);
		t_agent_get(&p, 0, LKM_EXMODE, 0, "n");
		t_lock(&a, ls, LKM_EXMODE, 0, "n");
		EQUAL(t_cut(), 1, "connections cut");
		EQUAL(dlm_close_lockspace(ls), 0, "close");
		ls = t_open(t_space_name());
		t_lock(&b, ls, LKM_EXMODE, 0, "n");
		t_agent_drop(&p, 0);
		EQUAL(t_done(&b), 0, "the second request");
		t_drop(&b);
	}
	t_agent_end(&p);
	t_release(ls);
}

/* ---------------------------------------------------------------- killed in the middle */
static void busy(int fd, void *arg)
{
	static struct t_lock l[64];
	dlm_lshandle_t ls = t_open(t_space_name());
	char name[16];
	int i;

	(void)arg;
	t_put(fd, 'g');
	for (;;) {
		for (i = 0; i < 64; i++) {
			snprintf(name, sizeof name, "n%d", i % 20);
			t_lock(&l[i], ls, i % 6, LKF_VALBLK, name);
		}
		for (i = 0; i < 64; i++)
			if (t_try_unlock(&l[i], LKF_FORCEUNLOCK))
				EQUAL(errno, ENOENT, "errno of a forced unlock");
		t_settle(ls);
	}
}

static void killed_in_the_middle(void)
{
	dlm_lshandle_t ls = t_create();
	int rounds = t_scaled(60, 2000), i;
	char name[16];

	for (i = 0; i < rounds; i++) {
		struct t_proc p = t_spawn(busy, NULL);

		t_expect(&p, 'g');
		t_sleep_us(t_random() % 4000);
		t_kill(&p);
	}
	for (i = 0; i < 20; i++) {
		snprintf(name, sizeof name, "n%d", i);
		t_get(&a, ls, LKM_EXMODE, 0, name);
		t_drop(&a);
	}
	t_release(ls);
}

/* ---------------------------------------------------------------- nonsense */
static int raw(void)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct timeval limit = {0, 20000};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (getenv("DLM_SOCKET"))
		strncpy(at.sun_path, getenv("DLM_SOCKET"), sizeof at.sun_path - 1);
	CHECK(!connect(fd, (struct sockaddr *)&at, sizeof at), "connect: %m");
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	return fd;
}

/* A first message whose lengths lie, and one that is cut anywhere. */
static void nonsense(void)
{
	static const uint16_t lengths[] = {0, 1, 64, 65, 255, 256, 4096, 65535};
	dlm_lshandle_t ls = t_create();
	unsigned char text[300];
	unsigned at, k, i;
	int fd;

	for (at = 4; at < 40; at += 2)
		for (k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
			memset(text, 'n', sizeof text);
			memset(text, 0, 24);
			memcpy(text, "\x31\x4d\x4c\x44\x01\x00\x01\x00\x01\x00", 10);
			memcpy(text + at, &lengths[k], 2);
			fd = raw();
			send(fd, text, k & 1 ? at + 2 : sizeof text, MSG_NOSIGNAL);
			close(fd);
		}
	for (i = 0; i < 300; i++) {
		for (k = 0; k < sizeof text; k++)
			text[k] = t_random();
		if (i & 1)
			memcpy(text, "\x31\x4d\x4c\x44\x01\x00\x02\x00", 8);
		fd = raw();
		send(fd, text, t_random() % sizeof text, MSG_NOSIGNAL);
		if (i % 16 == 0)
			recv(fd, text, sizeof text, 0);
		close(fd);
	}
	t_get(&a, ls, LKM_EXMODE, 0, "n");
	t_drop(&a);
	t_release(ls);
}

static const struct t_test tests[] = {
	{"BL-023", "a first message with lying lengths ends that client alone", nonsense, 0},
	{"BL-056", "forty processes create one lockspace at once", many_create, 300},
	{"BL-075", "the connection breaks during an unlock", cut_during_unlock, 300},
	{"BL-075k", "a client is killed in the middle of requests", killed_in_the_middle, 300},
	{"BL-126", "the connection breaks during a request", cut_during_request, 300},
};
T_MAIN(tests)
