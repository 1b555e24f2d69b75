#!/bin/bash
# ocf-agents.sh -- unmodified cluster resource agents ocf:pacemaker:controld and ocf:heartbeat:lvmlockd on our daemon
# under its old name, and our dlm_tool.
#   LIBDIR=... BINDIR=... ocf-agents.sh
# Needs the packages lvm2-lockd, psmisc (killall), procps (pgrep); takes the two agents out of their .debs without
# installing Pacemaker. Own PID and network namespace: the agents use killall and pgrep, which must see nothing
# but this test. What they look for below /sys/kernel is mounted as our example for pacemaker.service says.  DEBS: folder with the two .debs (else apt-get download).
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${LIBDIR:?}" "${BINDIR:?}"
if [ -z "${IN_NS:-}" ]; then
  D=$(mktemp -d /tmp/ocf.XXXXXX); trap 'rm -rf "$D"' EXIT
  chmod 755 "$D"; mkdir -p "$D"/debs "$D"/dlm/config/dlm/cluster
  ( cd "$D/debs" && if [ -n "${DEBS:-}" ]; then cp "$DEBS"/{pacemaker,resource-agents}_*.deb .; else apt-get download -q pacemaker resource-agents >/dev/null 2>&1; fi
    for f in *.deb; do dpkg -x "$f" ../x || exit 1; done ) 2>/dev/null || { echo "SKIPPED: the packages pacemaker and resource-agents cannot be had here"; exit 0; }
  IN_NS=1 OD=$D unshare -n -p -f --mount-proc "$here/node-env.sh" -n 1 -t "$D/dlm/config/dlm/cluster" -u "$here/../../tools/dist/examples/pacemaker-dlmd.conf" -d "$D/st" -- "$0"; exit $?
fi
D=$OD pass=0 fail=0
ip link set lo up 2>/dev/null
[ ! -d /etc/dlm ] || mount -t tmpfs none /etc/dlm                    # no configuration of this machine
export OCF_ROOT=$D/x/usr/lib/ocf OCF_RESOURCE_INSTANCE=t OCF_RESKEY_CRM_meta_timeout=20000 HA_LOGFACILITY=none HA_RSCTMP=$D
export OCF_FUNCTIONS_DIR=$OCF_ROOT/lib/heartbeat OCF_RESKEY_allow_stonith_disabled=true PATH=$D/bin:$PATH
export DLM_SOCKET=$D/dlm/dlmd.sock
mkdir -p "$D/bin" /run/resource-agents
ln -s "$BINDIR/dlmd" "$D/bin/dlm_controld"; ln -s "$BINDIR/dlm_tool" "$D/bin/dlm_tool"
a() { OCF_RESOURCE_PROVIDER=$1 OCF_RESOURCE_TYPE=$2 env LD_LIBRARY_PATH="$LIBDIR" timeout 60 "$OCF_ROOT/resource.d/$1/$2" "$3" >"$D/out" 2>&1; rc=$?; }
chk() { if [ "$rc" = "$2" ]; then pass=$((pass+1)); echo "ok - $1"; else fail=$((fail+1)); echo "not ok - $1 (rc $rc)"; tail -3 "$D/out" | sed 's/^/#  /'; fi; }
is() { if eval "$2"; then pass=$((pass+1)); echo "ok - $1"; else fail=$((fail+1)); echo "not ok - $1"; fi; }
a pacemaker controld monitor;  chk "controld monitor before start: not running" 7
a pacemaker controld start;    chk "controld start (waits for comms/*/addr_list)" 0
is "the daemon runs under its old name"  '[ "$(pgrep -c -x dlm_controld)" = 1 ]'
is "and leaves terminal and parent"      '[ "$(ps -o ppid= -o tty= -C dlm_controld | tr -s " ")" = " 1 ?" ]'
is "its options came through"            'dlm_tool dump_config | grep -q "^enable_startup_fencing=0 (cli option)"'
a pacemaker controld monitor;  chk "controld monitor" 0
a pacemaker controld start;    chk "controld start again: it runs already" 0
is "one daemon is enough"                '[ "$(pgrep -c -x dlm_controld)" = 1 ]'
a heartbeat lvmlockd start;    chk "lvmlockd start" 0
sleep 1
a heartbeat lvmlockd monitor;  chk "lvmlockd monitor" 0
a heartbeat lvmlockd stop;     chk "lvmlockd stop" 0
a heartbeat lvmlockd monitor;  chk "lvmlockd monitor after stop" 7
a pacemaker controld stop;     chk "controld stop" 0
is "nothing is left"                     '! pgrep -x dlm_controld >/dev/null && [ ! -e "$DLM_SOCKET" ]'
a pacemaker controld monitor;  chk "controld monitor after stop" 7
echo "$pass passed, $fail failed"; [ "$fail" = 0 ]
