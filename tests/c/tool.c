/* dlm_tool as tests use it, and daemons of a test's own; see t.h. */
#include "t.h"
#include <dirent.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static const char *program(const char *name)
{
	static char path[2][400];
	const char *dir = getenv("DLM_BIN_DIR");
	char *out = path[name[3] == '_'];

	snprintf(out, sizeof path[0], "%s/%s", dir ? dir : "../../target/release", name);
	return out;
}

int t_has_tool(void)
{
	return !access(program("dlm_tool"), X_OK) && !getenv("DLM_TEST_NO_TOOL");
}

/* Everything a command prints on stdout. */
static char *run_tool(int *code, const char *arguments)
{
	char command[900], *text = malloc(1 << 16);
	size_t size = 1 << 16, have = 0, got;
	FILE *f;

	snprintf(command, sizeof command, "exec '%s' %s 2>/dev/null", program("dlm_tool"), arguments);
	f = popen(command, "re");
	CHECK(f && text, "popen: %m");
	while ((got = fread(text + have, 1, size - have - 1, f)) > 0) {
		have += got;
		if (size - have < 4096)
			text = realloc(text, size *= 2);
		CHECK(text, "no memory for the tool's output");
	}
	text[have] = 0;
	*code = pclose(f);
	*code = WIFEXITED(*code) ? WEXITSTATUS(*code) : 1000 + WTERMSIG(*code);
	return text;
}

char *t_tool(int *code, const char *fmt, ...)
{
	char arguments[500];
	va_list ap;

	if (!t_has_tool())
		t_skip("dlm_tool is not there");
	va_start(ap, fmt);
	vsnprintf(arguments, sizeof arguments, fmt, ap);
	va_end(ap);
	return run_tool(code, arguments);
}

char *t_squeeze(char *json)
{
	char *from = json, *to = json;
	int quoted = 0;

	for (; *from; from++) {
		if (quoted || !strchr(" \t\r\n", *from))
			*to++ = *from;
		if (quoted && *from == '\\' && from[1])
			*to++ = *++from;
		else if (*from == '"')
			quoted = !quoted;
	}
	*to = 0;
	return json;
}

int t_count(const char *text, const char *part)
{
	int n = 0;

	for (; (text = strstr(text, part)); text += strlen(part))
		n++;
	return n;
}

const char *t_left_overs(void)
{
	static char text[400];
	long end = t_now() + T_GUARD_MS;
	char *json;
	int code, clean;

	if (!t_has_tool() || getenv("DLM_TEST_OWN_DAEMON"))
		return "";
	do {
		json = t_squeeze(run_tool(&code, "ls --json"));
		clean = !code && !strstr(json, "\"name\":");
		snprintf(text, sizeof text, "dlm_tool ls: code %d, %.300s", code, json);
		free(json);
		if (!clean)
			t_sleep_us(20000);
	} while (!clean && t_now() < end);
	return clean ? "" : text;
}

long t_counter(const char *name)
{
	char line[80], *text, *at;
	long value = -1;
	int code;

	if (!t_has_tool())
		return -1;
	text = run_tool(&code, "counters");
	snprintf(line, sizeof line, "%s ", name);
	for (at = text; at; at = strchr(at, '\n')) {
		at += *at == '\n';
		if (!strncmp(at, line, strlen(line)))
			value = atol(at + strlen(line));
	}
	free(text);
	return value;
}

void t_release_all(void)
{
	char name[DLM_LOCKSPACE_LEN + 1], *json, *at;
	dlm_lshandle_t ls;
	int code, tries;

	if (!t_has_tool())
		return;
	json = t_squeeze(run_tool(&code, "ls --json"));
	for (at = json; (at = strstr(at, "\"name\":\"")); at += 8) {
		snprintf(name, sizeof name, "%.*s", (int)strcspn(at + 8, "\""), at + 8);
		for (tries = 0; tries < 100 && (ls = dlm_open_lockspace(name)); tries++)
			dlm_release_lockspace(name, ls, 2);
	}
	free(json);
}

/* ---------------------------------------------------------------- daemons */
static int answers(const char *path)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), good;

	CHECK(strlen(path) < sizeof at.sun_path, "%s is too long for a socket", path);
	strcpy(at.sun_path, path);
	good = !connect(fd, (struct sockaddr *)&at, sizeof at);
	close(fd);
	return good;
}

static void start(struct t_daemon *d, const char *extra)
{
	char log[240];
	long end = t_now() + T_GUARD_MS;

	snprintf(log, sizeof log, "%s/log", d->dir);
	fflush(NULL);
	d->pid = fork();
	CHECK(d->pid >= 0, "fork: %m");
	if (!d->pid) {
		int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out, 1);
		dup2(out, 2);
		closefrom(3);
		unsetenv("NOTIFY_SOCKET");
		execl(program("dlmd"), "dlmd", "--foreground", "--override-kernel-dlm", "--socket",
		      d->socket, extra, NULL);
		_exit(127);
	}
	while (!answers(d->socket)) {
		CHECK(waitpid(d->pid, NULL, WNOHANG) == 0, "the daemon ended; see %s", log);
		CHECK(t_now() < end, "the daemon does not serve; see %s", log);
		t_sleep_us(2000);
	}
}

void t_daemon_start(struct t_daemon *d, const char *extra)
{
	const char *base = getenv("DLM_TEST_DIR");

	if (access(program("dlmd"), X_OK))
		t_skip("dlmd is not there");
	snprintf(d->dir, sizeof d->dir, "%.150s/own-XXXXXX", base ? base : "/tmp");
	CHECK(mkdtemp(d->dir), "mkdtemp %s: %m", d->dir);
	snprintf(d->socket, sizeof d->socket, "%s/dlmd.sock", d->dir);
	setenv("DLM_SOCKET", d->socket, 1);
	setenv("DLM_TEST_OWN_DAEMON", "1", 1);
	start(d, extra);
}

void t_daemon_again(struct t_daemon *d)
{
	start(d, NULL);
}

int t_daemon_logged(struct t_daemon *d, const char *text)
{
	char command[600];

	snprintf(command, sizeof command, "grep -aqF -e '%s' '%s/log'", text, d->dir);
	return !system(command);
}

void t_daemon_kill(struct t_daemon *d)
{
	CHECK(!kill(d->pid, SIGKILL), "kill: %m");
	CHECK(waitpid(d->pid, NULL, 0) == d->pid, "waitpid: %m");
	d->pid = 0;
}

void t_daemon_end(struct t_daemon *d)
{
	char command[260];

	if (d->pid)
		t_daemon_kill(d);
	snprintf(command, sizeof command, "rm -rf '%s'", d->dir);
	CHECK(!system(command), "cannot remove %s", d->dir);
}

int t_cut(void)
{
	struct sockaddr_un at;
	socklen_t size;
	int fd, n = 0;

	for (fd = 3; fd < 1024; fd++) {
		memset(&at, 0, size = sizeof at);
		if (getpeername(fd, (struct sockaddr *)&at, &size) || at.sun_family != AF_UNIX)
			continue;
		if (!strcmp(at.sun_path, getenv("DLM_SOCKET") ?: "/run/dlm/dlmd.sock"))
			n += !shutdown(fd, SHUT_RDWR);
	}
	return n;
}

pid_t t_daemon_pid(void)
{
	const char *text = getenv("DLM_TEST_DAEMON_PID");

	return text ? atoi(text) : 0;
}

long t_resident_kb(pid_t pid)
{
	char path[40], line[200];
	long kb = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "VmRSS: %ld kB", &kb) == 1)
			break;
	fclose(f);
	return kb;
}

int t_descriptors(pid_t pid)
{
	char path[40];
	DIR *dir;
	int n = 0;

	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	if (!dir)
		return 0;
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}
