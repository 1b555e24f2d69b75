#!/bin/bash
# debian-dlm-tool.sh -- Debian's own dlm_tool: its queries to our daemon's abstract socket (libdlm-abi.md 4.9), where the
# configuration asks for it, and nothing where it does not.
#   LIBDIR=... BINDIR=... debian-dlm-tool.sh
# An abstract name belongs to a network namespace: the daemon and the tool run in one of their own.
set -u
: "${LIBDIR:?}" "${BINDIR:?}"
[ -n "${IN_NS:-}" ] || IN_NS=1 exec unshare -n -p -f --mount-proc "$0"
D=$(mktemp -d /tmp/ddt.XXXXXX); pass=0 fail=0 dp=
export DLM_SOCKET=$D/dlmd.sock
trap '[ -z "$dp" ] || kill -9 $dp 2>/dev/null; rm -rf "$D"' EXIT
printf 'cluster_name=demo\nlog=info\n' >"$D/dlm.conf"
up() { "$BINDIR/dlmd" --foreground --config "$D/dlm.conf" "$@" >"$D/log" 2>&1 & dp=$!; for _ in $(seq 100); do "$BINDIR/dlm_tool" ls >/dev/null 2>&1 && return; sleep .1; done; cat "$D/log"; exit 70; }
down() { kill $dp; wait $dp; dp=; }
t() { env LD_LIBRARY_PATH="$LIBDIR" timeout 30 /usr/sbin/dlm_tool "$@" >"$D/out" 2>&1; rc=$?; }
chk() { if eval "$2"; then pass=$((pass+1)); echo "ok - $1"; else fail=$((fail+1)); echo "not ok - $1 (rc $rc)"; sed 's/^/#  /' "$D/out"; fi; }
has() { grep -Eqx "$1" "$D/out"; }
up
chk "no abstract socket unless it is asked for"      '! grep -q @dlmc_query_sock /proc/net/unix'
t status; chk "status without it"                    '[ $rc = 0 ] && has "cannot connect to dlm_controld"'
down
up --abstract_socket=1 --nodeid 7
t ls;     chk "ls without a lockspace"                '[ $rc = 0 ] && [ ! -s "$D/out" ]'
t join web; t join db
t ls;     chk "ls names both"                         '[ $rc = 0 ] && [ "$(grep -c ^name "$D/out")" = 2 ] && has "dlm lockspaces" && has "name          web" && has "members       7 "'
cp "$D/out" "$D/theirs"; "$BINDIR/dlm_tool" ls >"$D/out" 2>&1
chk "ours prints the same"                            'cmp -s "$D/out" "$D/theirs"'
t ls web; chk "ls NAME"                               '[ $rc = 0 ] && [ "$(grep -c ^name "$D/out")" = 1 ]'
t ls none; chk "ls of none"                           '[ $rc = 1 ] && [ ! -s "$D/out" ]'
t -n ls web; chk "ls -n has a line for the node"      'has "nodeid 7 member 1 failed 0 start 1 seq_add 1 seq_rem 0 check none"'
cp "$D/out" "$D/theirs"; "$BINDIR/dlm_tool" -n ls web >"$D/out" 2>&1
chk "ours prints the same nodes"                      'cmp -s "$D/out" "$D/theirs"'
t status; chk "status"                                '[ $rc = 0 ] && has "cluster nodeid 7 quorate 1 ring seq [0-9]+ [0-9]+" && has "daemon now [0-9]+ fence_pid 0 " && has "node 7 M add [0-9]+ rem 0 fail 0 fence 0 at 0 0"'
t status -v; chk "status -v"                          'has "our_nodeid 7" && has "    quorate=1" && has "    stateful_merge_wait=0" && has "nodeid 7" && has "    left_reason=unknown" && has "    fence_monotime=0"'
sed '/time=/d' "$D/out" >"$D/theirs"; "$BINDIR/dlm_tool" status -v 2>&1 | sed '/time=/d' >"$D/out"
chk "ours prints the same keys"                       'cmp -s "$D/out" "$D/theirs"'
t dump;   chk "dump has the log"                      '[ $rc = 0 ] && grep -Eq "^[0-9]+ .*dlmd .* node 7 " "$D/out"'
t dump_config; chk "dump_config"                      'has "cluster_name=demo \(dlm.conf\)" && has "abstract_socket=1 \(cli option\)" && has "enable_fencing=1" && has "help=-1" && has "version=-1"'
t plocks web; chk "plocks: none"                      '[ $rc = 0 ] && ! grep -q . "$D/out"'
t log_plock; chk "log_plock: nothing"                 '[ $rc = 0 ] && ! grep -q . "$D/out"'
t run_list; chk "run_list: nothing"                   '[ $rc = 0 ] && ! grep -q . "$D/out"'
"$BINDIR/dlmd" --socket "$D/two/dlmd.sock" --abstract_socket=1 --foreground >"$D/out" 2>&1; rc=$?
chk "a second daemon is told who has the name"        '[ $rc = 3 ] && grep -q "stop it, or set abstract_socket=0" "$D/out"'
for _ in $(seq 200); do t ls & done; wait $(jobs -p | grep -v "^$dp\$")
t ls;     chk "200 at once do it no harm"             '[ $rc = 0 ] && [ "$(grep -c ^name "$D/out")" = 2 ]'
t leave web; t leave db; t ls
chk "ls after leave"                                  '[ $rc = 0 ] && [ ! -s "$D/out" ]'
down
echo "$pass passed, $fail failed"; [ "$fail" = 0 ]
