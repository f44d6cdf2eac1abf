#!/usr/bin/env bash
# A SLURM of one node on this machine, reachable from it alone: for tests, not for work.
#
#   apt-get install slurm-wlm munge        # Debian 12; as root, like the rest
#   tests/cluster/one_node.sh start [CPUS] [GPUS]
#   tests/cluster/one_node.sh stop
#
# GPUs are device files without a GPU: jobs queue for them and see CUDA_VISIBLE_DEVICES, and nothing can be computed there.
# A configuration that this script has not written is left alone.
set -euo pipefail

folder=/etc/slurm
written="# Written by leakbound's one_node.sh, which removes it."

configure() { # CPUS GPUS
  local memory devices=(/dev/null /dev/zero /dev/full /dev/random)
  memory=$(awk '/^MemTotal/ {print int($2 / 1024 * 0.9)}' /proc/meminfo)
  {
    echo "$written"
    for device in "${devices[@]:0:$2}"; do echo "NodeName=localhost Name=gpu File=$device"; done
  } >"$folder/gres.conf"
  cat >"$folder/slurm.conf" <<CONF
$written
ClusterName=one_node
SlurmctldHost=localhost(127.0.0.1)
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
# No control groups, as in a container: memory is watched and jobs that take more than they asked for are ended.
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
JobAcctGatherParams=OverMemoryKill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=bf_interval=5,sched_interval=5
KillWait=5
ReturnToService=2
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName=localhost NodeAddr=127.0.0.1 CPUs=$1 RealMemory=$memory Gres=gpu:$2
PartitionName=main Nodes=localhost Default=YES DefMemPerCPU=1000
CONF
}

case ${1:-} in
  start)
    if [ -L "$folder/slurm.conf" ] && [ ! -e "$folder/slurm.conf" ]; then rm "$folder/slurm.conf"; fi # leads nowhere
    if [ -e "$folder/slurm.conf" ] && ! grep -qF "$written" "$folder/slurm.conf"; then
      echo "$folder/slurm.conf is there already: this machine has a SLURM of its own" >&2
      exit 1
    fi
    command -v slurmctld slurmd munged >/dev/null || { echo "apt-get install slurm-wlm munge" >&2; exit 1; }
    configure "${2:-$(nproc)}" "${3:-0}"
    for service in munge slurmctld slurmd; do service "$service" start; done
    for _ in $(seq 60); do
      sinfo --noheader --format %T 2>/dev/null | grep -qxE 'idle|mixed|allocated' && exec sinfo --Node --long
      sleep 0.5
    done
    tail -n 5 /var/log/slurm/slurmctld.log /var/log/slurm/slurmd.log >&2
    exit 1
    ;;
  stop)
    grep -qsF "$written" "$folder/slurm.conf" || { echo "no SLURM of this script's runs here" >&2; exit 1; }
    scancel --quiet --partition main || true
    for _ in $(seq 40); do [ -z "$(squeue --noheader 2>/dev/null)" ] && break; sleep 0.5; done
    for service in slurmd slurmctld munge; do service "$service" stop; done
    rm -rf "$folder/slurm.conf" "$folder/gres.conf" /var/lib/slurm/slurmctld/*
    ;;
  *)
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
