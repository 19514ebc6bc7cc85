//! Families of the agent of node QoS. No label names a pod: pods come and go.

super::families! {
    CHANGES = Gauge "heddle_qos_changes" [class setting]
        "Settings of control groups and interfaces that are changed now, by the class of the pods for which they are. A setting that is changed nowhere has no series."
        more "qos.md#what-it-leaves";
    WRITES = Counter "heddle_qos_writes_total" []
        "Values written to control groups, parts of interfaces that were changed, and rates that were set; what is put back counts, too.";
    REFUSALS = Counter "heddle_qos_refusals_total" [reason]
        "Changes that were not made or not put back, by reason: foreign (another program's value is there, and stays) or failed (the kernel or the journal refused)."
        more "qos.md#what-it-leaves";
    PODS = Gauge "heddle_qos_pods" [class]
        "Pods that the agent knows, by class.";
    TURBO_GRANTED = Gauge "heddle_qos_turbo_granted_cores" []
        "CPU quota that pods have beyond their own, in processors. Absent without quota turbo."
        more "qos.md#what-it-does";
    OFFLINE_MEMORY_LIMIT = Gauge "heddle_qos_offline_memory_limit_bytes" []
        "The limit of the memory of each offline pod, in bytes; a pod whose own limit is lower keeps that. Absent where memory is left alone."
        more "qos.md#what-it-does";
    LATENCY_LEVEL = Gauge "heddle_qos_latency_level" []
        "How tightly offline pods are limited because an online pod misses its objective: 0 is not at all. Absent while no online pod has an objective."
        more "qos.md#latency";
    EVICTIONS = Counter "heddle_qos_evictions_total" []
        "Offline pods that were evicted."
        more "qos.md#eviction";
    OFFLINE_RATE_LIMIT = Gauge "heddle_qos_offline_rate_limit_bytes_per_second" [interface]
        "What all offline pods together may send by an interface of the node, in bytes per second. Only while there are offline pods."
        more "qos.md#bandwidth";
    ONLINE_RATE = Gauge "heddle_qos_online_rate_bytes_per_second" [interface]
        "What online pods sent by an interface of the node in the last 100 ms, in bytes per second. Only while there are offline pods."
        more "qos.md#bandwidth";
    KUBELET_ANSWERS = Counter "heddle_qos_kubelet_answers_total" [result]
        "Questions to the kubelet, by what came of them: ok, or failed. Absent without a kubelet.";
}
