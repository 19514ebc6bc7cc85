//! The model of a mesh: names, identities, services, workloads, routes, policies. No I/O and no runtime.
//!
//! These types connect the two halves of Heddle: `heddle-compile` compiles manifests into a [`Mesh`]; `heddle-proxy`
//! serves it. Every value in it has been checked: a name is a DNS name, a header name is a token, a path is canonical,
//! a reference is resolved or says why not. The proxy therefore neither validates nor refuses configuration.
//!
//! A [`Mesh`] is a snapshot: it is built as a whole, shared behind an `Arc`, and never changed.
//!
//! The crate also has the code shared by all crates: the [`report`] of compiling manifests, [`calendar`] dates, and
//! waits between retries ([`Backoff`], [`Random`]).

mod backoff;
mod balancing;
pub mod calendar;
mod cidr;
mod class;
mod control_group;
mod dependency;
mod differences;
mod duration;
mod forwarding;
mod identity;
mod invariants;
mod mesh;
pub mod mountinfo;
mod name;
mod packet_mark;
mod pages;
mod policy;
mod printable;
mod random;
mod registry;
pub mod report;
mod route;
mod service;
mod shared;
mod stock_name;
mod text_form;
mod workload;

pub use backoff::Backoff;
pub use balancing::{
    Balancing, Ejection, Failing, HashOn, Line, MAX_ROOM, MAX_SLOW_START_MS, RetryBudget,
};
pub use cidr::{Cidr, MAX_ADDRESS_RANGES};
pub use class::{CLASS_LABEL, Class, LATENCY_ANNOTATION, Qos, QosFault, QosLabels};
pub use control_group::ControlGroup;
pub use dependency::{Dependency, DependencyState};
pub use differences::{Difference, differences};
pub use duration::duration_ms;
pub use forwarding::{
    CALLER_FIELD, Forwarding, MAX_GATEWAY_ACCOUNTS, MAX_LAZY_ACCOUNTS, ORIGINAL_DST_FIELD,
    PROXY_FIELDS,
};
pub use identity::{
    MAX_SPIFFE_ID_BYTES, NODE_NAME_OID, NODE_UNIT, NodeName, SpiffeId, Subject, TrustDomain,
};
pub use invariants::is_one_place;
pub use mesh::{Mesh, Node};
pub use name::{
    InvalidName, Name, Namespace, ServiceAccountName, ServiceName, WorkloadName, is_dns_label,
    is_dns_subdomain,
};
pub use packet_mark::PacketMark;
pub use pages::Pages;
pub use policy::{
    Access, Connect, Decider, Decision, Guard, HttpAccess, HttpMatch, MAX_POLICY_CONDITIONS,
    MAX_POLICY_RULES, MAX_POLICY_SOURCES, MAX_WORKLOAD_POLICIES, MAX_WORKLOAD_PROBES, Mode,
    NoHeader, Policy, PolicyAction, PolicyKind, PolicyName, PolicyRule, Probe, SourceNamespace,
    Sources, Unmet, Verdict,
};
pub use printable::{printable, shortened};
pub use random::Random;
pub use registry::{RegistryEndpointsError, check_registry_endpoints, registry_prefix};
pub use route::{
    Backend, BackendTarget, Filters, HeaderEdits, Outcome, PathMatch, PathRewrite, Redirect,
    Rewrite, RouteAction, RouteMatch, RouteRule,
};
pub use service::{AppProtocol, Balancer, Endpoint, Service, ServicePort};
pub use shared::Shared;
pub use stock_name::{StockDestination, StockName};
pub use workload::{Command, Proxy, Workload, WorkloadPort};

/// The API group of Heddle's own kinds, labels and annotations.
pub const GROUP: &str = "heddle.dev";
