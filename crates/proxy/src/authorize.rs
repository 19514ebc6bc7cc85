//! Decides which callers may call an endpoint, by the policies of the workload behind it.
//!
//! [`Guard`] of the model makes the decision; this module determines when it is asked, and about what:
//!
//! | asked | when | about |
//! |---|---|---|
//! | [`Guards::may_connect`] | before an opaque connection is made | caller and port |
//! | [`Guards::allow_bytes`] | once a connection is known not to carry HTTP | caller and port |
//! | [`Guards::allow_request`] | before a request is sent | the head as it will be sent |
//! | [`Guards::may_connect`] | after a change of the policies | every flow under way |
//!
//! Without any policy, no check is made. [`claims`] has the callers in whose name gateways forward.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use foldhash::fast::RandomState;
use heddle_model::{
    Access, Connect, Decider, Decision, Endpoint, Guard, HttpAccess, Mesh, ServiceAccountName,
    Shared, SpiffeId, Workload, WorkloadName,
};
use heddle_telemetry::Counter;
use heddle_wire::http1::{Framing, Limits, RequestHead, path};

use crate::door::Door;
use crate::entry::{Entry, Forwarded};
use crate::failure::{Failure, Reason};

pub(crate) mod claims;

use claims::{Asserted, Claims, LazyCaller};

/// Status with which the parser refuses a head that has too many bytes or fields (RFC 6585 section 5).
const TOO_LARGE: u16 = 431;

/// A flow under way, whose permission is checked again when policies change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) endpoint: SocketAddr,
    pub(crate) carried: Carried,
}

/// What a flow carries, and so which rules are about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Carried {
    /// Nothing yet: the client has not said enough.
    Undecided,
    /// Opaque bytes, to which rules about requests do not apply.
    Bytes,
    /// A request, or what follows one that was upgraded; with the caller that it names.
    Request(Asserted),
}

impl Carried {
    /// The caller that a request names, and that is believed.
    pub(crate) fn lazy(&self) -> Option<&LazyCaller> {
        match self {
            Carried::Request(asserted) => asserted.lazy(),
            Carried::Undecided | Carried::Bytes => None,
        }
    }
}

/// The guards of all endpoints of one snapshot, and the identities of local callers.
#[derive(Debug, Default)]
pub(crate) struct Guards {
    /// Endpoints that are not open to every caller. If several workloads share an address, all of their guards must
    /// allow.
    by_endpoint: HashMap<SocketAddr, Vec<Arc<Guard>>, RandomState>,
    /// The same of endpoints for which other proxies decide. A gateway decides too, since these do not know who sends bytes.
    forwarded: HashMap<SocketAddr, Vec<Arc<Guard>>, RandomState>,
    workloads: Arc<GuardedWorkloads>,
}

/// What is known of the workloads of this node. Snapshots share it until workloads or policies change.
#[derive(Debug, Default)]
pub(crate) struct GuardedWorkloads {
    /// The guards by workload, used for ports of a workload that belong to no Service.
    guards: HashMap<WorkloadName, Arc<Guard>, RandomState>,
    /// Those of workloads for which other proxies decide; of a gateway only.
    elsewhere: HashMap<WorkloadName, Arc<Guard>, RandomState>,
    /// The workloads that call from this node.
    identities: HashMap<WorkloadName, Identified, RandomState>,
    claims: Claims,
}

/// The identity of a workload that calls from this node, and its text form.
#[derive(Debug)]
struct Identified {
    id: SpiffeId,
    text: Arc<str>,
}

/// What the policies allow on a connection to an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MayConnect {
    /// Some request or bytes may be allowed.
    Yes,
    /// Only a health check that opens and closes a connection is allowed: no byte may be passed on.
    Bare,
    /// Nothing is allowed.
    No,
}

/// The parsed request, as it will be sent. Reused, so that a check allocates no memory.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    head: RequestHead,
    path: Vec<u8>,
}

impl GuardedWorkloads {
    pub(crate) fn new(mesh: &Mesh) -> Self {
        // A workload's own Envoy decides for it.
        let (with_envoy, served): (Vec<_>, Vec<_>) =
            (mesh.workloads.iter()).partition(|workload| workload.proxy.is_envoy());
        let is_gateway = mesh.workloads.iter().any(|own| mesh.forwarding.is_at(own));
        let others = with_envoy.into_iter().chain(mesh.judged.iter());
        let others = others.filter(|_| is_gateway);
        let mut elsewhere = guards(mesh, others);
        let unreadable = mesh.unreadable.iter().filter(|_| is_gateway);
        elsewhere.extend(unreadable.map(|name| (name.clone(), Arc::new(Guard::of_unknown()))));
        let identities = mesh.workloads.iter().map(|workload| {
            let account = workload.service_account.clone();
            let id = SpiffeId::workload(mesh.trust_domain.clone(), account);
            let text = id.to_string().into();
            (workload.name.clone(), Identified { id, text })
        });
        GuardedWorkloads {
            identities: identities.collect(),
            claims: Claims::new(mesh),
            guards: guards(mesh, served.into_iter()),
            elsewhere,
        }
    }
}

/// The guards of workloads that are not open to every caller.
fn guards<'m>(
    mesh: &Mesh,
    workloads: impl Iterator<Item = &'m Shared<Workload>>,
) -> HashMap<WorkloadName, Arc<Guard>, RandomState> {
    let guards = workloads.map(|workload| (workload.name.clone(), Guard::new(mesh, workload)));
    let guards = guards.filter(|(_, guard)| !guard.is_open());
    guards
        .map(|(name, guard)| (name, Arc::new(guard)))
        .collect()
}

/// The guards of endpoints, by those of the workloads behind them. If several share an address, all of them decide.
fn by_endpoint<'m>(
    guards: &HashMap<WorkloadName, Arc<Guard>, RandomState>,
    endpoints: impl Iterator<Item = &'m Endpoint>,
) -> HashMap<SocketAddr, Vec<Arc<Guard>>, RandomState> {
    let mut by_endpoint: HashMap<SocketAddr, Vec<Arc<Guard>>, RandomState> = HashMap::default();
    for endpoint in endpoints.filter(|_| !guards.is_empty()) {
        let workload = endpoint.workload.as_ref();
        let workload = workload.or(endpoint.remote_workload.as_ref());
        let Some(guard) = workload.and_then(|name| guards.get(name)) else {
            continue;
        };
        let known = by_endpoint.entry(endpoint.address).or_default();
        if !known.iter().any(|one| Arc::ptr_eq(one, guard)) {
            known.push(Arc::clone(guard));
        }
    }
    by_endpoint
}

impl Guards {
    /// `own` are the endpoints of all Services that are workloads of this node, `all` those of all Services.
    pub(crate) fn new<'m>(
        workloads: Arc<GuardedWorkloads>,
        own: impl Iterator<Item = &'m Endpoint>,
        all: impl Iterator<Item = &'m Endpoint>,
    ) -> Self {
        Guards {
            by_endpoint: by_endpoint(&workloads.guards, own),
            forwarded: match workloads.elsewhere.is_empty() {
                true => HashMap::default(),
                false => by_endpoint(&workloads.elsewhere, all),
            },
            workloads,
        }
    }

    /// Which callers may name another one.
    pub(crate) fn claims(&self) -> &Claims {
        &self.workloads.claims
    }

    pub(crate) fn workloads(&self) -> &Arc<GuardedWorkloads> {
        &self.workloads
    }

    /// Whether every workload is open to every caller.
    pub(crate) fn is_empty(&self) -> bool {
        self.workloads.guards.is_empty() && self.workloads.elsewhere.is_empty()
    }

    /// Whether a policy rule of any Service's endpoint examines paths.
    pub(crate) fn any_looks_at_paths(&self) -> bool {
        let mut guards = self.by_endpoint.values().flatten();
        guards.any(|guard| guard.looks_at_paths())
    }

    /// Whether a policy rule of a Service's endpoint examines paths.
    pub(crate) fn look_at_paths_before(&self, endpoint: SocketAddr) -> bool {
        let guards = self
            .by_endpoint
            .get(&endpoint)
            .map_or(&[][..], Vec::as_slice);
        guards.iter().any(|guard| guard.looks_at_paths())
    }

    /// Whether a policy rule of the endpoint that a door leads to examines paths.
    pub(crate) fn look_at_paths(&self, door: &Door) -> bool {
        let endpoint = match &door.entry {
            Entry::Inbound(inbound) => inbound.endpoint,
            Entry::Direct(direct) => direct.endpoint,
            _ => return false,
        };
        let mut guards = self.of(door, endpoint);
        guards.any(|guard| guard.looks_at_paths())
    }

    /// Whether a policy rule of an endpoint examines a header of this name, compared without regard to case.
    pub(crate) fn look_at_header(&self, door: &Door, endpoint: SocketAddr, name: &[u8]) -> bool {
        self.of(door, endpoint)
            .any(|guard| guard.looks_at_header(name))
    }

    /// Whether a flow under way may continue.
    pub(crate) fn allow_live(&self, door: &Door, flow: &Live) -> bool {
        let endpoint = flow.endpoint;
        if !self.still_forward(door) {
            return false;
        }
        match &flow.carried {
            // The dry run's result was counted when the flow began.
            Carried::Bytes => self.allow_bytes(door, endpoint, &Counter::default()),
            Carried::Undecided => self.may_connect(door, endpoint) == MayConnect::Yes,
            Carried::Request(asserted) => self.of(door, endpoint).all(|guard| {
                let caller = self.named(door, asserted);
                let may = caller.map(|caller| guard.may_connect(caller, endpoint.port()));
                may == Some(Connect::Open)
            }),
        }
    }

    /// The caller of a request that came in through a door; `None` if it names one that is not believed by now.
    fn named<'a>(&'a self, door: &'a Door, asserted: &'a Asserted) -> Option<Option<&'a SpiffeId>> {
        let caller = self.identity(door);
        match asserted {
            Asserted::Unsaid => Some(caller),
            Asserted::Lazy(named) => {
                let is_believed = self.claims().believe(caller, &named.id);
                is_believed.then_some(Some(&named.id))
            }
            Asserted::False => None,
        }
    }

    /// The guards of an endpoint for callers that come in through this door.
    fn of(
        &self,
        door: &Door,
        endpoint: SocketAddr,
    ) -> impl Iterator<Item = &Arc<Guard>> + Clone + use<'_> {
        let known = self
            .by_endpoint
            .get(&endpoint)
            .map_or(&[][..], Vec::as_slice);
        // A workload that is called by its own address is guarded by its own policies, whatever Services say of that
        // address.
        let own = match &door.entry {
            Entry::Direct(direct) => direct.workload(),
            _ => None,
        };
        let own = own.and_then(|name| self.workloads.guards.get(name));
        let own = own.filter(|own| !known.iter().any(|one| Arc::ptr_eq(one, own)));
        // A pod with a gateway's account is judged here as itself: others take its bytes for those of lazy callers.
        let forwarded = self.forwarded.get(&endpoint);
        let forwarded = forwarded.filter(|_| door.forwarded().is_some() || self.is_gateways(door));
        known
            .iter()
            .chain(own)
            .chain(forwarded.into_iter().flatten())
    }

    /// The caller that comes in through a door: the identity that another node has proven, or that of the workload
    /// whose listener it is.
    fn identity<'a>(&'a self, door: &'a Door) -> Option<&'a SpiffeId> {
        match &door.entry {
            Entry::Inbound(inbound) => inbound.caller.as_ref(),
            Entry::Forwarded(forwarded) => Some(&forwarded.caller),
            entry => Some(&self.workloads.identities.get(entry.caller()?)?.id),
        }
    }

    /// The identity of the caller that comes in through a door, as metrics and logs show it.
    pub(crate) fn principal<'a>(&'a self, door: &'a Door) -> Option<&'a Arc<str>> {
        match &door.proven {
            Some(proven) => Some(proven),
            None => Some(&self.workloads.identities.get(door.entry.caller()?)?.text),
        }
    }

    /// The service account whose identity is used towards other nodes: the caller's, or that of this node as its gateway.
    pub(crate) fn account<'a>(&'a self, door: &'a Door) -> Option<&'a ServiceAccountName> {
        match door.forwarded() {
            Some(forwarded) => Some(&forwarded.account),
            None => self.identity(door)?.service_account(),
        }
    }

    /// Whether a workload of this node calls that has the account of a gateway.
    fn is_gateways(&self, door: &Door) -> bool {
        let account = door.entry.caller().and_then(|_| self.account(door));
        account.is_some_and(|account| self.claims().is_here(account))
    }

    /// Whether this node still is the gateway that a caller has connected to.
    pub(crate) fn still_forward(&self, door: &Door) -> bool {
        door.forwarded().is_none_or(|forwarded| {
            let Forwarded {
                account, caller, ..
            } = forwarded;
            self.claims().gateway(account, caller).is_some()
        })
    }

    /// What the policies allow on a connection to an endpoint, before anything is sent on it.
    pub(crate) fn may_connect(&self, door: &Door, endpoint: SocketAddr) -> MayConnect {
        if !self.still_forward(door) {
            return MayConnect::No;
        }
        let caller = self.identity(door);
        let mut may = MayConnect::Yes;
        for guard in self.of(door, endpoint) {
            match guard.may_connect(caller, endpoint.port()) {
                Connect::Open => {}
                Connect::Bare => may = MayConnect::Bare,
                Connect::Refused(by) => {
                    let may = |id: &SpiffeId| {
                        let may = guard.may_connect(Some(id), endpoint.port());
                        may == Connect::Open
                    };
                    if self.is_forwarded(door, by, may) {
                        continue;
                    }
                    tracing::debug!(?caller, %endpoint, %by, "refused");
                    return MayConnect::No;
                }
            }
        }
        may
    }

    /// Whether opaque bytes may be passed on to an endpoint.
    pub(crate) fn allow_bytes(
        &self,
        door: &Door,
        endpoint: SocketAddr,
        dry_runs: &Counter,
    ) -> bool {
        let caller = self.identity(door);
        let access = Access::flow(caller, endpoint.port());
        let mut guards = self.of(door, endpoint);
        let is_served = self.still_forward(door);
        is_served
            && guards.all(|guard| {
                let decision = guard.decide(&access);
                let may = |id: &SpiffeId| {
                    let access = Access::flow(Some(id), endpoint.port());
                    guard.decide(&access).allowed
                };
                (!decision.allowed && self.is_forwarded(door, decision.by, may))
                    || allows(&decision, caller, endpoint, dry_runs)
            })
    }

    /// Whether a caller on another node that was refused is a gateway that forwards in the name of another one, which may do what the gateway
    /// itself may not. What a rule refuses to the gateway itself, stays refused.
    fn is_forwarded(
        &self,
        door: &Door,
        refused_by: Decider<'_>,
        may: impl Fn(&SpiffeId) -> bool,
    ) -> bool {
        let caller = door.inbound().and_then(|inbound| inbound.caller.as_ref());
        refused_by == Decider::NoRuleMatched
            && self
                .claims()
                .forwarded_by(caller)
                .is_some_and(|mut lazy| lazy.any(may))
    }

    /// Whether a request may be sent to an endpoint. `head` is the head that will be sent, so that the rules see
    /// exactly what the endpoint gets. `asserted` is the caller that the request named before.
    ///
    /// # Errors
    /// [`Reason::PolicyDenied`]; [`Reason::HeadGrew`] for a head that is too large to be examined; or the reason why
    /// its path is ambiguous, if a rule examines paths.
    pub(crate) fn allow_request(
        &self,
        door: &Door,
        endpoint: SocketAddr,
        (head, asserted): (&[u8], &Asserted),
        judged: &mut Judged,
        dry_runs: &Counter,
    ) -> Result<(), Failure> {
        if !self.still_forward(door) {
            return Err(Reason::PolicyDenied.into());
        }
        let mut guards = self.of(door, endpoint);
        if guards.clone().next().is_none() {
            return Ok(());
        }
        let caller = self.named(door, asserted).ok_or(Reason::PolicyDenied)?;
        // This head was made from a head that was accepted, so it gets the parser's largest limits: fields were added
        // to it.
        let limits = Limits {
            max_head_bytes: usize::from(u16::MAX),
            max_fields: usize::from(u16::MAX),
            max_target_bytes: usize::from(u16::MAX),
            ..Limits::default()
        };
        match judged.head.parse(head, &limits) {
            Ok(Some(_)) => {}
            // Too much was added for the parser to accept it: no rule has been asked.
            Err(reject) if reject.status == TOO_LARGE => return Err(Reason::HeadGrew.into()),
            Ok(None) | Err(_) => return Err(Reason::PolicyDenied.into()),
        }
        let Judged { head: parts, path } = judged;
        let target = parts.path.of(head);
        let look_at_paths = guards.clone().any(|guard| guard.looks_at_paths());
        if look_at_paths && target.starts_with(b"/") {
            path.clear();
            match path::canonicalise(target, path, true).map_err(Failure::request)? {
                path::Canonical::Verbatim => {}
                // The path was brought into canonical form before, so one that still changes is refused.
                path::Canonical::Rewritten => return Err(Reason::PolicyDenied.into()),
            }
        }
        let access = Access {
            caller,
            port: endpoint.port(),
            http: Some(HttpAccess {
                method: parts.method_span.of(head),
                path: target,
                query: parts.query.map(|query| query.of(head)).unwrap_or_default(),
                is_bare: matches!(parts.framing, Framing::None | Framing::Length(0))
                    && !parts.upgrade,
                fields: |each: &mut dyn FnMut(&[u8], &[u8])| {
                    for field in &parts.fields {
                        each(field.name.of(head), field.value.of(head));
                    }
                },
            }),
        };
        match guards.all(|guard| allows(&guard.decide(&access), caller, endpoint, dry_runs)) {
            true => Ok(()),
            false => Err(Reason::PolicyDenied.into()),
        }
    }
}

/// Applies a decision: counts and logs it if a dry run would have decided otherwise.
fn allows(
    decision: &Decision<'_>,
    caller: Option<&SpiffeId>,
    endpoint: SocketAddr,
    dry_runs: &Counter,
) -> bool {
    if decision.would_differ() {
        dry_runs.inc();
        let by = decision.dry_run.map(|would| would.by.code());
        tracing::debug!(?caller, %endpoint, by, "a dry run would have decided otherwise");
    }
    if !decision.allowed {
        let by = decision.by;
        tracing::debug!(?caller, %endpoint, %by, "refused");
    }
    decision.allowed
}
