start_control_plane
say "control plane after $SECONDS s"
start_containerd
say containerd
start_kubelet none
say kubelet
kubectl get nodes
bash
