//! Families of a control plane. No label names a node: there may be thousands.

super::families! {
    NODES = Gauge "heddle_control_nodes" []
        "Nodes that are connected and follow the mesh.";
    NODES_KNOWN = Gauge "heddle_control_nodes_known" []
        "Nodes whose own certificate is valid, connected or not.";
    NODES_UNCONFIRMED = Gauge "heddle_control_nodes_unconfirmed" []
        "Nodes that a rotation of roots waits for; 0 without a rotation."
        more "identity.md#replacing-the-root";
    MESH_GENERATION = Gauge "heddle_control_mesh_generation" []
        "Version of the mesh that nodes are sent, counted since the start.";
    MESHES_SENT = Counter "heddle_control_meshes_sent_total" []
        "How often a node was told that it has everything of a version of the mesh.";
    RESOURCES_SENT = Counter "heddle_control_resources_sent_total" []
        "Resources that were sent to nodes, and names of resources that are gone."
        more "identity.md#what-a-node-is-sent";
    RESOURCE_BYTES_SENT = Counter "heddle_control_resource_bytes_sent_total" []
        "Bytes of the messages with resources that were sent to nodes, before encryption.";
    RESOURCES_REFUSED = Counter "heddle_control_resources_refused_total" []
        "Responses of which a node refused a resource; the log has the reason. What the node had stays in force."
        more "identity.md#what-a-node-is-sent";
    ENVOYS = Gauge "heddle_control_envoys" []
        "Envoys of workloads that are connected."
        more "envoy.md#when-something-is-wrong";
    ENVOYS_KNOWN = Gauge "heddle_control_envoys_known" []
        "Workloads with an Envoy, connected or not.";
    GATEWAYS = Gauge "heddle_control_gateways" []
        "Gateways of lazy Envoys that are connected."
        more "envoy.md#gateways";
    GATEWAYS_KNOWN = Gauge "heddle_control_gateways_known" []
        "Workloads that make their Envoy or their node a gateway, connected or not.";
    ENVOY_RESOURCES_SENT = Counter "heddle_control_envoy_resources_sent_total" []
        "Resources that were sent to Envoys of workloads, and names of resources that are gone."
        more "envoy.md#what-it-is-told";
    ENVOY_RESOURCE_BYTES_SENT = Counter "heddle_control_envoy_resource_bytes_sent_total" []
        "Bytes of the messages with resources that were sent to Envoys, before encryption.";
    ENVOY_RESOURCES_REFUSED = Counter "heddle_control_envoy_resources_refused_total" []
        "Responses of which an Envoy refused a resource; the log has the reason. What the Envoy had stays in force."
        more "envoy.md#when-something-is-wrong";
    ACCESSES_REPORTED = Counter "heddle_control_accesses_reported_total" []
        "Accesses that gateways reported: each caller and address once in a message."
        more "envoy.md#lazy-envoys";
    DEPENDENCIES_LEARNED = Counter "heddle_control_dependencies_learned_total" []
        "Dependencies of lazy workloads that were learned from these reports.";
    DEPENDENCIES_DIRECT = Counter "heddle_control_dependencies_direct_total" []
        "Learned dependencies that an Envoy has come to use without a gateway, once for each Envoy.";
    LEARNING_SECONDS = Counter "heddle_control_dependency_learning_seconds_total" []
        "Time from the report of a use until the Envoy has accepted the routes to it, in seconds; divide by heddle_control_dependencies_direct_total.";
    DEPENDENCIES_FORGOTTEN = Counter "heddle_control_dependencies_forgotten_total" []
        "Dependencies of lazy workloads that were forgotten, since they were not used."
        more "envoy.md#lazy-envoys";
    LAZY_SENT = Counter "heddle_control_lazy_requests_total" [by]
        "Requests, and connections that carry bytes, of lazy Envoys as these report them: sent directly (direct), or by a gateway (gateway).";
    CONNECTIONS = Counter "heddle_control_connections_total" []
        "Connections that were served.";
    CONNECTIONS_WAITED = Counter "heddle_control_connections_waited_total" []
        "Connections that waited for another one to end, because the limit was reached: raise the limit of open files."
        more "identity.md#what-is-bounded";
    HANDSHAKES_FAILED = Counter "heddle_control_handshakes_failed_total" []
        "Handshakes that failed: refused, broken off, or too slow.";
    HANDSHAKES_REFUSED = Counter "heddle_control_handshakes_refused_total" [reason]
        "Of the handshakes that failed, those that were refused, by reason: expired, unknown_authority, denied and so on.";
    UNIDENTIFIED_REFUSED = Counter "heddle_control_unidentified_refused_total" []
        "Connections without a certificate that were closed to make room for newer ones.";
    JOINS = Counter "heddle_control_joins_total" []
        "Nodes that joined.";
    JOINS_REFUSED = Counter "heddle_control_joins_refused_total" []
        "Attempts to join that were refused; the log has the reason.";
    JOINS_LIMITED = Counter "heddle_control_joins_limited_total" []
        "Attempts to join that were rejected unread, because too many had failed.";
    LEAVES_ISSUED = Counter "heddle_control_leaves_issued_total" []
        "Certificates that were issued to nodes after they joined.";
    LEAVES_REFUSED = Counter "heddle_control_leaves_refused_total" []
        "Requests for certificates, after joining, that were refused; the log has the reason.";
    JOIN_TOKENS = Gauge "heddle_control_join_tokens" []
        "Join tokens that can still be used.";
    DENIED = Gauge "heddle_control_denied" []
        "Entries of the deny-list.";
    BUNDLE_GENERATION = Gauge "heddle_control_bundle_generation" []
        "Version of the roots that nodes are told to trust.";
    ROTATION_STAGE = Gauge "heddle_control_rotation_stage" [stage]
        "Stage of a rotation of roots: 1 at steady, begun or switched."
        more "identity.md#replacing-the-root";
    ISSUER_EXPIRY = Gauge "heddle_control_issuer_expiry_timestamp_seconds" []
        "When the signing certificate expires, in seconds since 1970: alert a month before.";
    CERTIFICATE_EXPIRY = Gauge "heddle_control_certificate_expiry_timestamp_seconds" []
        "When the control plane's own certificate expires, in seconds since 1970. It is renewed at half its life.";
}
