# Starts a control plane and a kubelet in the folder $work, for scripts/kubelet.sh, whose functions it uses. It runs in
# namespaces of its own for processes, mounts and the network: ports are free, and all ends with them.
# shellcheck shell=bash disable=SC2154

address=10.80.0.1
pids=()

in_background() { # in_background NAME COMMAND...: its output is in $work/NAME.log
    local name=$1
    shift
    "$@" >>"$work/$name.log" 2>&1 &
    printf -v "pid_$name" %d $!
}
kubectl() {
    "$kubernetes/kubectl" --kubeconfig=/dev/null --cache-dir="$work/kubectl" --server=https://127.0.0.1:6443 \
        --insecure-skip-tls-verify --token=admin "$@"
}

start_control_plane() {
    ip link set lo up
    ip address add $address/32 dev lo
    cat >"$work/tokens" <<'TOKENS'
admin,admin,1,"system:masters"
node,system:node:heddle-test,2,"system:nodes"
agent,heddle-agent,3
TOKENS
    openssl genrsa -out "$work/accounts.key" 2048 2>/dev/null
    in_background etcd "$kubernetes/etcd" --data-dir="$work/etcd" --unsafe-no-fsync
    in_background apiserver "$kubernetes/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 \
        --bind-address=127.0.0.1 --secure-port=6443 --advertise-address=$address --cert-dir="$work/apiserver" \
        --token-auth-file="$work/tokens" --authorization-mode=Node,RBAC --service-cluster-ip-range=10.81.0.0/16 \
        --service-account-key-file="$work/accounts.key" --service-account-signing-key-file="$work/accounts.key" \
        --service-account-issuer=https://kubernetes.default.svc --endpoint-reconciler-type=none \
        --disable-admission-plugins=ServiceAccount --kubelet-preferred-address-types=InternalIP
    eventually 60 "the API server is ready" kubectl get --raw /readyz
}

start_containerd() {
    mkdir -p "$work/cni"
    # Pods use the network of the node: this only makes the kubelet take the node as ready.
    cat >"$work/cni/10-loopback.conflist" <<'CNI'
{"cniVersion": "0.4.0", "name": "loopback", "plugins": [{"type": "loopback"}]}
CNI
    cat >"$work/containerd.toml" <<CONTAINERD
version = 2
root = "$work/containerd"
state = "$work/run"
[grpc]
  address = "$work/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "heddle.dev/pod:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$work/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
CONTAINERD
    in_background containerd containerd --config "$work/containerd.toml"
    eventually 30 "containerd is ready" ctr --address "$work/containerd.sock" version
    make_image
    ctr --address "$work/containerd.sock" --namespace k8s.io image import "$work/image.tar" >/dev/null
}

# An image in the form of `docker save`: a configuration, and one layer with one program.
make_image() {
    local at=$work/image
    mkdir -p "$at/layer"
    gcc -O2 -static -o "$at/layer/pod" scripts/kubelet/pod.c
    tar -C "$at/layer" -cf "$at/layer.tar" pod
    printf '{"architecture":"%s","os":"linux","config":{"Entrypoint":["/pod"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
        "$(dpkg --print-architecture)" "$(sha256sum "$at/layer.tar" | cut -d' ' -f1)" >"$at/config.json"
    printf '[{"Config":"config.json","RepoTags":["heddle.dev/pod:1"],"Layers":["layer.tar"]}]' >"$at/manifest.json"
    tar -C "$at" -cf "$work/image.tar" manifest.json config.json layer.tar
}

start_kubelet() { # start_kubelet CPU-MANAGER-POLICY
    mkdir -p "$work/kubelet" "$work/manifests" "$work/logs" "$work/log" "$work/plugins"
    # The kubelet makes /var/log/containers, whatever it is told.
    mountpoint -q /var/log || mount --bind "$work/log" /var/log
    cat >"$work/kubeconfig" <<'CONFIG'
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: a, user: {token: node}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
CONFIG
    cat >"$work/kubelet.yaml" <<CONFIG
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
authentication: {anonymous: {enabled: false}, webhook: {enabled: true, cacheTTL: 1s}}
authorization: {mode: Webhook, webhook: {cacheAuthorizedTTL: 1s, cacheUnauthorizedTTL: 1s}}
cgroupDriver: cgroupfs
cgroupRoot: /$root
containerRuntimeEndpoint: unix://$work/containerd.sock
cpuManagerPolicy: $1
systemReserved: {cpu: 500m}
enforceNodeAllocatable: []
evictionHard: {nodefs.available: 1%, imagefs.available: 1%}
failCgroupV1: false
failSwapOn: false
podLogsDir: $work/logs
resolvConf: ""
staticPodPath: $work/manifests
volumePluginDir: $work/plugins
CONFIG
    in_background kubelet "$kubernetes/kubelet" --config="$work/kubelet.yaml" --kubeconfig="$work/kubeconfig" \
        --root-dir="$work/kubelet" --cert-dir="$work/pki" --hostname-override=heddle-test --node-ip=$address
    eventually 60 "the kubelet has registered" kubectl get node heddle-test
    kubectl wait --for=condition=Ready --timeout=60s node/heddle-test >/dev/null
}
