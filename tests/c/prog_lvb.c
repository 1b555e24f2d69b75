/*
 * lvb: two programs that pass texts through the value block. `w` converts down to CR and writes,
 * anything else converts up to PW and reads.
 * @test libs=dlm,lt
 */
#include "t.h"

static struct t_lock l;

/* Obeys its parent as the original obeyed its terminal. */
static void reader_writer(int fd, void *arg)
{
	dlm_lshandle_t ls = t_open(t_space_name());
	char line[80];
	int got;

	(void)arg;
	t_get(&l, ls, LKM_NLMODE, LKF_VALBLK, "testlvb");
	for (;;) {
		got = read(fd, line, sizeof line - 1);
		if (got <= 0 || line[0] == 'x')
			break;
		line[got] = 0;
		if (line[0] == 'w') {
			memset(l.lvb, 0, sizeof l.lvb);
			memcpy(l.lvb, line + 1, got - 1 < DLM_LVB_LEN ? got - 1 : DLM_LVB_LEN);
			t_regrant(&l, LKM_CRMODE, LKF_VALBLK);
		} else
			t_regrant(&l, LKM_PWMODE, LKF_VALBLK);
		EQUAL(write(fd, l.lvb, DLM_LVB_LEN), DLM_LVB_LEN, "answer");
	}
	t_drop(&l);
	EQUAL(dlm_close_lockspace(ls), 0, "close");
}

static const char *tell(struct t_proc *p, const char *line)
{
	static char text[DLM_LVB_LEN + 1];
	struct pollfd f = {.fd = p->fd, .events = POLLIN};

	EQUAL(write(p->fd, line, strlen(line)), (long)strlen(line), "order");
	EQUAL(poll(&f, 1, T_GUARD_MS), 1, "answers");
	EQUAL(read(p->fd, text, DLM_LVB_LEN), DLM_LVB_LEN, "answer");
	return text;
}

static void texts(void)
{
	dlm_lshandle_t ls = t_create();
	struct t_proc p[2] = {t_spawn(reader_writer, NULL), t_spawn(reader_writer, NULL)};
	char text[64], want[DLM_LVB_LEN + 1];
	int i;

	for (i = 0; i < t_scaled(50, 2000); i++) {
		snprintf(text, sizeof text, "wtext %d from %d padded to 34 bytes....", i, i & 1);
		memset(want, 0, sizeof want);
		memcpy(want, text + 1, DLM_LVB_LEN);
		tell(&p[i & 1], "r");		/* up to PW: may write on the way down */
		tell(&p[i & 1], text);
		CHECK(!memcmp(tell(&p[!(i & 1)], "r"), want, DLM_LVB_LEN), "round %d: not \"%s\"",
		      i, want);
		tell(&p[!(i & 1)], "w");	/* out of the way, writing an empty text */
		CHECK(!*tell(&p[i & 1], "r"), "round %d: the empty text did not come", i);
		tell(&p[i & 1], "w");
	}
	for (i = 0; i < 2; i++) {
		t_put(p[i].fd, 'x');
		t_join(&p[i]);
	}
	t_release(ls);
}

static const struct t_test tests[] = {{"lvb", "each program reads the other's text", texts, 0}};
T_MAIN(tests)
