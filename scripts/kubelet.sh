#!/usr/bin/env bash
# Tests node QoS with a real kubelet: `make test-kubelet`. Needs root, and control groups of version 1.
#
#   scripts/kubelet.sh PATH-OF-HEDDLE
#
# It starts etcd, an API server, containerd and a kubelet in a folder and in namespaces of its own, makes pods, and looks
# at what `heddle qos run --kubelet` does to their control groups. All that it starts and makes is gone at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*"; }
die() { printf 'kubelet: %s\n' "$*" >&2; exit 1; }

# Mount points of all hierarchies of version 1, and of version 2 beside them, in which runc makes groups, too.
hierarchies() { awk '$3 ~ /^cgroup2?$/ && $2 ~ /^\/sys\/fs\/cgroup\// { print $2 }' /proc/mounts; }

if [ "${1:-}" != --inside ]; then
    heddle=$(realpath "$1")
    [ "$(id -u)" -eq 0 ] || die "root is needed: for control groups, containers and namespaces"
    [ -e /sys/fs/cgroup/cpu/cpu.shares ] || die "control groups of version 1 are needed, with the cpu controller in /sys/fs/cgroup/cpu"
    kubernetes=$(scripts/kubernetes.sh etcd kube-apiserver kubelet kubectl)
    work=$(mktemp -d /tmp/heddle-kubelet.XXXXXX)
    root=heddle-kubelet-$$
    clean() {
        for at in $(hierarchies); do
            find "$at/$root" -depth -type d -exec rmdir {} + 2>/dev/null || true
        done
        if [ -n "${KEEP:-}" ]; then say "logs are in $work"; else rm -rf "$work"; fi
    }
    trap clean EXIT
    for at in $(hierarchies); do
        mkdir "$at/$root"
        # A new group has no processors until it is told.
        for file in cpuset.cpus cpuset.mems; do
            [ ! -e "$at/$file" ] || cat "$at/$file" >"$at/$root/$file"
        done
    done
    export heddle kubernetes work root
    unshare --mount --net --pid --fork --kill-child --mount-proc --propagation private "$0" --inside
    exit
fi

# A condition that comes true in time, as a command that succeeds.
within() { # within SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.05
    done
}
eventually() { # eventually SECONDS WHAT COMMAND...
    within "$1" "${@:3}" || die "not within $1 s: $2"
}
. scripts/kubelet/node.sh
. scripts/kubelet/steps.sh
