//! Fields of cluster objects that Heddle ignores.
//!
//! They are known, so that the output of `kubectl get -o yaml` can be used as it is, but have no effect here: a
//! cluster's own controllers act on them, or write them. A field whose missing effect callers would notice is not in
//! this table: it is decoded, and `compile` refuses it or warns about it.

/// The ignored fields of a struct, by its Rust name.
pub(crate) fn fields(of: &str) -> &'static [&'static str] {
    match of {
        "Metadata" => &[
            "deletionGracePeriodSeconds",
            "deletionTimestamp",
            "finalizers",
            "generateName",
            "generation",
            "managedFields",
            "ownerReferences",
            "resourceVersion",
            "selfLink",
            "uid",
        ],
        "Service" | "HttpRoute" | "ReferenceGrant" | "AuthorizationPolicy" => &["status"],
        "ServiceSpec" => &[
            "allocateLoadBalancerNodePorts",
            "externalIPs",
            "externalTrafficPolicy",
            "healthCheckNodePort",
            "ipFamilies",
            "ipFamilyPolicy",
            "loadBalancerClass",
            "loadBalancerIP",
            "loadBalancerSourceRanges",
            "publishNotReadyAddresses",
            "sessionAffinityConfig",
            "trafficDistribution",
        ],
        "ServicePortSpec" => &["nodePort"],
        "ServiceAccount" => &[
            "automountServiceAccountToken",
            "imagePullSecrets",
            "secrets",
        ],
        "Namespace" => &["spec", "status"],
        "SliceEndpoint" => &[
            "deprecatedTopology",
            "hints",
            "hostname",
            "nodeName",
            "targetRef",
            "zone",
        ],
        "SlicePort" => &["appProtocol"],
        "SliceConditions" => &["serving", "terminating"],
        "LocalProbe" => &[
            "failureThreshold",
            "initialDelaySeconds",
            "periodSeconds",
            "successThreshold",
            "terminationGracePeriodSeconds",
            "timeoutSeconds",
        ],
        "HttpGet" => &["httpHeaders"],
        "HttpRouteSpec" => &["useDefaultGateways"],
        _ => &[],
    }
}
