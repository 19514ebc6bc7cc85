//! Callers in whose name gateways forward what lazy Envoys do not know.
//!
//! A gateway's connection proves the gateway. A header field of the request names the caller, and is believed of gateways
//! only, and of lazy callers only: [`Asserted`]. Bytes name no caller. The gateway has judged theirs; here they pass if some
//! lazy caller may send them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;
use heddle_model::{Mesh, ServiceAccountName, SpiffeId, WorkloadName};
use heddle_wire::http1::{FieldKind, RequestHead};

use crate::door::{Door, source_id};
use crate::entry::Entry;

/// Which callers may name which other ones as the callers of what they forward.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    gateways: HashSet<ServiceAccountName, RandomState>,
    /// Those in whose name gateways forward.
    lazy: HashSet<Arc<SpiffeId>, RandomState>,
    /// The same by their text.
    by_text: HashMap<Box<[u8]>, Arc<LazyCaller>, RandomState>,
    /// A workload of each gateway's account for which this node is the gateway.
    here: HashMap<ServiceAccountName, WorkloadName, RandomState>,
}

/// A caller in whose name gateways forward.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LazyCaller {
    pub(super) id: Arc<SpiffeId>,
    /// The id as metrics and logs show it.
    pub(crate) text: Arc<str>,
    /// The hash of the text.
    pub(crate) source_id: u64,
}

/// The caller that a request itself names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Asserted {
    /// It names none: it is from the caller of its connection.
    #[default]
    Unsaid,
    /// A gateway says that it is from this lazy caller.
    Lazy(Arc<LazyCaller>),
    /// What it says is not believed: no policy allows it.
    False,
}

impl LazyCaller {
    fn new(id: &Arc<SpiffeId>) -> Self {
        let text: Arc<str> = id.to_string().into();
        LazyCaller {
            id: Arc::clone(id),
            source_id: source_id(&text),
            text,
        }
    }
}

impl Asserted {
    /// The caller that is named and believed.
    pub(crate) fn lazy(&self) -> Option<&LazyCaller> {
        match self {
            Asserted::Lazy(caller) => Some(caller),
            Asserted::Unsaid | Asserted::False => None,
        }
    }
}

impl Claims {
    pub(crate) fn new(mesh: &Mesh) -> Self {
        let lazy = mesh.forwarding.lazy.iter().map(|account| {
            let id = SpiffeId::workload(mesh.trust_domain.clone(), account.clone());
            Arc::new(id)
        });
        let lazy: HashSet<Arc<SpiffeId>, RandomState> = lazy.collect();
        let by_text = lazy.iter().map(|id| {
            let caller = LazyCaller::new(id);
            (caller.text.as_bytes().into(), Arc::new(caller))
        });
        let gateways: HashSet<_, RandomState> = mesh.forwarding.gateways.iter().cloned().collect();
        let here = mesh
            .workloads
            .iter()
            .filter(|own| mesh.forwarding.is_at(own));
        let here = here.map(|one| (one.service_account.clone(), one.name.clone()));
        Claims {
            here: here.collect(),
            by_text: by_text.collect(),
            gateways,
            lazy,
        }
    }

    /// Whether this node is a gateway with that account.
    pub(super) fn is_here(&self, account: &ServiceAccountName) -> bool {
        self.here.contains_key(account)
    }

    /// The workload for which this node is a gateway with that account, for this caller; `None` if it is not, or not for it.
    pub(crate) fn gateway(
        &self,
        account: &ServiceAccountName,
        caller: &SpiffeId,
    ) -> Option<&WorkloadName> {
        let here = self.here.get(account);
        here.filter(|_| self.lazy.contains(caller))
    }

    /// Reads which caller is named by the request with this head, which came in through a door.
    pub(crate) fn read(&self, door: &Door, head: &RequestHead, buf: &[u8]) -> Asserted {
        // What a pod of this node says of its caller is taken out of its requests, and means nothing.
        let is_from_outside = matches!(door.entry, Entry::Inbound(_) | Entry::Arriving { .. });
        if !head.names_caller() || !is_from_outside {
            return Asserted::Unsaid;
        }
        let claims = head.fields.iter();
        let mut claims = claims.filter(|field| field.kind == FieldKind::HeddleCaller);
        let Some(claim) = claims.next() else {
            return Asserted::Unsaid;
        };
        let caller = door.inbound().and_then(|inbound| inbound.caller.as_ref());
        if claims.next().is_some() || !caller.is_some_and(|caller| self.is_gateway(caller)) {
            return Asserted::False;
        }
        match self.by_text.get(claim.value.of(buf)) {
            Some(caller) => Asserted::Lazy(Arc::clone(caller)),
            None => Asserted::False,
        }
    }

    /// Whether this caller may name that one, by now.
    pub(super) fn believe(&self, caller: Option<&SpiffeId>, named: &SpiffeId) -> bool {
        caller.is_some_and(|caller| self.is_gateway(caller)) && self.lazy.contains(named)
    }

    /// The callers in whose name this one may forward; `None` if it is no gateway.
    pub(super) fn forwarded_by(
        &self,
        caller: Option<&SpiffeId>,
    ) -> Option<impl Iterator<Item = &SpiffeId>> {
        let is_gateway = !self.gateways.is_empty() && self.is_gateway(caller?);
        is_gateway.then(|| self.lazy.iter().map(|id| &**id))
    }

    fn is_gateway(&self, caller: &SpiffeId) -> bool {
        let account = caller.service_account();
        account.is_some_and(|account| self.gateways.contains(account))
    }
}
