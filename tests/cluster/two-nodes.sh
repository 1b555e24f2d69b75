#!/bin/bash
# two-nodes.sh -- two_node: 1 in corosync.conf: both halves of a split are quorate, so dlmd starts only where it can
# switch the other node off (membership.md 2), and a node that its device does not let in does not take part.
#   BIN=... two-nodes.sh
set -u
: "${BIN:?}"
here=$(cd "$(dirname "$0")" && pwd)
D=$(mktemp -d /tmp/two.XXXXXX) pass=0 fail=0
export NC_PREFIX=dlmt$(($$ % 10000)) NC_NET=10.81 NC_LINKS=1 NC_DIR=$D/net NC_QUORUM='two_node: 1'
nc() { "$here/netns-cluster.sh" "$@"; }
trap 'nc down >/dev/null 2>&1; rm -rf "$D"' EXIT
nc up 2 >"$D/out" 2>&1 && nc corosync-up 'token: 1000' >>"$D/out" 2>&1 || { cat "$D/out"; echo "not ok - corosync does not come up"; echo "0 passed, 1 failed"; exit 1; }
for i in 1 2; do mkdir "$D/d$i"; ip netns exec "$NC_PREFIX-n$i" readlink /proc/self/ns/net >"$D/ns.$i"; done
"$BIN/dlm_tool" keygen "$D/key" >/dev/null

# Kills whatever runs on the node, and says beforehand that it could.
cat >"$D/fence_kill" <<AGENT
#!/bin/sh
action= node=
while IFS== read -r key value; do case \$key in action) action=\$value ;; node) node=\$value ;; esac; done
[ "\$action" != monitor ] || exit 0
want=\$(cat $D/ns.\$node)
for p in /proc/[0-9]*; do [ "\$(readlink \$p/ns/net)" != "\$want" ] || kill -9 \${p#/proc/}; done
exit 0
AGENT
printf '#!/bin/sh\necho no login >&2\nexit 5\n' >"$D/fence_dead"
chmod 755 "$D"/fence_*

conf() { printf 'membership=corosync\nauthkey=%s\npost_join_delay=0\nenable_startup_fencing=0\nabstract_socket=1\n%s\n' "$D/key" "$1" >"$D/dlm.conf"; }
dlmd() { n=$1; shift; nc "$@" "$BIN/dlmd" --config "$D/dlm.conf" --socket "$D/d$n/dlmd.sock" --foreground; }
refused() { dlmd 1 exec n1 >"$D/out" 2>&1 </dev/null; rc=$?; }
t() { DLM_SOCKET=$D/d$1/dlmd.sock timeout 20 "$BIN/dlm_tool" "${@:2}" >"$D/out" 2>&1; rc=$?; }
chk() { if eval "$2"; then pass=$((pass+1)); echo "ok - $1"; else fail=$((fail+1)); echo "not ok - $1 (rc $rc)"; sed 's/^/#  /' "$D/out"; fi; }
has() { grep -q -- "$1" "$D/out"; }
until_has() { for _ in $(seq 200); do t 1 status; has "$1" && return; sleep .1; done; }

conf ''; refused
chk "without an agent it does not start" '[ $rc = 1 ] && has "two_node: 1" && has "no fence agent is configured"'
conf 'fence_all '"$D/fence_dead"; refused
chk "nor with one that does not answer"  '[ $rc = 1 ] && has "node 2 cannot be fenced: agent .*/fence_dead failed with exit code 5, saying: no login"'
conf 'enable_fencing=0
fence_all '"$D/fence_kill"; refused
chk "nor where fencing is off"           '[ $rc = 1 ] && has "two_node: 1"'
conf "device own $D/fence_dead
connect own node=1
unfence own

device other $D/fence_kill
connect other node=2"; refused
chk "nor where this node is not unfenced" '[ $rc = 1 ] && has "this node cannot be unfenced, so it may not take part: agent .*/fence_dead of device own failed"'
conf 'fence_all '"$D/fence_kill"
for i in 1 2; do dlmd $i spawn n$i "$D/log$i" >/dev/null; done
until_has '^node 2 M '
chk "with an agent that answers both start" 'has "^node 1 M " && has "^node 2 M "'
t 1 join web; chk "and have a lockspace" '[ $rc = 0 ]'
t 2 join web; chk "together"             '[ $rc = 0 ]'
nc crash n2 >/dev/null 2>&1
until_has '^node 2 X .* at 1 '
chk "the one that is left fences the other" 'has "^node 2 X .* at 1 "'
t 1 ls web; chk "and goes on alone"      'has "^members  *1 $" && ! has "wait fencing"'
# Debian's own tool, on the abstract socket of the host's network namespace.
if [ -x /usr/sbin/dlm_tool ] && [ -n "${LIBDIR:-}" ]; then
  facts() { grep -E '^(cluster|node) ' "$D/out" | sed 's/ [0-9]*$//'; }   # without wall-clock seconds, which round
  t 1 status; facts >"$D/ours"
  nc exec n1 env LD_LIBRARY_PATH="$LIBDIR" timeout 20 /usr/sbin/dlm_tool status >"$D/out" 2>&1; rc=$?
  chk "Debian's dlm_tool says the same of who was fenced" '[ $rc = 0 ] && has "^node 2 X .* at 1 " && [ "$(facts)" = "$(cat "$D/ours")" ]'
fi
echo "$pass passed, $fail failed"; [ "$fail" = 0 ]
