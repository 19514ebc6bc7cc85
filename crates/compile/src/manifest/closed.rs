//! What stands for an object that cannot be used as it is written, so that nothing opens without it.
//!
//! A policy becomes one that denies every call to what it selects, or to its namespace where its selector cannot be read.
//! A route becomes one whose requests are answered 500. A Namespace, which may have had the mode strict, has it. A
//! ServiceAccount only names workloads, and still does. A workload is left out, and nothing else takes its addresses.
//! Other objects are left out: without them there is less to call.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use heddle_model::report::Origin;
use heddle_model::{Mode, Name, Namespace, PolicyKind};

use super::decode::decode_field;
use super::gateway::{HttpRouteMatch, ParentReference};
use super::kind::Kind;
use super::node::{FieldPath, Node, Plain, Value};
use super::policy::{LabelSelector, PolicyTarget};
use super::smi::Subject;
use super::{Body, MODE_LABEL, Object, Written, core};
use crate::findings::Key;

/// A policy that denies every call.
#[derive(Debug)]
pub(crate) struct ClosedPolicy {
    pub(crate) kind: PolicyKind,
    /// It concerns what any of these selects.
    pub(crate) selects: Vec<Selects>,
}

/// The workloads of a policy's namespace that it concerns.
#[derive(Debug)]
pub(crate) enum Selects {
    /// All of them.
    Namespace,
    /// Those with these labels.
    Labels(LabelSelector),
    /// Those that run as this ServiceAccount.
    Account(Name),
}

/// A route whose requests are answered 500.
#[derive(Debug)]
pub(crate) struct ClosedRoute {
    pub(crate) parents: Vec<ClosedParent>,
    /// The matches that can be read. Whatever they are, all other requests are answered 500, too.
    pub(crate) matches: Vec<HttpRouteMatch>,
}

/// A Service that a closed route is attached to.
#[derive(Debug)]
pub(crate) struct ClosedParent {
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    /// The reference, if all of it can be read.
    pub(crate) reference: Option<ParentReference>,
}

/// A workload that is left out.
#[derive(Debug)]
pub(crate) struct ClosedWorkload {
    /// Its addresses, except loopback ones, which other workloads may have, too.
    pub(crate) addresses: Vec<IpAddr>,
    /// Its ports at loopback addresses.
    pub(crate) sockets: Vec<SocketAddr>,
}

/// What stands for an object, of which these versions are known, in all of them; or `None` if it is left out. `named`
/// gives a name to an object whose own cannot be read.
pub(crate) fn stand_in(
    versions: &[&Written],
    named: &mut dyn FnMut(&Key) -> Option<String>,
) -> Option<Object> {
    let written = *versions.last()?;
    let key = &written.key;
    // There is no workload in a namespace that cannot be.
    let namespace = Namespace::parse(&key.namespace).ok()?;
    let trees = versions.iter().map(|version| version.tree());
    let mut labels = BTreeMap::new();
    let policy = |kind, selects| Body::ClosedPolicy(ClosedPolicy { kind, selects });
    let body = match key.kind {
        Kind::AuthorizationPolicy if trees.clone().all(is_dry_run) => return None,
        Kind::AuthorizationPolicy => policy(
            PolicyKind::AuthorizationPolicy,
            trees.map(targets).collect(),
        ),
        Kind::TrafficTarget => {
            let selects = trees.map(|tree| destination(tree, &namespace));
            policy(PolicyKind::TrafficTarget, selects.collect())
        }
        Kind::HttpRoute => Body::ClosedRoute(ClosedRoute {
            parents: trees.clone().flat_map(parents).collect(),
            matches: trees.flat_map(matches).collect(),
        }),
        Kind::Namespace => {
            let strict = Mode::Strict.as_str().to_owned();
            labels.insert(MODE_LABEL.to_owned(), strict);
            Body::Namespace
        }
        Kind::ServiceAccount => Body::ServiceAccount,
        Kind::LocalWorkload => Body::ClosedWorkload(workload(trees)),
        Kind::Service
        | Kind::EndpointSlice
        | Kind::ReferenceGrant
        | Kind::HttpRouteGroup
        | Kind::TcpRoute => return None,
    };
    let own = key.name.as_deref().and_then(|name| Name::parse(name).ok());
    let name = match (own, key.kind) {
        (Some(name), _) => name,
        // Nothing is named by an object without a name.
        (None, Kind::Namespace | Kind::ServiceAccount) => return None,
        (None, _) => Name::parse(&named(key)?).ok()?,
    };
    Some(Object {
        written: written.clone(),
        kind: key.kind,
        namespace,
        name,
        metadata: core::Metadata {
            labels,
            ..core::Metadata::default()
        },
        body,
    })
}

/// Denies every call to a namespace, for a policy that may be in a file that cannot be read.
pub(crate) fn close(namespace: Namespace, name: String, file: &Origin) -> Option<Object> {
    let text = Node {
        line: 1,
        value: Value::Null,
    };
    let parsed = Name::parse(&name).ok()?;
    let mut written = Written::new(file, Kind::AuthorizationPolicy, text);
    written.key.namespace = namespace.to_string();
    written.key.name = Some(name);
    Some(Object {
        written,
        kind: Kind::AuthorizationPolicy,
        namespace,
        name: parsed,
        metadata: core::Metadata::default(),
        body: Body::ClosedPolicy(ClosedPolicy {
            kind: PolicyKind::AuthorizationPolicy,
            selects: vec![Selects::Namespace],
        }),
    })
}

/// A policy that is not enforced closes nothing either.
fn is_dry_run(tree: &Node) -> bool {
    let at = FieldPath::of("spec.dryRun");
    let value = tree.at(&at).map(|node| &node.value);
    matches!(value, Some(Value::Plain(Plain::Bool(true), _)))
}

fn targets(tree: &Node) -> Selects {
    let at = FieldPath::of("spec.targetRefs");
    let targets: Option<Vec<PolicyTarget>> = decode_field(tree, &at);
    let only = targets.and_then(|targets| <[PolicyTarget; 1]>::try_from(targets).ok());
    let selector = only.and_then(|[target]| target.selector);
    // One that is not evaluated as it is written might leave out a workload.
    let selector = selector.filter(LabelSelector::is_understood);
    selector.map_or(Selects::Namespace, Selects::Labels)
}

fn destination(tree: &Node, own: &Namespace) -> Selects {
    let at = FieldPath::of("spec.destination");
    let subject: Option<Subject> = decode_field(tree, &at);
    let account = subject.filter(|subject| {
        let namespace = subject.namespace.as_deref();
        let namespace = namespace.filter(|namespace| !namespace.is_empty());
        subject.kind == "ServiceAccount" && namespace.is_none_or(|other| other == own.as_str())
    });
    let name = account.and_then(|subject| Name::parse(&subject.name).ok());
    name.map_or(Selects::Namespace, Selects::Account)
}

/// The Services that a route is attached to, as far as they can be read.
fn parents(tree: &Node) -> Vec<ClosedParent> {
    let at = FieldPath::of("spec.parentRefs");
    let parent = |(position, node): (usize, &Node)| {
        let text = |field: &str| node.get(field).and_then(Node::text);
        // A reference without a kind is to a Gateway, unless it says otherwise.
        let is_gateway = match text("kind") {
            Some(kind) => kind == "Gateway",
            None => text("group") != Some(""),
        };
        let name = text("name").filter(|_| !is_gateway)?;
        Some(ClosedParent {
            namespace: text("namespace").map(str::to_owned),
            name: name.to_owned(),
            reference: decode_field(tree, &at.index(position)),
        })
    };
    let all = items(tree, &at).iter().enumerate();
    all.filter_map(parent).collect()
}

/// The matches of a route that can be read.
fn matches(tree: &Node) -> Vec<HttpRouteMatch> {
    let at = FieldPath::of("spec.rules");
    let rules = 0..items(tree, &at).len();
    let of_rule = |rule: usize| {
        let at = at.index(rule).field("matches");
        let matches = 0..items(tree, &at).len();
        matches.filter_map(move |position| decode_field(tree, &at.index(position)))
    };
    rules.flat_map(of_rule).collect()
}

fn workload<'t>(trees: impl Iterator<Item = &'t Node>) -> ClosedWorkload {
    let mut closed = ClosedWorkload {
        addresses: Vec::new(),
        sockets: Vec::new(),
    };
    for tree in trees {
        let first = tree.at(&FieldPath::of("spec.address"));
        let all = first
            .into_iter()
            .chain(items(tree, &FieldPath::of("spec.addresses")));
        let all = all.filter_map(|node| node.text()?.parse::<IpAddr>().ok());
        for address in all.map(|address| address.to_canonical()) {
            if !address.is_loopback() {
                closed.addresses.push(address);
                continue;
            }
            let ports = items(tree, &FieldPath::of("spec.ports")).iter();
            let ports = ports.filter_map(|port| match &port.get("port")?.value {
                Value::Plain(Plain::Integer(port), _) => u16::try_from(*port).ok(),
                _ => None,
            });
            closed
                .sockets
                .extend(ports.map(|port| SocketAddr::new(address, port)));
        }
    }
    closed
}

/// The items of the list at `path`; none if there is no list.
fn items<'t>(tree: &'t Node, path: &FieldPath) -> &'t [Node] {
    match tree.at(path).map(|node| &node.value) {
        Some(Value::Sequence(items)) => items,
        _ => &[],
    }
}
