#!/bin/bash
# lvm-one-node.sh -- unmodified lvmlockd + lvm on one node, one loop-backed PV,
# no device-mapper, no configfs, no kernel DLM.
#
#   LIBDIR=/path/with/libdlm_lt.so.3  LIBENV="VAR=VALUE ..."  LOOKALIKE=/dir  lvm-one-node.sh
#
# LIBDIR      directory put in LD_LIBRARY_PATH of lvmlockd and of the second party (hold.py)
# LIBENV      words that tell the library which daemon to use
# LOOKALIKE   what the daemon keeps in place of /sys/kernel/config/dlm/cluster
# UNIT        a unit file whose mounts lvmlockd and lvm get; without it they get LOOKALIKE in a mount of their own
# Prints one "ok"/"not ok" line a check and, last, "N passed, N failed".
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${LIBDIR:?}" "${LIBENV:=}" "${LOOKALIKE:?}"
D=$(mktemp -d /tmp/lvm1n.XXXXXX); pass=0 fail=0; lockd=
truncate -s 200M "$D/pv"; DEV=$(losetup -f --show "$D/pv") || exit 70
n() { "$here/node-env.sh" -n 1 -d "$D" -t "$LOOKALIKE" ${UNIT:+-u "$UNIT"} -l "$DEV" -- env $LIBENV "$@"; }
lpid() { cat "$D/node1/run/lvmlockd.pid" 2>/dev/null; }   # the daemon, not the wrapper shells around it
slay() { local p; p=$(lpid) && [ -n "$p" ] && kill -9 "$p" 2>/dev/null; wait "$lockd" 2>/dev/null
         rm -f "$D/node1/run/lvmlockd.pid" "$D/node1/run/lvm/lvmlockd.socket"; [ -z "$p" ] || ! kill -0 "$p" 2>/dev/null; }
cleanup() { exec 9>&-; slay; losetup -d "$DEV"; [ -n "${KEEP:-}" ] || rm -rf "$D"; } 2>/dev/null
trap cleanup EXIT
ok()  { if "${@:2}" >"$D/out" 2>&1; then pass=$((pass+1)); echo "ok - $1"; else fail=$((fail+1)); echo "not ok - $1"; sed 's/^/#  /' "$D/out"; fi; }
nok() { # description, the message it must fail with, command
  if "${@:3}" >"$D/out" 2>&1 || ! grep -q -- "$2" "$D/out"; then fail=$((fail+1)); echo "not ok - $1"; sed 's/^/#  /' "$D/out"; else pass=$((pass+1)); echo "ok - $1 [$2]"; fi; }
has() { "${@:2}" 2>&1 | tee "$D/has" | grep -qE -- "$1" || { cat "$D/has"; return 1; }; }
soon() { for _ in $(seq 100); do "$@" && return 0; sleep .1; done; return 1; }
gone() { [ ! -e "$1" ]; }
# the second party, which is not lvm: holds a lock until `drop`, or only tries one
hold() { rm -f "$D/ctl" "$D/held"; mkfifo "$D/ctl"
         env LD_LIBRARY_PATH="$LIBDIR" $LIBENV "$here/hold.py" "$@" <"$D/ctl" >"$D/held" 2>&1 & h=$!
         exec 9>"$D/ctl"; soon grep -q held "$D/held" || { cat "$D/held"; return 1; }; }
drop() { exec 9>&-; wait "$h"; }
try() { env LD_LIBRARY_PATH="$LIBDIR" $LIBENV timeout 30 "$here/hold.py" "$@" try </dev/null; }
start() { n bash -c 'for f in devices misc; do   # libdevmapper wants to find its major and minor there
      grep -q device-mapper /proc/$f || mount --bind "$0/$f" /proc/$f; done; exec env "$@"' "$D" \
    $PRE LD_LIBRARY_PATH="$LIBDIR" lvmlockd -g dlm -f -D -A 1 >"$D/lockd.log" 2>&1 9>&- & lockd=$!
  for _ in $(seq 100); do [ -S "$D/node1/run/lvm/lvmlockd.socket" ] && grep -q 'lvmlockd started' "$D/lockd.log" && return 0; sleep .1; done; return 1; }
cc -shared -fPIC -O1 -o "$D/fakedm.so" "$here/fakedm.c" -ldl || exit 70
{ cat /proc/devices; echo "253 device-mapper"; } >"$D/devices"; { cat /proc/misc; echo "236 device-mapper"; } >"$D/misc"
: >"$D/active"; PRE="LD_PRELOAD=$D/fakedm.so FAKEDM=$D/active"

# -A 1 from the start: only then does lvmlockd keep the file that a successor adopts from
ok  "the look-alike names the cluster"    has . cat "$LOOKALIKE/cluster_name"
cluster=$(cat "$LOOKALIKE/cluster_name")
ok  "lvmlockd starts"                     start
ok  "a shared VG is made"                 n vgcreate --shared vgs "$DEV"
ok  "lock type and args recorded"         has "dlm +1\.0\.0:$cluster" n vgs --noheadings -o locktype,lockargs vgs
ok  "the look-alike shows its lockspaces" test -d "$LOOKALIKE/spaces/lvm_global/nodes" -a -d "$LOOKALIKE/spaces/lvm_vgs/nodes"
ok  "with this node alone in them"        test "$(ls "$LOOKALIKE/spaces/lvm_vgs/nodes" | wc -l)" = 1
ok  "lvmlockd lists the lockspace"        has 'LS dlm lvm_vgs' n lvmlockctl --info
ok  "an LV is made"                       n lvcreate -an -Zn -Wn -L 8M -n lv0 vgs
u() { n "$1" --noheadings -o "$2" "$3" 2>/dev/null | tr -d ' '; }
UUID=$(u lvs lv_uuid vgs/lv0) VGUUID=$(u vgs vg_uuid vgs)
ok  "the LV lock is taken EX"             n lvchange -aey vgs/lv0
ok  "and listed"                          has '^LK LV ex' n lvmlockctl --info
nok "another program is refused the LV's name" refused try lvm_vgs "$UUID" PR
ok  "lvm lets go"                         n lvchange -an vgs/lv0
ok  "now another program gets it EX"      hold lvm_vgs "$UUID" EX
nok "and lvm is refused EX" "LV locked by other host" n lvchange -aey vgs/lv0
nok "and SH" "LV locked by other host" n lvchange -asy vgs/lv0
drop
ok  "another program holds it PR"         hold lvm_vgs "$UUID" PR
nok "lvm is refused EX" "LV locked by other host" n lvchange -aey vgs/lv0
ok  "and gets SH beside it"               n lvchange -asy vgs/lv0
nok "but no upgrade to EX" "LV locked by other host" n lvchange -aey vgs/lv0
ok  "lvm lets go (2)"                     n lvchange -an vgs/lv0
drop
ok  "another program holds the VG lock EX" hold lvm_vgs VGLK EX
nok "lvm may not write the VG" "VG vgs lock failed: held by other host" n vgchange --addtag x vgs
drop
version() { n lvmlockctl --info | awk '/^LS dlm lvm_vgs/{f=1} f&&/^LK VG/{print $5; exit}'; }
v0=$(version)
ok  "lvm writes metadata"                 n vgchange --addtag seen vgs
v1=$(version)
ok  "the VG version in the value block moves on ($v0, then $v1)" test "$v0" != "$v1"
# the holder dies: its persistent lock must go on protecting the LV
ok  "the LV lock is taken EX again"       n lvchange -aey vgs/lv0
ok  "lvmlockd is killed"                  slay
nok "the dead holder's orphan still refuses others" refused try lvm_vgs "$UUID" PR
ok  "the VG lock itself is free"          try lvm_vgs VGLK EX
# a new lvmlockd takes the orphan over (-A 1). It asks device-mapper which LVs are active, which
# fakedm.c answers.
echo "vgs-lv0 LVM-${VGUUID//-/}${UUID//-/}" >"$D/active"
ok  "lvmlockd starts again with -A 1"     start
adopted() { soon grep -q 'adopt_locks done' "$D/lockd.log" && return 0; grep -i adopt "$D/lockd.log" | tail -4; return 1; }
ok  "adoption completes"                  adopted
ok  "the orphan is adopted as EX"         has '^LK LV ex' n lvmlockctl --info
nok "others are still refused" refused    try lvm_vgs "$UUID" PR
ok  "lvm lets the adopted lock go"        n lvchange -an vgs/lv0
ok  "now others get EX"                   try lvm_vgs "$UUID" EX
ok  "the VG is removed"                   n vgremove -ff -y vgs
ok  "and its lockspace leaves the look-alike" soon gone "$LOOKALIKE/spaces/lvm_vgs"
echo "$pass passed, $fail failed"
[ "$fail" = 0 ]
