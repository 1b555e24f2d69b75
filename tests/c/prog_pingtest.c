/*
 * pingtest: a counter goes round among n programs through the value block. Everybody holds CR; the
 * one whose turn it is converts to EX; the blocking notice makes the others let go and read again.
 * @test libs=dlm,lt
 */
#include "t.h"

#define PLAYERS 4
static struct t_lock l;
static int rounds;

static void player(int fd, void *arg)
{
	int me = (int)(long)arg, counter = -1, last = -1;
	dlm_lshandle_t ls = t_open(t_space_name());

	t_get(&l, ls, LKM_NLMODE, 0, "ping");
	while (counter < rounds) {
		l.basts = 0;
		t_regrant(&l, LKM_CRMODE, LKF_VALBLK);
		CHECK(!(l.flags & DLM_SBF_VALNOTVALID), "the value block is not valid");
		memcpy(&counter, l.lvb, sizeof counter);
		CHECK(counter >= last, "the counter went back from %d to %d", last, counter);
		last = counter;
		if (counter >= rounds)
			break;
		if (counter % PLAYERS != me) {
			PUMP_UNTIL(ls, l.basts);
			t_regrant(&l, LKM_NLMODE, 0);
			continue;
		}
		t_regrant(&l, LKM_EXMODE, LKF_VALBLK);
		memcpy(&counter, l.lvb, sizeof counter);
		EQUAL(counter, last, "the counter during our turn");
		counter++;
		memcpy(l.lvb, &counter, sizeof counter);
		t_regrant(&l, LKM_NLMODE, LKF_VALBLK);
	}
	t_drop(&l);
	EQUAL(dlm_close_lockspace(ls), 0, "close");
	t_put(fd, 'd');
}

static void ping(void)
{
	dlm_lshandle_t ls = t_create();
	struct t_proc p[PLAYERS];
	long i;

	rounds = t_scaled(400, 20000);
	t_get(&l, ls, LKM_EXMODE, LKF_VALBLK, "ping");	/* makes the value block: 0 */
	memset(l.lvb, 0, sizeof l.lvb);
	t_regrant(&l, LKM_NLMODE, LKF_VALBLK);
	for (i = 0; i < PLAYERS; i++)
		p[i] = t_spawn(player, (void *)i);
	for (i = 0; i < PLAYERS; i++) {
		t_expect(&p[i], 'd');
		t_join(&p[i]);
	}
	t_release(ls);
}

static const struct t_test tests[] = {{"pingtest", "the counter goes round", ping, 300}};
T_MAIN(tests)
