//! Fields that objects of a cluster carry and that Heddle reads past.
//!
//! They are known, so that `kubectl get -o yaml` can be fed in as it is, and have no effect here:
//! either a cluster's own controllers act on them, or they record what those controllers did. A
//! field whose effect a caller would miss is not in this table: it is read, and refused or warned
//! about in `compile`.

/// The fields of a struct, by its Rust name, that are passed over.
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
