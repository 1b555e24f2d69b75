#!/bin/bash
# node-env.sh -- run a command as "node N" of a look-alike cluster on one machine.
#
#   node-env.sh -n NODEID [-t TREE | -c CLUSTER [-C]] [-d STATEDIR] [-a 0|1] [-l DEV]... -- COMMAND [ARG...]
#
# Private mount namespace per call (or per node when nested), in which
#   /sys/kernel/config/dlm/cluster   is STATEDIR/cluster, shared by all nodes
#                                    (cluster_name, spaces/<ls>/nodes/<id>)
#   /run                             is STATEDIR/node<N>/run: the node's own /run/lvm,
#                                    /run/lock/lvm, /run/lvmlockd.pid (lvm insists on that
#                                    path); every other entry of /run at the start is a
#                                    symlink to the real one (sockets keep working)
#   LVM_SYSTEM_DIR                   is STATEDIR/node<N>/lvm (lvm.conf written on first use)
# Nothing outside the namespace is touched; the kernel needs neither configfs nor DLM nor dm.
# /sys/kernel is covered by a read-only overlay only where /sys/kernel/config is missing,
# because sysfs itself takes no mkdir.
#
# -t TREE  a tree that a daemon keeps, in place of STATEDIR/cluster
# -u FILE  the mounts are those that the unit file FILE makes (BindReadOnlyPaths=), of the daemon that keeps TREE
# -C       put the cluster directory under STATEDIR/node<N> instead (each node its own view)
# -l DEV   device that lvm may see (repeatable)
# -a 0|1   lvm.conf global/activation (default 0: no device-mapper needed)
# Needs root (CAP_SYS_ADMIN), util-linux; overlayfs where /sys/kernel/config is missing.
set -euo pipefail
node=1 cluster=demo dir=/tmp/dlm-clients own=0 act=0 tree= unit= devs=()
while getopts n:c:d:l:a:t:u:C o; do
  case $o in
    n) node=$OPTARG;; c) cluster=$OPTARG;; d) dir=$OPTARG;;
    l) devs+=("$OPTARG");; a) act=$OPTARG;; C) own=1;; t) tree=$OPTARG;; u) unit=$OPTARG;;
    *) exit 64;;
  esac
done
shift $((OPTIND-1)); [ "${1:-}" = -- ] && shift
[ $# -gt 0 ] || { echo "no command" >&2; exit 64; }

nd=$dir/node$node
cd_=$dir/cluster; [ "$own" = 1 ] && cd_=$nd/cluster
mkdir -p "$nd"/{run/lvm,run/lock/lvm,oldrun,lvm,lower/config}
if [ -n "$tree" ]; then cd_=$tree
else
  mkdir -p "$cd_"/{spaces,comms}
  [ -e "$cd_/cluster_name" ] || echo "$cluster" >"$cd_/cluster_name"
fi
if [ ! -e "$nd/lvm/lvm.conf" ] || [ ${#devs[@]} -gt 0 ]; then
  f=; for d in "${devs[@]+"${devs[@]}"}"; do f="$f \"a|^$d\$|\","; done
  cat >"$nd/lvm/lvm.conf" <<CONF
global { use_lvmlockd=1 activation=$act lvmlockd_lock_retries=0 system_id_source="none" event_activation=0 }
devices {
  dir="/dev" scan=["/dev"] use_devicesfile=0 hints="none"
  obtain_device_list_from_udev=0 external_device_info_source="none"
  multipath_component_detection=0 md_component_detection=0
  filter=[$f "r|.*|"] global_filter=[$f "r|.*|"]
}
activation { udev_sync=0 udev_rules=0 monitoring=0 }
backup { backup=0 archive=0 }
CONF
fi
export NODE_DIR=$nd CLUSTER_DIR=$cd_ NODE_ID=$node UNIT_FILE=$unit
export LVM_SYSTEM_DIR=$nd/lvm LVM_SUPPRESS_FD_WARNINGS=1
exec unshare -m --propagation private bash -c '
  set -e
  if [ ! -d /sys/kernel/config ]; then
    mount -t overlay -o ro,lowerdir="$NODE_DIR/lower:/sys/kernel" cfg /sys/kernel
  fi
  if [ -n "$UNIT_FILE" ]; then
    config=${CLUSTER_DIR%/dlm/cluster}
    while IFS== read -r key paths; do
      [ "$key" = BindReadOnlyPaths ] || continue
      from=${paths#-}; to=${from#*:}; from=${from%%:*}
      mount --bind "${from/#\/run\/dlm\/config/$config}" "$to"
      mount -o remount,bind,ro "$to"
    done <"$UNIT_FILE"
  else
    mount -t tmpfs -o mode=755 cfg /sys/kernel/config
    mkdir -p /sys/kernel/config/dlm/cluster
    mount --bind "$CLUSTER_DIR" /sys/kernel/config/dlm/cluster
  fi
  mount --rbind /run "$NODE_DIR/oldrun"
  mount --bind "$NODE_DIR/run" /run
  for e in "$NODE_DIR"/oldrun/*; do
    b=${e##*/}
    case $b in lvm|lvmlockd.*|lock) continue;; esac
    [ -e "/run/$b" ] || ln -sfn "$e" "/run/$b"
  done
  exec "$@"' node-env "$@"
