#!/bin/bash
# lvm-two-nodes.sh -- unmodified lvmlockd + lvm as two nodes on one machine, one loop-backed PV,
# no device-mapper, no configfs, no kernel DLM.
#
#   LIBDIR=/path/with/libdlm_lt.so.3  NODE1_ENV="A=1" NODE2_ENV="A=2"  lvm-two-nodes.sh [ROUNDS]
#
# LIBDIR       directory put in LD_LIBRARY_PATH of lvmlockd only
# NODE1_ENV/2  words VAR=VALUE that tell the library which node's daemon to use
# SPACES_HOOK  1 (default): this script fills spaces/<ls>/nodes/ itself;
#              0: the thing under test does it
# LOOKALIKE1/2 what each node's daemon keeps in place of /sys/kernel/config/dlm/cluster
# Prints one "ok"/"not ok" line a check and, last, "N passed, N failed".
set -u
here=$(cd "$(dirname "$0")" && pwd)
rounds=${1:-60}   # below about 60 even a manager that grants everything may lose no update
: "${LIBDIR:?}" "${NODE1_ENV:=}" "${NODE2_ENV:=}" "${SPACES_HOOK:=1}"
D=$(mktemp -d /tmp/lvm2n.XXXXXX); pass=0 fail=0; pids=()
truncate -s 200M "$D/pv"; DEV=$(losetup -f --show "$D/pv")
n() { local i=$1; shift; local e=NODE${i}_ENV t=LOOKALIKE$i
      "$here/node-env.sh" -n "$i" -d "$D" ${!t:+-t "${!t}"} -l "$DEV" -- env ${!e} "$@"; }
lpid() { cat "$D/node$1/run/lvmlockd.pid" 2>/dev/null; }   # the daemon, not the wrapper shells around it
slay() { local p; p=$(lpid "$1") && [ -n "$p" ] && kill -9 "$p" 2>/dev/null; wait "${pids[$1]}" 2>/dev/null; rm -f "$D/node$1/run/lvmlockd.pid" "$D/node$1/run/lvm/lvmlockd.socket"; [ -z "$p" ] || ! kill -0 "$p" 2>/dev/null; }
cleanup() { slay 1; slay 2; losetup -d "$DEV"; [ -n "${KEEP:-}" ] || rm -rf "$D"; } 2>/dev/null
trap cleanup EXIT
ok()  { if "${@:2}" >"$D/out" 2>&1; then pass=$((pass+1)); echo "ok - $1"; else fail=$((fail+1)); echo "not ok - $1"; sed 's/^/#  /' "$D/out"; fi; }
nok() { # description, the message it must fail with, command
  if "${@:3}" >"$D/out" 2>&1 || ! grep -q -- "$2" "$D/out"; then fail=$((fail+1)); echo "not ok - $1"; sed 's/^/#  /' "$D/out"; else pass=$((pass+1)); echo "ok - $1 [$2]"; fi; }
has() { "${@:2}" 2>&1 | tee "$D/has" | grep -qE -- "$1" || { cat "$D/has"; return 1; }; }
spaces() { [ "$SPACES_HOOK" = 1 ] || return 0; case $1 in
  join) mkdir -p "$D/cluster/spaces/$2/nodes/$3";;
  leave) rm -rf "$D/cluster/spaces/$2/nodes/$3";; esac; }
PRE=
start() { n "$1" bash -c 'for f in devices misc; do   # libdevmapper wants to find its major and minor there
      grep -q device-mapper /proc/$f || mount --bind "$0/$f" /proc/$f; done; exec env "$@"' "$D" \
    $PRE LD_LIBRARY_PATH="$LIBDIR" lvmlockd -g dlm -f -D ${2:-} >"$D/lockd$1.log" 2>&1 & pids[$1]=$!
  for _ in $(seq 50); do [ -S "$D/node$1/run/lvm/lvmlockd.socket" ] && grep -q 'lvmlockd started' "$D/lockd$1.log" && return 0; sleep .1; done; return 1; }
# -A 1 from the start: only then does lvmlockd keep the file that a successor adopts from
cc -shared -fPIC -O1 -o "$D/fakedm.so" "$here/fakedm.c" -ldl || exit 70
{ cat /proc/devices; echo "253 device-mapper"; } >"$D/devices"; { cat /proc/misc; echo "236 device-mapper"; } >"$D/misc"
: >"$D/active"; PRE="LD_PRELOAD=$D/fakedm.so FAKEDM=$D/active"
ok  "lvmlockd starts on node 1"           start 1 "-A 1"
ok  "lvmlockd starts on node 2"           start 2
ok  "node 1 makes a shared VG"            n 1 vgcreate --shared vgs "$DEV"
spaces join lvm_global 1; spaces join lvm_vgs 1
ok  "lock type and args recorded"         has 'dlm +1\.0\.0:demo' n 1 vgs --noheadings -o locktype,lockargs vgs
nok "node 2 may not write before start" "Cannot access VG vgs due to failed lock" n 2 vgchange --addtag x vgs
ok  "node 2 starts the lockspace"         n 2 vgchange --lockstart vgs
spaces join lvm_global 2; spaces join lvm_vgs 2
ok  "node 2 sees the lockspace"           has 'LS dlm lvm_vgs' n 2 lvmlockctl --info
ok  "node 1 makes an LV"                  n 1 lvcreate -an -Zn -Wn -L 8M -n lv0 vgs
ok  "node 2 sees the LV"                  has lv0 n 2 lvs --noheadings -o name vgs
ok  "node 1 takes the LV lock EX"         n 1 lvchange -aey vgs/lv0
ok  "node 1 lists LV ex"                  has '^LK LV ex' n 1 lvmlockctl --info
nok "node 2 is refused EX" "LV locked by other host" n 2 lvchange -aey vgs/lv0
nok "node 2 is refused SH" "LV locked by other host" n 2 lvchange -asy vgs/lv0
ok  "node 1 lets go"                      n 1 lvchange -an vgs/lv0
ok  "node 2 gets SH"                      n 2 lvchange -asy vgs/lv0
ok  "node 1 gets SH as well"              n 1 lvchange -asy vgs/lv0
nok "node 1 cannot upgrade to EX" "LV locked by other host" n 1 lvchange -aey vgs/lv0
ok  "both let go (1)"                     n 1 lvchange -an vgs/lv0
ok  "both let go (2)"                     n 2 lvchange -an vgs/lv0
ok  "node 1 writes metadata"              n 1 vgchange --addtag seen vgs
ver1() { n "$1" lvmlockctl --info | awk '/^LS dlm lvm_vgs/{f=1} f&&/^LK VG/{print $5; exit}'; }
n 2 vgs vgs >/dev/null 2>&1
ok  "LVB: VG version crosses the nodes ($(ver1 1) = $(ver1 2))"  test "$(ver1 1)" = "$(ver1 2)"
# lost-update test: both nodes add tags at once; a try that meets a held lock is repeated
seqno() { n 1 vgs --noheadings -o seqno vgs 2>/dev/null | tr -d ' '; }
s0=$(seqno)
hammer() { local i k won; for i in $(seq "$rounds"); do won=0; for k in $(seq 20); do
   n "$1" timeout 20 vgchange --config global/lvmlockd_lock_retries=3 --addtag "n$1r$i" vgs >>"$D/hammer$1" 2>&1 && { won=1; break; }; done
   [ "$won" = 1 ] || return 1; done; }   # a manager that lets both write can wreck the VG itself: stop then
hammer 1 & h1=$!; hammer 2 & h2=$!; wait "$h1" "$h2"
s1=$(seqno)
t=$(n 2 vgs --noheadings -o tags vgs 2>/dev/null | tr ',' '\n' | grep -c '^ *n[12]r')
ok  "no lost update: $t of $((2*rounds)) tags, seqno $s0 -> $s1" test "$t" = $((2*rounds)) -a "${s1:-none}" = "$((s0+2*rounds))"
# a holder dies: its persistent lock must go on protecting the LV
ok  "node 1 takes the LV lock EX again"   n 1 lvchange -aey vgs/lv0
ok  "node 1's lvmlockd is killed"         slay 1
nok "dead holder's orphan still refuses node 2" "LV locked by other host" n 2 lvchange -aey vgs/lv0
ok  "VG lock itself is free again (node 2 writes)" n 2 vgchange --addtag after vgs
# a new lvmlockd on node 1 takes the orphan over (-A 1). It asks device-mapper which LVs are active,
# which fakedm.c answers; the UUIDs come from lvm itself.
u() { n 2 "$1" --noheadings -o "$2" "$3" 2>/dev/null | tr -d ' -'; }
echo "vgs-lv0 LVM-$(u vgs vg_uuid vgs)$(u lvs lv_uuid vgs/lv0)" >"$D/active"
ok  "lvmlockd restarts on node 1 with -A 1" start 1 "-A 1"
adopted() { for _ in $(seq 100); do grep -q 'adopt_locks done' "$D/lockd1.log" && return 0; sleep .1; done; grep -i adopt "$D/lockd1.log" | tail -4; return 1; }
ok  "adoption completes"                  adopted
ok  "the orphan is adopted as EX"         has '^LK LV ex' n 1 lvmlockctl --info
nok "node 2 is still refused" "LV locked by other host" n 2 lvchange -aey vgs/lv0
ok  "node 1 lets the adopted lock go"     n 1 lvchange -an vgs/lv0
ok  "now node 2 gets EX"                  n 2 lvchange -aey vgs/lv0
ok  "node 2 lets go"                      n 2 lvchange -an vgs/lv0
# removing the VG: refused while the other node still has the lockspace, then told through the LVB
nok "vgremove refused while node 2 is in the lockspace" "not stopped on other hosts" n 1 vgremove -ff -y vgs
ok  "node 2 stops the lockspace"          n 2 vgchange --lockstop vgs
spaces leave lvm_vgs 2; sleep 1
ok  "vgremove on node 1"                  n 1 vgremove -ff -y vgs
nok "the VG is gone on node 2" "Volume group .vgs. not found" n 2 vgs vgs
echo "$pass passed, $fail failed"
[ "$fail" = 0 ]
