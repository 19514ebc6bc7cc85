//! Decides which kinds are read, and how the others are reported.

use super::suggest;

/// A kind that Heddle reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Service,
    ServiceAccount,
    Namespace,
    LocalWorkload,
    EndpointSlice,
    HttpRoute,
    ReferenceGrant,
    AuthorizationPolicy,
    TrafficTarget,
    HttpRouteGroup,
    TcpRoute,
}

/// Kind, its API's spelling, its group, and the versions that are read (the newest first).
const KINDS: [(Kind, &str, &str, &[&str]); 11] = [
    (Kind::Service, "Service", "", &["v1"]),
    (Kind::ServiceAccount, "ServiceAccount", "", &["v1"]),
    (Kind::Namespace, "Namespace", "", &["v1"]),
    (
        Kind::LocalWorkload,
        "LocalWorkload",
        heddle_model::GROUP,
        &["v1alpha1"],
    ),
    (
        Kind::EndpointSlice,
        "EndpointSlice",
        "discovery.k8s.io",
        &["v1"],
    ),
    (
        Kind::HttpRoute,
        "HTTPRoute",
        GATEWAY_GROUP,
        &["v1", "v1beta1"],
    ),
    (
        Kind::ReferenceGrant,
        "ReferenceGrant",
        GATEWAY_GROUP,
        &["v1", "v1beta1"],
    ),
    (
        Kind::AuthorizationPolicy,
        "AuthorizationPolicy",
        heddle_model::GROUP,
        &["v1alpha1"],
    ),
    (
        Kind::TrafficTarget,
        "TrafficTarget",
        "access.smi-spec.io",
        &["v1alpha3"],
    ),
    (
        Kind::HttpRouteGroup,
        "HTTPRouteGroup",
        "specs.smi-spec.io",
        &["v1alpha4"],
    ),
    (
        Kind::TcpRoute,
        "TCPRoute",
        "specs.smi-spec.io",
        &["v1alpha4"],
    ),
];

/// The API group of routes.
pub(crate) const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

impl Kind {
    /// As the API spells it.
    pub(crate) fn as_str(self) -> &'static str {
        KINDS
            .iter()
            .find(|(kind, ..)| *kind == self)
            .map_or("", |(_, name, ..)| name)
    }

    /// Whether it says who may call what.
    pub(crate) fn is_policy(self) -> bool {
        matches!(self, Kind::AuthorizationPolicy | Kind::TrafficTarget)
    }

    pub(crate) fn is_namespaced(self) -> bool {
        self != Kind::Namespace
    }
}

/// The treatment of an object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Read(Kind),
    /// Not relevant for Heddle; counted under this name.
    Skip(String),
    /// A policy of another mesh: skipped too, with a warning, since its author may believe it to be in force.
    Unenforced {
        name: String,
        group: String,
        remedy: String,
    },
    /// A misspelt or misplaced kind; `meant` is the intended one.
    Refuse {
        meant: Kind,
        field: &'static str,
        reason: String,
        remedy: String,
    },
}

/// Decides about an object by its `apiVersion` and `kind`.
///
/// A kind of another project is skipped. A probable mistake is refused: a misspelt HTTPRoute that was skipped would
/// silently leave its traffic unrouted. A policy of another mesh is skipped with a warning.
pub(crate) fn judge(api_version: &str, kind: &str) -> Verdict {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    if let Some((known, name, _, versions)) = KINDS
        .iter()
        .find(|(_, name, known_group, _)| *name == kind && *known_group == group)
    {
        if versions.contains(&version) {
            return Verdict::Read(*known);
        }
        return Verdict::Refuse {
            meant: *known,
            field: "apiVersion",
            reason: format!("{name} is not read in version {version:?}"),
            remedy: format!("write {}", versions_of(group, versions)),
        };
    }
    if let Some((meant, name, right_group, versions)) = KINDS
        .iter()
        .find(|(known, name, right, _)| *name == kind && is_misplaced(*known, group, right))
    {
        return Verdict::Refuse {
            meant: *meant,
            field: "apiVersion",
            reason: format!("there is no {name} in {api_version:?}"),
            remedy: format!("write {}", versions_of(right_group, versions)),
        };
    }
    let ours = is_heddles(group);
    let meant_group = if ours { heddle_model::GROUP } else { group };
    let slip = KINDS
        .iter()
        .filter(|(_, _, known_group, _)| *known_group == meant_group)
        .filter(|(_, name, ..)| ours || suggest::distance(kind, name) <= 1)
        .min_by_key(|(_, name, ..)| suggest::distance(kind, name));
    match slip {
        Some((meant, name, _, versions)) if group != meant_group => Verdict::Refuse {
            meant: *meant,
            field: "apiVersion",
            reason: format!("there is no API group {group:?}"),
            remedy: format!(
                "did you mean {name}, {}?",
                versions_of(meant_group, versions)
            ),
        },
        Some((meant, name, ..)) => Verdict::Refuse {
            meant: *meant,
            field: "kind",
            reason: format!("there is no kind {kind:?} in {api_version:?}"),
            remedy: format!("did you mean {name}?"),
        },
        None if is_policy_of_another(group, kind) => Verdict::Unenforced {
            name: format!("{kind}.{group}"),
            group: group.to_owned(),
            remedy: in_place_of(kind),
        },
        None if KINDS.iter().any(|(_, name, ..)| *name == kind) => {
            Verdict::Skip(format!("{kind}.{group}"))
        }
        None => Verdict::Skip(kind.to_owned()),
    }
}

/// Authorization policies of other meshes: Istio, Linkerd, Consul and Kuma.
const POLICIES_OF_OTHERS: [&str; 7] = [
    "AuthorizationPolicy",
    "PeerAuthentication",
    "RequestAuthentication",
    "ServerAuthorization",
    "ServiceIntentions",
    "MeshTrafficPermission",
    "TrafficPermission",
];

/// Whether this is a policy of another mesh. A `Server` is one only in Linkerd's group; elsewhere the name has other
/// meanings.
fn is_policy_of_another(group: &str, kind: &str) -> bool {
    POLICIES_OF_OTHERS.contains(&kind) || (group, kind) == ("policy.linkerd.io", "Server")
}

/// What to use instead of a policy of another mesh.
fn in_place_of(kind: &str) -> String {
    match kind {
        "PeerAuthentication" => {
            "to refuse callers without an identity, label workloads heddle.dev/mode: strict"
                .to_owned()
        }
        "RequestAuthentication" => "no token is checked here: let the endpoint do it".to_owned(),
        _ => format!(
            "write it as AuthorizationPolicy of {}/v1alpha1",
            heddle_model::GROUP
        ),
    }
}

/// Whether a group is Heddle's, or a subdomain of it, which does not exist.
fn is_heddles(group: &str) -> bool {
    let group = group.to_ascii_lowercase();
    let before = group.strip_suffix(heddle_model::GROUP);
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// Whether a kind of that name in a wrong group must be a mistake for the group `right`.
///
/// Other projects have Services of their own (Knative). Kubernetes' own groups do not, and routes, grants and workloads
/// are refused in every other group: their author would believe them to be in force. AuthorizationPolicies of other
/// meshes are skipped with a warning, and a TCPRoute may be the Gateway API's.
fn is_misplaced(kind: Kind, group: &str, right: &str) -> bool {
    let is_kubernetes =
        !group.contains('.') || group.ends_with(".k8s.io") || group.ends_with(".x-k8s.io");
    let is_meant = matches!(
        kind,
        Kind::HttpRoute
            | Kind::ReferenceGrant
            | Kind::LocalWorkload
            | Kind::TrafficTarget
            | Kind::HttpRouteGroup
    );
    if kind == Kind::TcpRoute && group == GATEWAY_GROUP {
        return false;
    }
    is_kubernetes || is_meant || is_heddles(group) || suggest::distance(group, right) <= 2
}

fn versions_of(group: &str, versions: &[&str]) -> String {
    let full: Vec<String> = versions
        .iter()
        .map(|v| {
            if group.is_empty() {
                (*v).to_owned()
            } else {
                format!("{group}/{v}")
            }
        })
        .collect();
    format!("apiVersion: {}", full.join(" or "))
}
