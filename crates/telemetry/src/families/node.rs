//! Families of a node beside its proxy: workloads, pods, identities, and the registry, which a control plane may
//! follow, too.

super::families! {
    LISTENER_PROBLEMS = Gauge "heddle_listener_problems" []
        "Listeners that could not be opened; Heddle tries again every 5 s.";
    WORKLOAD_UP = Gauge "heddle_workload_up" [workload]
        "1 while the workload's process runs.";
    WORKLOAD_RESTARTS = Counter "heddle_workload_restarts_total" [workload]
        "Runs of the workload's process after the first."
        more "operations.md#a-workload-keeps-restarting";
    PODS = Gauge "heddle_pods" [state]
        "Enrolled pods: serving, or held, whose connections wait or are refused. On a node with --intercept; while its proxy is down there are no metrics: use heddle pods."
        more "interception.md#pods";
    HOOK_TABLES_FULL = Counter "heddle_hook_tables_full_total" [table]
        "Connections for which a table of the BPF hooks had no room, since the holder was started. On a node with --intercept."
        more "interception.md#when-something-is-wrong";
    IDENTITY_EXPIRY = Gauge "heddle_identity_expiry_timestamp_seconds" [spiffe_id]
        "When the certificate of an identity expires, in seconds since 1970; for at most a thousand identities."
        more "identity.md";
    IDENTITY_RENEWALS = Counter "heddle_identity_renewals_total" []
        "Certificates that replaced others.";
    IDENTITY_RENEWAL_FAILURES = Counter "heddle_identity_renewal_failures_total" []
        "Failed attempts to get a certificate.";
    CONTROL_CONNECTED = Gauge "heddle_control_connected" []
        "1 while the node reaches the control plane.";
    CLOCK_DEGRADED = Gauge "heddle_clock_degraded" []
        "1 while the system's clock is behind the time floor."
        more "identity.md#a-clock-that-is-wrong";
    STATE_UNSAVED = Gauge "heddle_state_unsaved" []
        "1 while a file of the node's state folder is damaged or could not be written."
        more "identity.md#a-state-folder-that-cannot-be-written";
    DISCOVERY_LEARNED = Gauge "heddle_discovery_learned" [state]
        "Services and addresses that the node has named to the control plane: asked, there, absent or unreadable. The three families of discovery exist on a node that knows only what it uses."
        more "on-demand.md";
    DISCOVERY_ASKED = Counter "heddle_discovery_asked_total" []
        "Services and addresses that were named to the control plane.";
    DISCOVERY_FORGOTTEN = Counter "heddle_discovery_forgotten_total" []
        "Services and addresses that were not used for long, or made room for others of the same caller.";
    REGISTRY_CONNECTED = Gauge "heddle_registry_connected" []
        "1 while the registry is followed. The four families of the registry exist where one is followed, also on a control plane."
        more "registry.md";
    REGISTRY_PROVIDERS = Gauge "heddle_registry_providers" []
        "Providers in the registry whose own registration is valid.";
    REGISTRY_PROVIDERS_CALLED = Gauge "heddle_registry_providers_called" []
        "Providers in the registry that are an endpoint of a Service.";
    REGISTRY_PROBLEMS = Gauge "heddle_registry_problems" [reason]
        "Entries of the registry that are wrong, left out, or called by no Service, by reason."
        more "registry.md#what-is-wrong-in-it";
}
