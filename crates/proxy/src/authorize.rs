//! Who may call which endpoint, as the policies of the workload behind it say.
//!
//! The decision itself is the model's ([`Guard`]); here is what it is asked, and when:
//!
//! | asked | when | about |
//! |---|---|---|
//! | [`Guards::may_connect`] | an opaque connection is about to be made | caller and port |
//! | [`Guards::allow_bytes`] | it is known to be no HTTP | caller and port |
//! | [`Guards::allow_request`] | a request is about to be sent | the head as it will be sent |
//! | [`Guards::may_connect`] | the policies have changed | every flow that is under way |
//!
//! While no policy is there nothing is asked.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use foldhash::fast::RandomState;
use heddle_model::{
    Access, Connect, Decision, Guard, HttpAccess, Mesh, ServiceAccountName, SpiffeId, WorkloadName,
};
use heddle_telemetry::Counter;
use heddle_wire::http1::{Framing, Limits, RequestHead, path};

use crate::door::Door;
use crate::entry::Entry;
use crate::failure::{Failure, Reason};

/// Status of heads that have more bytes or fields than a parser takes (RFC 6585 section 5).
const TOO_LARGE: u16 = 431;

/// A flow under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Live {
    /// The endpoint that it goes to.
    pub(crate) endpoint: SocketAddr,
    /// Bytes that are passed on unread: rules about requests do not fit them.
    pub(crate) bytes: bool,
}

/// Everything that stands before the endpoints of one snapshot, and who callers are.
#[derive(Debug, Default)]
pub(crate) struct Guards {
    /// Those that are not open to every caller. Where several workloads share an address, all must agree.
    by_endpoint: HashMap<SocketAddr, Vec<Arc<Guard>>, RandomState>,
    /// The same of workloads, for those of their ports that are no Service's.
    by_workload: HashMap<WorkloadName, Arc<Guard>, RandomState>,
    /// Of the workloads that call from here.
    identities: HashMap<WorkloadName, Identified, RandomState>,
}

/// The identity of a workload that calls from here, and as it is written.
#[derive(Debug)]
struct Identified {
    id: SpiffeId,
    text: Arc<str>,
}

/// What a connection to an endpoint is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MayConnect {
    /// Something may be allowed on it.
    Yes,
    /// A health check that makes and closes a connection: not a byte may be passed on.
    Bare,
    /// Nothing.
    No,
}

/// A request in pieces, as it will be sent: reused, since judging allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    head: RequestHead,
    path: Vec<u8>,
}

impl Guards {
    pub(crate) fn new(mesh: &Mesh) -> Self {
        let mut guards: HashMap<WorkloadName, Arc<Guard>, RandomState> = HashMap::default();
        for workload in &mesh.workloads {
            let guard = Guard::new(mesh, workload);
            if !guard.is_open() {
                guards.insert(workload.name.clone(), Arc::new(guard));
            }
        }
        let mut by_endpoint: HashMap<SocketAddr, Vec<Arc<Guard>>, RandomState> = HashMap::default();
        let ports = mesh.services.iter().flat_map(|service| &service.ports);
        for endpoint in ports.flat_map(|port| &port.endpoints) {
            let guard = endpoint.workload.as_ref().and_then(|name| guards.get(name));
            let Some(guard) = guard else { continue };
            let known = by_endpoint.entry(endpoint.address).or_default();
            if !known.iter().any(|one| Arc::ptr_eq(one, guard)) {
                known.push(Arc::clone(guard));
            }
        }
        let identities = mesh.workloads.iter().map(|workload| {
            let account = workload.service_account.clone();
            let id = SpiffeId::workload(mesh.trust_domain.clone(), account);
            let text = id.to_string().into();
            (workload.name.clone(), Identified { id, text })
        });
        Guards {
            identities: identities.collect(),
            by_endpoint,
            by_workload: guards,
        }
    }

    /// Whether nothing is guarded.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_workload.is_empty()
    }

    /// Whether a rule before an endpoint of a Service looks at paths.
    pub(crate) fn look_at_paths_before(&self, endpoint: SocketAddr) -> bool {
        let guards = self
            .by_endpoint
            .get(&endpoint)
            .map_or(&[][..], Vec::as_slice);
        guards.iter().any(|guard| guard.looks_at_paths())
    }

    /// Whether a rule before the endpoint that a door leads to looks at paths.
    pub(crate) fn look_at_paths(&self, door: &Door) -> bool {
        let endpoint = match &door.entry {
            Entry::Inbound(inbound) => inbound.endpoint,
            Entry::Direct(direct) => direct.endpoint,
            _ => return false,
        };
        let mut guards = self.of(door, endpoint);
        guards.any(|guard| guard.looks_at_paths())
    }

    /// Whether a rule before an endpoint looks at a header of this name, in any spelling of it.
    pub(crate) fn look_at_header(&self, door: &Door, endpoint: SocketAddr, name: &[u8]) -> bool {
        self.of(door, endpoint)
            .any(|guard| guard.looks_at_header(name))
    }

    /// Whether something that is under way may go on.
    pub(crate) fn allow_live(&self, door: &Door, flow: Live) -> bool {
        match flow.bytes {
            // What a dry run thinks of it was counted when it began.
            true => self.allow_bytes(door, flow.endpoint, &Counter::default()),
            false => self.may_connect(door, flow.endpoint) == MayConnect::Yes,
        }
    }

    /// What stands before an endpoint, for callers that come by a door.
    fn of(
        &self,
        door: &Door,
        endpoint: SocketAddr,
    ) -> impl Iterator<Item = &Arc<Guard>> + Clone + use<'_> {
        let known = self
            .by_endpoint
            .get(&endpoint)
            .map_or(&[][..], Vec::as_slice);
        // What is called by its own address is guarded by its own policies, whatever Services say of that address.
        let own = match &door.entry {
            Entry::Direct(direct) => direct.workload(),
            _ => None,
        };
        let own = own.and_then(|name| self.by_workload.get(name));
        let own = own.filter(|own| !known.iter().any(|one| Arc::ptr_eq(one, own)));
        known.iter().chain(own)
    }

    /// The caller that comes by a door: the identity that was proven, or that of the workload whose listener it is.
    fn identity<'a>(&'a self, door: &'a Door) -> Option<&'a SpiffeId> {
        match door.inbound() {
            Some(inbound) => inbound.caller.as_ref(),
            None => Some(&self.identities.get(door.entry.caller()?)?.id),
        }
    }

    /// The identity of the caller that comes by a door, as it is written in metrics and logs.
    pub(crate) fn principal<'a>(&'a self, door: &'a Door) -> Option<&'a Arc<str>> {
        match &door.proven {
            Some(proven) => Some(proven),
            None => Some(&self.identities.get(door.entry.caller()?)?.text),
        }
    }

    /// In whose name another node is called by a door.
    pub(crate) fn account<'a>(&'a self, door: &'a Door) -> Option<&'a ServiceAccountName> {
        self.identity(door)?.service_account()
    }

    /// Whether a connection to an endpoint may be made at all.
    pub(crate) fn may_connect(&self, door: &Door, endpoint: SocketAddr) -> MayConnect {
        let caller = self.identity(door);
        let mut may = MayConnect::Yes;
        for guard in self.of(door, endpoint) {
            match guard.may_connect(caller, endpoint.port()) {
                Connect::Open => {}
                Connect::Bare => may = MayConnect::Bare,
                Connect::Refused(by) => {
                    tracing::debug!(?caller, %endpoint, %by, "refused");
                    return MayConnect::No;
                }
            }
        }
        may
    }

    /// Whether bytes that are no request may be passed on to an endpoint.
    pub(crate) fn allow_bytes(
        &self,
        door: &Door,
        endpoint: SocketAddr,
        dry_runs: &Counter,
    ) -> bool {
        let caller = self.identity(door);
        let access = Access::flow(caller, endpoint.port());
        let mut guards = self.of(door, endpoint);
        guards.all(|guard| allows(&guard.decide(&access), caller, endpoint, dry_runs))
    }

    /// Whether a request may be sent to an endpoint. `head` is what will be sent: what a rule sees is
    /// what the endpoint gets.
    ///
    /// # Errors
    /// [`Reason::PolicyDenied`]; [`Reason::HeadGrew`] for a head that is too large to be looked at; or why its path is
    /// ambiguous, where a rule looks at paths.
    pub(crate) fn allow_request(
        &self,
        door: &Door,
        endpoint: SocketAddr,
        head: &[u8],
        judged: &mut Judged,
        dry_runs: &Counter,
    ) -> Result<(), Failure> {
        let mut guards = self.of(door, endpoint);
        if guards.clone().next().is_none() {
            return Ok(());
        }
        let caller = self.identity(door);
        // What was made of a head that was taken is taken again, whatever was added to it.
        let limits = Limits {
            max_head_bytes: usize::from(u16::MAX),
            max_fields: usize::from(u16::MAX),
            max_target_bytes: usize::from(u16::MAX),
            ..Limits::default()
        };
        match judged.head.parse(head, &limits) {
            Ok(Some(_)) => {}
            // Too much was added for the parser to take it: no rule has said anything.
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
                // It was brought into canonical form before: this is none.
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

/// Takes a decision, and says what would have changed it.
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
