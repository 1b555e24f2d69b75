/* scn: names of modes, flags and status words, and text escapes. */
#include "scn.h"

static const struct { const char *n; uint32_t v; } flagtab[] = {
	{"NOQUEUE", LKF_NOQUEUE}, {"CANCEL", LKF_CANCEL}, {"CONVERT", LKF_CONVERT},
	{"VALBLK", LKF_VALBLK}, {"QUECVT", LKF_QUECVT}, {"IVVALBLK", LKF_IVVALBLK},
	{"CONVDEADLK", LKF_CONVDEADLK}, {"PERSISTENT", LKF_PERSISTENT},
	{"NODLCKWT", LKF_NODLCKWT}, {"NODLCKBLK", LKF_NODLCKBLK}, {"EXPEDITE", LKF_EXPEDITE},
	{"NOQUEUEBAST", LKF_NOQUEUEBAST}, {"HEADQUE", LKF_HEADQUE}, {"NOORDER", LKF_NOORDER},
	{"ORPHAN", LKF_ORPHAN}, {"ALTPR", LKF_ALTPR}, {"ALTCW", LKF_ALTCW},
	{"FORCEUNLOCK", LKF_FORCEUNLOCK}, {"TIMEOUT", LKF_TIMEOUT}, {"WAIT", LKF_WAIT},
};
const char *const modetab[6] = {"NL", "CR", "CW", "PR", "PW", "EX"};

int parse_mode(const char *s)
{
	for (unsigned i = 0; i < NEL(modetab); i++)
		if (!strcmp(s, modetab[i]))
			return i;
	return strtol(s, 0, 0);
}

int parse_flags(const char *s, uint32_t *out)
{
	char b[512], *p, *save;
	uint32_t f = 0;

	snprintf(b, sizeof b, "%s", s);
	for (p = strtok_r(b, "|", &save); p; p = strtok_r(NULL, "|", &save)) {
		unsigned i;
		if (isdigit((unsigned char)*p)) { f |= strtoul(p, 0, 0); continue; }
		if (!strcmp(p, "-")) continue;
		for (i = 0; i < NEL(flagtab); i++)
			if (!strcmp(flagtab[i].n, p)) break;
		if (i == NEL(flagtab)) return -1;
		f |= flagtab[i].v;
	}
	*out = f;
	return 0;
}

const char *st_name(int st)
{
	static char b[4][32];
	static int k;
	const char *n;
	char *o = b[k++ & 3];

	switch (st) {
	case 0: return "0";
	case ECANCEL: return "ECANCEL";
	case EUNLOCK: return "EUNLOCK";
	case EINPROG: return "EINPROG";
	}
	n = st > 0 ? strerrorname_np(st) : NULL;
	if (n) snprintf(o, 32, "%s", n); else snprintf(o, 32, "%d", st);
	return o;
}

const char *fl_name(int f)
{
	static char b[64];
	int n = 0;

	if (!f) return "-";
	b[0] = 0;
	if (f & DLM_SBF_DEMOTED) n += sprintf(b + n, "%sDEMOTED", n ? "|" : "");
	if (f & DLM_SBF_VALNOTVALID) n += sprintf(b + n, "%sVALNOTVALID", n ? "|" : "");
	if (f & DLM_SBF_ALTMODE) n += sprintf(b + n, "%sALTMODE", n ? "|" : "");
	if (f & ~7) sprintf(b + n, "%s0x%x", n ? "|" : "", f & 0xff & ~7);
	return b;
}

/* text: \xHH escapes, and C*N = character C N times */
int parse_text(const char *s, char *out, int max)
{
	int n = 0;
	const char *star = strchr(s, '*');

	if (!strcmp(s, "-")) return 0;
	if (star && star == s + 1 && isdigit((unsigned char)star[1])) {
		int c = atoi(star + 1);
		while (n < c && n < max) out[n++] = s[0];
		return n;
	}
	while (*s && n < max) {
		if (s[0] == '\\' && s[1] == 'x' && isxdigit((unsigned char)s[2]) &&
		    isxdigit((unsigned char)s[3])) {
			char h[3] = {s[2], s[3], 0};
			out[n++] = strtol(h, 0, 16);
			s += 4;
		} else out[n++] = *s++;
	}
	return n;
}

const char *show_text(const char *p, int len)
{
	static char b[256];
	int n = 0;

	int aa = 0;
	for (int i = 0; i < len; i++) aa += (unsigned char)p[i] == 0xaa;
	if (aa > 8) return "<uninit>";
	while (len > 0 && !p[len - 1]) len--;
	for (int i = 0; i < len && n < 240; i++)
		if (isgraph((unsigned char)p[i]) && p[i] != '\\') b[n++] = p[i];
		else n += sprintf(b + n, "\\x%02x", (unsigned char)p[i]);
	b[n] = 0;
	return b;
}

long now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int split(char *s, char **t, int max)
{
	int n = 0;
	char *save, *p;
	for (p = strtok_r(s, " \t\r\n", &save); p && n < max; p = strtok_r(NULL, " \t\r\n", &save)) {
		if (*p == '#') break;
		t[n++] = p;
	}
	t[n] = NULL;
	return n;
}
