#!/bin/bash
# three-machines.sh -- carries out the README's section "A three-machine cluster in ten lines" as it is
# written there, on three hosts out of network namespaces.
#
#   BIN=/folder/with/dlmd+dlm_tool  LIBDIR=/folder/with/libdlm.so.3  three-machines.sh [README.md]
#
# What the lines find on real machines and not here is stood in for, and nothing else: ssh and scp go to
# the other namespace, and systemctl starts what the units of these names start. Each host has an /etc
# of its own. Prints one "ok"/"not ok" line a check and, last, "N passed, N failed".
# Needs root, corosync, iproute2, nftables, overlayfs.
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${BIN:?}" "${LIBDIR:?}"
readme=${1:-$here/../../README.md}
D=$(mktemp -d /tmp/three.XXXXXX)
export NC_PREFIX=t$$ NC_NET=10.83 NC_DIR=$D/net
pass=0 fail=0
ok() { if "${@:2}" >"$D/out" 2>&1; then pass=$((pass+1)); echo "ok - $1"; else fail=$((fail+1)); echo "not ok - $1"; sed 's/^/#  /' "$D/out"; fi; }
has() { "${@:2}" 2>&1 | tee "$D/has" | grep -qE -- "$1" || { cat "$D/has"; return 1; }; }
soon() { for _ in $(seq 200); do "$@" >/dev/null 2>&1 && return 0; sleep .1; done; "$@"; }
cleanup() { "$here/netns-cluster.sh" down >/dev/null 2>&1; [ -n "${KEEP:-}" ] && echo "kept $D" || rm -rf "$D"; }
trap cleanup EXIT

"$here/netns-cluster.sh" up 3 || exit 3
mkdir -p "$D/bin"
# A host: namespaces of its own, in which a sleep holds the place that others enter.
host() {
  local n=$1
  mkdir -p "$D/$n"/{up,work}
  "$here/netns-cluster.sh" exec "$n" bash -c '
    mount -t overlay -o lowerdir=/etc,upperdir='"$D/$n"'/up,workdir='"$D/$n"'/work overlay /etc || exit 1
    cp '"$D"'/net/hosts /etc/hosts; rm -rf /etc/corosync /etc/dlm; mkdir -p /etc/corosync /etc/dlm
    echo $$ >'"$D/$n"'/pid; exec sleep 600' >"$D/$n/log" 2>&1 </dev/null & disown
  for _ in $(seq 100); do [ -s "$D/$n/pid" ] && return 0; sleep .05; done; cat "$D/$n/log"; return 1
}
for n in n1 n2 n3; do host $n || exit 3; done

cat >"$D/bin/enter" <<END
#!/bin/bash
# enter HOST COMMAND...
n=\$1; shift
exec nsenter -t "\$(cat $D/\$n/pid)" -m -n -u env HOST=\$n PATH=$D/bin:$BIN:\$PATH LD_LIBRARY_PATH=$LIBDIR "\$@"
END
cat >"$D/bin/ssh" <<END
#!/bin/bash
h=\${1#root@}; shift
exec $D/bin/enter "\$h" bash -c "\$*"
END
# scp -rp FILE... root@HOST:FOLDER
cat >"$D/bin/scp" <<END
#!/bin/bash
files=(); for word; do case \$word in -*) ;; *:*) to=\$word;; *) files+=("\$word");; esac; done
h=\${to%%:*}; h=\${h#root@}
tar -cf - -C / "\${files[@]#/}" | $D/bin/enter "\$h" tar -xpf - -C /
END
# Only what these two units start; corosync is told what a sandbox cannot give it.
cat >"$D/bin/systemctl" <<END
#!/bin/bash
shift
for unit; do case \$unit in
  corosync)
    { cat /etc/corosync/corosync.conf; printf 'system {\n move_to_root_cgroup: no\n sched_rr: no\n allow_knet_handle_fallback: yes\n}\n'; } >/run/corosync.conf
    setsid corosync -c /run/corosync.conf -f >$D/\$HOST/corosync.log 2>&1 </dev/null &
    for _ in \$(seq 200); do corosync-cmapctl totem.cluster_name >/dev/null 2>&1 && break; sleep .05; done;;
  dlmd)
    setsid $BIN/dlmd --foreground --override-kernel-dlm >$D/\$HOST/dlmd.log 2>&1 </dev/null &
    for _ in \$(seq 200); do [ -S /run/dlm/dlmd.sock ] && break; sleep .05; done;;
  *) echo "systemctl: no unit \$unit" >&2; exit 5;;
esac; done
END
chmod +x "$D"/bin/*

# The section's block, line by line as it stands.
awk '/^## A three-machine cluster in ten lines/{s=1} s&&/^```sh$/{b=1;next} b&&/^```$/{exit} b' "$readme" >"$D/block"
lines=$(grep -c . "$D/block")
ok "the README has the section, of ten lines"    test "$lines" = 10
number=0
while IFS= read -r line; do
  number=$((number+1))
  ok "line $number: ${line:0:90}"                "$D/bin/enter" n1 bash -c "$line"
done <"$D/block"
members() { "$D/bin/enter" "$1" dlm_tool ls | grep -qx 'members       1 2 3 '; }
for n in n1 n2 n3; do ok "$n sees the lockspace with three members" soon members $n; done
ok "the cluster is quorate"                      has 'quorate 1' "$D/bin/enter" n2 dlm_tool status
ok "a lock is taken on one machine"              "$D/bin/enter" n1 dlm_tool exec demo job -- true
hold() { "$D/bin/enter" n1 dlm_tool exec demo job -- sleep 600 & held=$!; soon has 'EX|ex' "$D/bin/enter" n3 dlm_tool lock demo job; }
ok "and seen held from another"                  hold
refused() { ! "$D/bin/enter" n2 dlm_tool exec --try demo job -- true; }
ok "which is refused it"                         refused
kill $held 2>/dev/null; wait $held 2>/dev/null
ok "a machine dies"                              "$here/netns-cluster.sh" crash n3
left() { "$D/bin/enter" "$1" dlm_tool ls | grep -qx 'members       1 2 '; }
for n in n1 n2; do ok "$n goes on without it"    soon left $n; done
takes() { timeout 60 "$D/bin/enter" n2 dlm_tool exec demo job -- true; }
ok "and locks are taken again"                   takes
[ "$fail" = 0 ] || tail -n 20 "$D"/n?/dlmd.log
echo "$pass passed, $fail failed"
[ "$fail" = 0 ]
