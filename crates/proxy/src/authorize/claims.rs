//! Callers in whose name gateways forward what lazy Envoys do not know.
//!
//! A gateway's connection proves the gateway. Who has sent a request stands in a header field of the request, and is
//! believed of gateways only, and of lazy callers only: [`Asserted`]. Of bytes nothing says who has sent them. The gateway has
//! judged their caller; here they pass if some lazy caller may send them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;
use heddle_model::{Mesh, ServiceAccountName, SpiffeId};
use heddle_wire::http1::{FieldKind, RequestHead};

use crate::door::Door;
use crate::entry::Entry;

/// Which callers may assert of which other ones that these have sent a request.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    gateways: HashSet<ServiceAccountName, RandomState>,
    /// Those in whose name gateways forward, by their text.
    lazy: HashMap<Box<[u8]>, Arc<SpiffeId>, RandomState>,
}

/// The sender of a request, as far as the request itself names one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Asserted {
    /// It names none: the caller of its connection has sent it.
    #[default]
    Unsaid,
    /// A gateway says that this lazy caller has sent it.
    Lazy(Arc<SpiffeId>),
    /// What it says cannot be: no policy allows it.
    False,
}

impl Claims {
    pub(crate) fn new(mesh: &Mesh) -> Self {
        let lazy = mesh.forwarding.lazy.iter().map(|account| {
            let id = SpiffeId::workload(mesh.trust_domain.clone(), account.clone());
            (id.to_string().into_bytes().into(), Arc::new(id))
        });
        Claims {
            gateways: mesh.forwarding.gateways.iter().cloned().collect(),
            lazy: lazy.collect(),
        }
    }

    /// Reads who has sent the request with this head, which came in through a door.
    pub(crate) fn read(&self, door: &Door, head: &RequestHead, buf: &[u8]) -> Asserted {
        // What a pod of this node says of its caller is taken out of its requests, and means nothing.
        let is_from_outside = matches!(door.entry, Entry::Inbound(_) | Entry::Arriving { .. });
        if self.gateways.is_empty() || !is_from_outside {
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
        match self.lazy.get(claim.value.of(buf)) {
            Some(id) => Asserted::Lazy(Arc::clone(id)),
            None => Asserted::False,
        }
    }

    /// The callers in whose name this one may forward; `None` if it is no gateway.
    pub(super) fn forwarded_by(
        &self,
        caller: Option<&SpiffeId>,
    ) -> Option<impl Iterator<Item = &SpiffeId>> {
        let is_gateway = !self.gateways.is_empty() && self.is_gateway(caller?);
        is_gateway.then(|| self.lazy.values().map(|id| &**id))
    }

    fn is_gateway(&self, caller: &SpiffeId) -> bool {
        let account = caller.service_account();
        account.is_some_and(|account| self.gateways.contains(account))
    }
}
