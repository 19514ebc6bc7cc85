# What is tested, for scripts/kubelet.sh: each step prints what it found, and ends the run when that is wrong.
# shellcheck shell=bash disable=SC2154

cpu=/sys/fs/cgroup/cpu

pod() { # pod NAME ANNOTATIONS RESOURCES [COMMAND]: makes a pod on this node
    kubectl apply -f - >/dev/null <<POD
apiVersion: v1
kind: Pod
metadata: {name: $1, annotations: {$2}}
spec:
  nodeName: heddle-test
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  containers:
    - {name: main, image: "heddle.dev/pod:1", imagePullPolicy: Never, args: [${4:-}], resources: {$3}}
POD
}
is_ready() { kubectl wait --for=condition=Ready --timeout=60s "$@" >/dev/null || die "not ready: $*"; }
group() { # group NAME: the folder of a pod's group
    local uid
    uid=$(kubectl get pod "$1" -o jsonpath='{.metadata.uid}')
    find "$cpu/$root" -type d -name "pod$uid" | grep . || die "$1 has no group"
}
container() { # container GROUP: the folder of its container that has a quota
    local at
    for at in "$1"/*/; do
        [ "$(cat "$at/cpu.cfs_quota_us")" = -1 ] || { printf '%s\n' "$at"; return; }
    done
    die "no container with a quota in $1"
}
value() { cat "$1/cpu.$2"; }
is() { # is GROUP FILE VALUE
    [ "$(value "$1" "$2")" = "$3" ]
}
expect() { # expect GROUP FILE VALUE
    is "$@" || die "cpu.$2 of $1 is $(value "$1" "$2"), not $3"
}
# All settings of all pods that the agent may change. The groups above them are the kubelet's alone.
values() {
    local at file
    find "$cpu/$root/kubepods" -type d -path '*/pod*' | sort | while read -r at; do
        for file in idle shares cfs_quota_us cfs_burst_us; do
            printf '%s %s %s\n' "${at#"$cpu/$root/"}" $file "$(value "$at" $file)"
        done
        printf '%s memory %s\n' "${at#"$cpu/$root/"}" "$(cat "${at/cpu/memory}/memory.limit_in_bytes")"
    done
}
class() { "$heddle" qos status --state "$work/state" --output json | jq -r ".changes[] | select(.pod == \"$1\") | .class" | sort -u; }
said() { grep -qF "$1" "$work/agent.log"; }
now_ms() { date +%s%3N; }

start_agent() {
    printf '%s\n' "$1" >"$work/token"
    : >"$work/agent.log"
    in_background agent "$heddle" qos run --kubelet https://127.0.0.1:10250 --kubelet-ca "$work/pki/kubelet.crt" \
        --kubelet-token "$work/token" --kubelet-cgroup-root "/$root" --state "$work/state"
}
stop_agent() {
    kill "$pid_agent"
    wait "$pid_agent" || die "the agent failed: $(tail -n 3 "$work/agent.log")"
}

resize() { # resize POD REQUEST LIMIT
    kubectl patch pod "$1" --subresource resize --patch \
        "{\"spec\":{\"containers\":[{\"name\":\"main\",\"resources\":{\"requests\":{\"cpu\":\"$2\"},\"limits\":{\"cpu\":\"$3\"}}}]}}" >/dev/null
}
is_resized() { # is_resized POD LIMIT
    local now
    now=$(kubectl get pod "$1" -o jsonpath='{.status.containerStatuses[0].resources.limits.cpu} {.status.conditions[?(@.type=="PodResizeInProgress")].status}')
    [ "$now" = "$2 " ]
}

some='requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 500m, memory: 64Mi}'
offline='volcano.sh/preemptable: "true"'

skipped=0
skip() { say "   SKIPPED: $*" && skipped=$((skipped + 1)); }

start_control_plane
start_containerd
start_kubelet none
say "etcd, API server, containerd and kubelet are ready after $SECONDS s"
kubectl get serviceaccount default >/dev/null 2>&1 || kubectl create serviceaccount default >/dev/null

cat >"$work/manifests/static.yaml" <<'POD'
apiVersion: v1
kind: Pod
metadata: {name: static, namespace: default, labels: {heddle.dev/class: offline}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "heddle.dev/pod:1", imagePullPolicy: Never}]
POD
pod till "" "$some"
pod batch "$offline" "$some"
pod sure "$offline" 'requests: {cpu: 200m, memory: 64Mi}, limits: {cpu: 200m, memory: 64Mi}'
pod turbo 'volcano.sh/quota-turbo: "true", volcano.sh/quota-burst-time: "5000"' \
    'requests: {cpu: 50m}, limits: {cpu: 100m}' busy
is_ready pod/till pod/batch pod/sure pod/turbo pod/static-heddle-test
values >"$work/before"
if [ -n "${KEEP:-}" ]; then
    (cd "$cpu" && find "$root" -type d) | sort >"$work/tree"
    curl -sk -H "Authorization: Bearer admin" https://127.0.0.1:10250/pods >"$work/pods.json" || true
fi

say "-- a kubelet that refuses is said with a remedy"
start_agent wrong
eventually 10 "401 is said" said "it answers 401"
kubectl create clusterrole heddle-qos --verb=get --resource=nodes/pods >/dev/null
printf 'agent\n' >"$work/token"
eventually 10 "403 is said" said "it answers 403"
kubectl create clusterrolebinding heddle-qos --clusterrole=heddle-qos --user=heddle-agent >/dev/null
eventually 15 "the kubelet answers with nodes/pods" said "the kubelet answers again"

say "-- classes are found and preempted"
static=$(find "$cpu/$root/kubepods/besteffort" -maxdepth 1 -name 'pod*')
for at in "$(group batch)" "$(group sure)" "$static"; do
    eventually 5 "it is idle: $at" is "$at" idle 1
done
expect "$(group till)" idle 0
for name in batch sure static-heddle-test; do
    [ "$(class "default/$name")" = offline ] || die "the class of $name is $(class "default/$name")"
done
expect "$(container "$(group turbo)")" cfs_burst_us 5000

say "-- a new offline pod is preempted within about a second"
pod later "$offline" "$some"
uid=$(kubectl get pod later -o jsonpath='{.metadata.uid}')
at=$cpu/$root/kubepods/burstable/pod$uid
eventually 20 "there is a group" test -d "$at"
began=$(now_ms)
eventually 5 "it is idle" is "$at" idle 1
say "   after $(($(now_ms) - began)) ms"

say "-- turbo raises the quota of a busy container"
at=$(container "$(group turbo)")
is_raised() { [ "$(value "$at" cfs_quota_us)" -gt 10000 ]; }
if within 30 is_raised; then
    say "   from 10000 to $(value "$at" cfs_quota_us) us"
else
    skip "the quota did not grow within 30 s: the machine is busy ($(cut -d' ' -f1 /proc/loadavg))"
fi

say "-- in-place resizes"
for name in till batch sure turbo; do
    at=$(group $name)
    case $name in
    till | batch) request=200m limit=600m shares=204 quota=60000 ;;
    sure) request=300m limit=300m shares=307 quota=30000 ;;
    turbo) request=60m limit=150m shares=61 quota=15000 ;;
    esac
    began=$(now_ms)
    resize $name $request $limit
    eventually 60 "$name is resized" is_resized $name $limit
    took=$(($(now_ms) - began))
    case $name in
    till) expect "$at" idle 0 && expect "$at" shares $shares && expect "$at" cfs_quota_us $quota ;;
    batch | sure) eventually 5 "$name is idle again" is "$at" idle 1 && expect "$at" cfs_quota_us $quota ;;
    turbo) expect "$at" shares $shares ;;
    esac
    say "   $name after $took ms, done after $(($(now_ms) - began)) ms"
done

say "-- a class that changes at run time"
began=$(now_ms)
kubectl annotate pod till "volcano.sh/preemptable=true" >/dev/null
eventually 15 "till is idle" is "$(group till)" idle 1
say "   online to offline after $(($(now_ms) - began)) ms"
kubectl annotate pod till "volcano.sh/preemptable-" >/dev/null
eventually 15 "it is said" said "default/till: it is offline and cannot become online while it runs"
expect "$(group till)" idle 1

say "-- pods stay as they were while the kubelet is away"
kill "$pid_kubelet"
wait "$pid_kubelet" || true
eventually 15 "it is said" said "pods stay as they were"
expect "$(group batch)" idle 1

say "-- everything is put back"
stop_agent
[ "$(grep -c 'pods stay as they were' "$work/agent.log")" = 1 ] || die "said more than once"
# Apart from what was resized, and from the pod that came later.
changed=$(diff <(grep -v "pod$uid" "$work/before") <(values | grep -v "pod$uid") | grep '^>' || true)
if grep -v -E ' (shares (204|307|61)|cfs_quota_us (60000|30000|15000))$' <<<"$changed" | grep .; then
    die "not as it was"
fi
for pair in till:204 batch:204 sure:307 turbo:61; do
    expect "$(group "${pair%:*}")" shares "${pair#*:}"
done
expect "$(container "$(group turbo)")" cfs_quota_us 15000

say "-- with the static CPU manager, processors of a pod's own stay its own"
kubectl delete pod --all --force >/dev/null 2>&1
rm -f "$work/manifests/static.yaml" "$work/kubelet/cpu_manager_state"
start_kubelet static
pod own "$offline" 'requests: {cpu: 1, memory: 64Mi}, limits: {cpu: 1, memory: 64Mi}'
pod web "" "$some"
is_ready pod/own pod/web
are_two_left() { [ "$(find "$cpu/$root/kubepods" -type d -name 'pod*' | wc -l)" = 2 ]; }
eventually 60 "the groups of other pods are gone" are_two_left
at=$(group own)
processors() { cat "${1/$cpu//sys/fs/cgroup/cpuset}"/*/cpuset.cpus | sort | tr '\n' ' '; }
before=$(processors "$at")
values >"$work/before"
start_agent agent
eventually 15 "own is idle" is "$at" idle 1
expect "$(group web)" idle 0
[ "$(processors "$at")" = "$before" ] || die "the processors were $before"
say "   its containers have the processors $before"
stop_agent
diff "$work/before" <(values) || die "not as it was"

say "ok, $skipped steps skipped, after $SECONDS s"
