//! One Envoy's stream: what it wants, what it has, and what it is told next.
//!
//! Nothing that an Envoy uses may refer to what it does not have yet (make before break):
//!
//! ```text
//!   wanted ─▶ offered: clusters, endpoints ── the Envoy has accepted them ─▶ routed: routes, listeners
//!   not wanted ─▶ not routed ── the Envoy has accepted that ─▶ not offered
//! ```
//!
//! An Envoy accepts clusters once all of them are usable, with their endpoints and secrets. It asks for the endpoints of a
//! cluster that changes only if it did not ask before, and waits for them all the same: they are sent again with the cluster.
//!
//! Of a response that it refuses, an Envoy uses the good resources nevertheless. Each is sent again by itself, so that it is
//! known which ones those are: no route leads to a cluster that it has not.
//!
//! One that has connected again keeps the routes and listeners that it has until it has accepted the clusters.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use heddle_model::ServiceAccountName;
use heddle_xds::delta::{Answer, Name, Request, Resources, Response, Subscriber, TooMany};

use crate::catalog::{Catalog, Changed};
use crate::own::{Gone, Own};
use crate::{Kind, Packed};

#[cfg(test)]
mod tests;

/// A response is ended by the resource with which it has so many bytes: an Envoy takes the first response for all there is.
const RESPONSE_BYTES: usize = 16 << 20;

/// The state of one Envoy's stream.
#[derive(Debug)]
pub struct Session {
    kinds: [Subscriber; Kind::ALL.len()],
    /// The types that it has asked for.
    begun: [bool; Kind::ALL.len()],
    own: Own,
    wanted: BTreeSet<Name>,
    offered: BTreeSet<Name>,
    /// Those of them whose clusters it has accepted.
    accepted: BTreeSet<Name>,
    routed: BTreeSet<Name>,
    /// Whether the catalog may have changed what `wanted` is made of.
    is_stale: bool,
    /// Whether the Envoy has accepted clusters on this stream, or has all of them from an earlier one.
    has_clusters: bool,
}

impl Session {
    /// A new stream of a workload's Envoy.
    pub fn new(own: Own) -> Self {
        let subscriber = || {
            let mut subscriber = Subscriber::with_response_bytes(RESPONSE_BYTES);
            subscriber.send_refused_singly();
            subscriber
        };
        Session {
            kinds: Kind::ALL.map(|_| subscriber()),
            begun: Default::default(),
            own,
            wanted: BTreeSet::new(),
            offered: BTreeSet::new(),
            accepted: BTreeSet::new(),
            routed: BTreeSet::new(),
            is_stale: true,
            has_clusters: false,
        }
    }

    /// Takes a message about resources of a type.
    ///
    /// # Errors
    /// When the Envoy wants too many names.
    pub fn receive(
        &mut self,
        kind: Kind,
        mut request: Request,
        catalog: &Catalog,
    ) -> Result<Answer, TooMany> {
        // What it has from an earlier stream is sent again, except for clusters and listeners, of which it is told what is gone:
        // an Envoy that was told nothing about a cluster's endpoints has been seen to stay without any.
        if !kind.is_wildcard() {
            request.initial_versions.clear();
        }
        self.begun[kind as usize] = true;
        if kind == Kind::Cluster {
            // What it has from an earlier stream stays until no route leads to it.
            let had = request.initial_versions.iter();
            let had = had.filter_map(|(name, _)| Some(catalog.find(kind, name)?.0.clone()));
            self.offered.extend(had);
        }
        // An Envoy that has connected again may name nothing of a type: then it wants nothing, and not all.
        let is_begun = self.kinds[kind as usize].has_begun();
        if !kind.is_wildcard() && !is_begun && request.subscribe.is_empty() {
            return Ok(Answer::None);
        }
        let view = View::of(kind, &self.own, &self.offered, &self.routed, catalog);
        self.kinds[kind as usize].receive(request, &view)
    }

    /// Replaces a resource that is for this Envoy alone.
    pub fn put(&mut self, kind: Kind, name: &'static str, packed: Packed) {
        let name = self.own.put(kind, name, packed);
        self.kinds[kind as usize].changed(&name);
    }

    /// Notes what a mesh has changed. Returns whether it may concern this Envoy.
    pub fn note(&mut self, changed: &Changed) -> bool {
        let mut concerns = changed.has_others || changed.declared.contains(self.own.workload());
        for (kind, name) in &changed.every {
            concerns = true;
            self.kinds[*kind as usize].changed(name);
        }
        if changed
            .learned
            .iter()
            .any(|account| self.own.is_of(account))
        {
            concerns = true;
            self.is_stale = true;
        }
        for (service, names) in &changed.services {
            let is_known = self.offered.contains(service) || self.wanted.contains(service);
            if !is_known && !self.own.may_use(service) {
                continue;
            }
            concerns = true;
            self.is_stale = true;
            for (kind, name) in names {
                self.kinds[*kind as usize].changed(name);
            }
        }
        concerns
    }

    /// The Envoy gets whole lists of clusters and of listeners: there is no sending one by itself.
    pub fn gets_whole_lists(&mut self) {
        self.kinds = Kind::ALL.map(|_| Subscriber::with_response_bytes(RESPONSE_BYTES));
    }

    /// Whether the Envoy owes an answer.
    pub fn is_answer_due(&self) -> bool {
        self.kinds.iter().any(Subscriber::is_answer_due)
    }

    /// How many resources of a type it has.
    pub fn held(&self, kind: Kind) -> usize {
        self.kinds[kind as usize].held()
    }

    /// Whether its workload is one of this account.
    pub fn is_of(&self, account: &ServiceAccountName) -> bool {
        self.own.is_of(account)
    }

    /// Whether the Envoy has answered everything about routes and listeners.
    pub fn is_routed(&self) -> bool {
        self.is_quiet(Kind::Routes) && self.is_quiet(Kind::Listener)
    }

    /// The Services to which its requests and connections go without a gateway.
    pub fn direct(&self) -> &BTreeSet<Name> {
        &self.routed
    }

    /// The next message for it, if there is something to say.
    ///
    /// # Errors
    /// When the workload is gone, or has no Envoy any more.
    pub fn respond(&mut self, catalog: &Catalog) -> Result<Option<(Kind, Response<Bytes>)>, Gone> {
        loop {
            self.advance(catalog)?;
            let mut spoke = None;
            for kind in Kind::ALL {
                if !self.has_clusters && matches!(kind, Kind::Routes | Kind::Listener) {
                    continue;
                }
                let view = View::of(kind, &self.own, &self.offered, &self.routed, catalog);
                if let Some(response) = self.kinds[kind as usize].respond(&view) {
                    spoke = Some((kind, response));
                    break;
                }
            }
            match spoke {
                Some((kind, response)) => {
                    if kind == Kind::Cluster {
                        let endpoints = &mut self.kinds[Kind::Endpoints as usize];
                        let told = response.resources.iter();
                        told.for_each(|cluster| endpoints.owe(&cluster.name));
                    }
                    return Ok(Some((kind, response)));
                }
                // What was quiet now may let the next step be made.
                None if self.can_advance(catalog) => {}
                None => return Ok(None),
            }
        }
    }

    /// Whether the type's newest state is with the Envoy, which has accepted or refused it.
    fn is_quiet(&self, kind: Kind) -> bool {
        let subscriber = &self.kinds[kind as usize];
        self.begun[kind as usize] && !subscriber.is_answer_due() && !subscriber.is_owed()
    }

    fn can_advance(&self, catalog: &Catalog) -> bool {
        let is_quiet = self.is_quiet(Kind::Cluster);
        let is_accepted =
            is_quiet && (!self.has_clusters || self.newly_accepted(catalog).is_some());
        is_accepted || self.next_offered().is_some()
    }

    /// The Services whose clusters the Envoy has, once it has answered all: those that are offered, but for refused ones. `None`
    /// if they are the ones that are known. Of a cluster that it has, it goes on using the version before one that it refuses.
    fn newly_accepted(&self, catalog: &Catalog) -> Option<BTreeSet<Name>> {
        let refused = self.kinds[Kind::Cluster as usize].refused();
        let refused = refused.filter_map(|cluster| Some(catalog.find(Kind::Cluster, cluster)?.0));
        let refused: BTreeSet<&Name> = refused
            .filter(|service| !self.accepted.contains(*service))
            .collect();
        let is_same = refused.is_empty() && self.accepted == self.offered;
        if is_same {
            return None;
        }
        let offered = self.offered.iter();
        let accepted = offered.filter(|service| !refused.contains(service));
        let accepted: BTreeSet<Name> = accepted.cloned().collect();
        (accepted != self.accepted).then_some(accepted)
    }

    /// The Services to go on offering, if those are fewer.
    fn next_offered(&self) -> Option<BTreeSet<Name>> {
        if !self.is_routed() {
            return None;
        }
        let kept = self.wanted.union(&self.routed).cloned();
        let kept: BTreeSet<Name> = kept.collect();
        (kept.len() < self.offered.len()).then_some(kept)
    }

    /// Makes the steps that can be made now.
    fn advance(&mut self, catalog: &Catalog) -> Result<(), Gone> {
        let is_stale = std::mem::take(&mut self.is_stale);
        let has_new_listeners = self.own.follow(catalog)?;
        if is_stale || has_new_listeners {
            self.wanted = self.own.wanted(catalog);
        }
        if !self.wanted.is_subset(&self.offered) {
            self.offered.extend(self.wanted.iter().cloned());
            self.all_may_have_changed(Kind::Cluster, catalog);
            // An Envoy may have asked for the endpoints of a cluster while it was not offered.
            self.all_may_have_changed(Kind::Endpoints, catalog);
        }
        if self.is_quiet(Kind::Cluster) {
            self.has_clusters = true;
            if let Some(accepted) = self.newly_accepted(catalog) {
                self.accepted = accepted;
            }
        }
        let routed: BTreeSet<Name> = self.wanted.intersection(&self.accepted).cloned().collect();
        let is_other = routed != self.routed;
        self.routed = routed;
        let has_new_routes = self.own.route(catalog, &self.routed, is_other);
        if is_other || has_new_listeners {
            self.all_may_have_changed(Kind::Listener, catalog);
        }
        if has_new_routes {
            self.all_may_have_changed(Kind::Routes, catalog);
        }
        if let Some(kept) = self.next_offered() {
            self.accepted.retain(|service| kept.contains(service));
            self.offered = kept;
            self.all_may_have_changed(Kind::Cluster, catalog);
        }
        Ok(())
    }

    fn all_may_have_changed(&mut self, kind: Kind, catalog: &Catalog) {
        let view = View::of(kind, &self.own, &self.offered, &self.routed, catalog);
        self.kinds[kind as usize].all_may_have_changed(&view);
    }
}

/// The resources of a type, as one Envoy may have them.
struct View<'s> {
    kind: Kind,
    own: &'s BTreeMap<Name, Packed>,
    /// Services whose resources of the type it may have.
    services: &'s BTreeSet<Name>,
    catalog: &'s Catalog,
}

impl<'s> View<'s> {
    fn of(
        kind: Kind,
        own: &'s Own,
        offered: &'s BTreeSet<Name>,
        routed: &'s BTreeSet<Name>,
        catalog: &'s Catalog,
    ) -> Self {
        View {
            kind,
            own: own.resources(kind),
            services: match kind {
                Kind::Listener => routed,
                _ => offered,
            },
            catalog,
        }
    }

    fn fixed(&self) -> &'s [(Name, Packed)] {
        self.catalog.every(self.kind)
    }
}

impl Resources for View<'_> {
    type Content = Bytes;

    fn get(&self, name: &str) -> Option<(u64, &Bytes)> {
        let fixed = || {
            let mut fixed = self.fixed().iter();
            Some(&fixed.find(|(known, _)| &**known == name)?.1)
        };
        let shared = || {
            let (service, packed) = self.catalog.find(self.kind, name)?;
            self.services.contains(service).then_some(packed)
        };
        let packed = self.own.get(name).or_else(fixed).or_else(shared)?;
        Some((packed.version, &packed.content))
    }

    fn names(&self) -> impl Iterator<Item = &Name> {
        let is_wildcard = self.kind.is_wildcard();
        let own = self.own.keys();
        let fixed = self.fixed().iter().map(|(name, _)| name);
        let services = self.services.iter();
        let services = services.filter_map(|service| self.catalog.service(service));
        let shared = services.flat_map(|service| service.of(self.kind));
        let all = own.chain(fixed).chain(shared.map(|(name, _)| name));
        all.filter(move |_| is_wildcard)
    }

    fn bytes(content: &Bytes) -> usize {
        content.len()
    }
}
