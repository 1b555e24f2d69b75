/* scn: what the coordinator and the workers have in common. */
#ifndef SCN_H
#define SCN_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
#include <libdlm.h>

#define NEL(a) (sizeof(a) / sizeof((a)[0]))

extern int opt_modes;			/* -m: show what only the kernel's result record has */
extern const char *const modetab[6];

int parse_mode(const char *s);
int parse_flags(const char *s, uint32_t *out);
const char *st_name(int st);
const char *fl_name(int f);
int parse_text(const char *s, char *out, int max);
const char *show_text(const char *p, int len);
long now_ms(void);
int split(char *s, char **t, int max);
void worker(int in, int out, int sync);
#endif
