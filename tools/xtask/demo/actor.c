/*
 * actor: does what the lines on its standard input say, and tells what it sees.
 *
 *   ask LOCK MODE      asks for a lock, or for another mode of one that it has, and does not wait
 *   write LOCK WORDS   stores words in the value block of a lock that it has in EX
 *   drop LOCK          gives a lock back
 *
 * It ends with its input. A lock that others want it keeps: it only says that it was told.
 */
#include "demo.h"

#define LOCKS 8

static struct held {
	struct lock l;
	char name[DLM_RESNAME_MAXLEN + 1];
	char mode[3];
	int seen, told, writes;
} held[LOCKS];

static struct held *find(const char *name)
{
	for (struct held *h = held; h < held + LOCKS; h++) {
		if (!h->name[0]) strcpy(h->name, name);
		if (!strcmp(h->name, name)) return h;
	}
	die("more locks than an actor can have");
	return NULL;
}

static unsigned number_of(const char *mode)
{
	static const char modes[] = "NLCRCWPRPWEX";

	for (unsigned i = 0; i < 6; i++)
		if (!memcmp(modes + 2 * i, mode, 2)) return i;
	die("there is no such mode");
	return 0;
}

static void obey(char *line)
{
	char *word = strtok(line, " \n"), *name = strtok(NULL, " \n"), *rest = strtok(NULL, "\n");
	struct held *h;

	if (!word || !name || strlen(name) > DLM_RESNAME_MAXLEN) return;
	h = find(name);
	h->writes = !strcmp(word, "write");
	if (h->writes)
		snprintf(h->l.value, sizeof h->l.value, "%s", rest ? rest : "");
	if (!strcmp(word, "drop")) {
		drop(&h->l);
		printf("gave %s back\n", name);
		h->seen = h->l.completed;
		h->l.sb.sb_lkid = 0;
		return;
	}
	if (!h->writes)
		memcpy(h->mode, rest ? rest : "EX", 2);
	ask(&h->l, name, number_of(h->mode), h->l.sb.sb_lkid ? LKF_CONVERT : 0);
	if (!h->writes) printf("asks for %s in %s\n", name, h->mode);
}

static void tell(struct held *h)
{
	struct lock *l = &h->l;

	if (h->seen != l->completed) {
		h->seen = l->completed;
		if (l->sb.sb_status) { errno = l->sb.sb_status; die(h->name); }
		if (h->writes)
			printf("wrote \"%.32s\" into the value block of %s\n", l->value, h->name);
		else
			printf("has %s in %s; value block: \"%.32s\", %s\n", h->name, h->mode, l->value,
			       l->sb.sb_flags & DLM_SBF_VALNOTVALID ? "NOT VALID" : "valid");
	}
	if (h->told != l->wanted)
		printf("is told that somebody waits for %s, and keeps it\n", h->name);
	h->told = l->wanted;
}

int main(void)
{
	struct pollfd p[2] = {{.fd = 0, .events = POLLIN}, {.events = POLLIN}};
	char line[256];

	setvbuf(stdin, NULL, _IONBF, 0);
	join();
	printf("is in the lockspace\n");
	p[1].fd = dlm_ls_get_fd(space);
	for (;;) {
		if (poll(p, 2, -1) < 0) continue;
		if (p[1].revents) dlm_dispatch(p[1].fd);
		for (struct held *h = held; h < held + LOCKS; h++)
			tell(h);
		if (!p[0].revents) continue;
		if (!fgets(line, sizeof line, stdin)) break;
		obey(line);
	}
	if (dlm_release_lockspace("demo", space, 1)) die("dlm_release_lockspace");
	printf("leaves\n");
	return 0;
}
