/*
 * alternate-lvb: blocking conversions NL -> PR -> EX -> NL; the clients take turns at a counter in
 * the value block, which only grows.
 * @test libs=dlm,lt
 */
#include "t.h"

#define CLIENTS 3
static int rounds;

static int convert(dlm_lshandle_t ls, struct dlm_lksb *sb, int mode)
{
	return t_wait_lock(ls, sb, mode, LKF_CONVERT | LKF_VALBLK, "");
}

static void client(int fd, void *arg)
{
	int me = (int)(long)arg, counter = 0, last = -1;
	dlm_lshandle_t ls = t_open(t_space_name());
	char lvb[DLM_LVB_LEN] = "";
	struct dlm_lksb sb = {.sb_lvbptr = lvb};

	t_threaded(ls);
	EQUAL(t_wait_lock(ls, &sb, LKM_NLMODE, LKF_VALBLK, "alternate"), 0, "a request for NL");
	while (counter < rounds) {
		EQUAL(convert(ls, &sb, LKM_PRMODE), 0, "NL to PR");
		CHECK(!(sb.sb_flags & DLM_SBF_VALNOTVALID), "the value block is not valid");
		memcpy(&counter, lvb, sizeof counter);
		CHECK(counter >= last, "bad: %d after %d", counter, last);
		last = counter;
		if (counter < rounds && counter % CLIENTS == me) {
			EQUAL(convert(ls, &sb, LKM_EXMODE), 0, "PR to EX");
			memcpy(&counter, lvb, sizeof counter);
			EQUAL(counter, last, "the counter in our turn");
			counter++;
			memcpy(lvb, &counter, sizeof counter);
		}
		EQUAL(convert(ls, &sb, LKM_NLMODE), 0, "to NL");
		t_sleep_us(t_random() % 50);
	}
	EQUAL(t_wait_unlock(ls, &sb, 0), EUNLOCK, "unlock");
	EQUAL(dlm_close_lockspace(ls), 0, "close");
	t_put(fd, 'd');
}

static void alternate(void)
{
	static struct t_lock l;
	dlm_lshandle_t ls = t_create();
	struct t_proc p[CLIENTS];
	long i;

	rounds = t_scaled(300, 20000);
	t_get(&l, ls, LKM_EXMODE, LKF_VALBLK, "alternate");
	memset(l.lvb, 0, sizeof l.lvb);
	t_regrant(&l, LKM_NLMODE, LKF_VALBLK);
	for (i = 0; i < CLIENTS; i++)
		p[i] = t_spawn(client, (void *)i);
	for (i = 0; i < CLIENTS; i++) {
		t_expect(&p[i], 'd');
		t_join(&p[i]);
	}
	t_release(ls);
}

static const struct t_test tests[] = {
	{"alternate-lvb", "turns at a counter, strictly increasing", alternate, 300},
};
T_MAIN(tests)
