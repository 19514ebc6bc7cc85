//! One node's subscriptions to all types of resources: what it is owed of the catalog.

use std::collections::{BTreeSet, VecDeque};
use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use heddle_model::NodeName;
use heddle_xds::delta::{Answer, Name, Request, Response, Subscriber, TooMany, in_both};
use heddle_xds::resources::Type;
use tokio::time::Instant;

use super::catalog::{Catalog, Own, Part};
use super::changed::{Changed, ChangedService};
use super::scope::{Added, Scope, Touched, exists};

#[cfg(test)]
pub(super) mod tests;

/// Limit of the names that one node may subscribe to, of all types together, and of their bytes. A node names 8,192 at most.
const MAX_NAMES: usize = 16_384;
const MAX_NAMES_BYTES: usize = 4 << 20;
/// Names that are looked up for a node because they have changed, besides those below. For more, such as at the first look
/// at a large mesh, the versions of all that the node may have are compared, which is quicker. Few in tests, so that they
/// do both.
const LOOKED_UP: usize = if cfg!(test) { 8 } else { 1_000 };
/// Names that are looked up in the time of one whose versions are compared. A control plane that is behind must not take
/// what is slower: it would never catch up.
const LOOKED_UP_PER_COMPARED: usize = if cfg!(test) { 1 } else { 8 };

/// What one node wants and has, on one stream. No I/O: its owner carries messages.
#[derive(Debug)]
pub(super) struct Subscriptions {
    node: NodeName,
    types: [Subscriber; Type::ALL.len()],
    /// Types without a first message, for which the mark waits.
    awaited: BTreeSet<Type>,
    /// The generation up to which changes are noted.
    noted: u64,
    /// The generation of the last mark; 0 before the first.
    marked: u64,
    visible: Visible,
    /// What the node has named, or has ceased to name, since its scope was found.
    touched: Touched,
    /// Whether the scope has to be found anew for what the node has ceased to name.
    is_scope_stale: bool,
    /// Until when the scope should not be found anew for that.
    pub(super) rests_until: Option<Instant>,
    /// Responses of one moment that are not sent yet.
    ready: VecDeque<(Type, Response<Bytes>)>,
    /// The mark that belongs behind them.
    mark: Option<(u64, u64)>,
    /// Messages that were taken.
    taken: u64,
    /// Whether something was sent since the last mark.
    is_unmarked: bool,
}

/// What one node may have.
#[derive(Debug, Default)]
struct Visible {
    own: Arc<Own>,
    /// What a node uses that names it; `None` for one that wants all there is.
    scope: Option<Scope>,
}

impl Visible {
    /// What the node may have of a type.
    fn part(&self, kind: Type) -> Part<'_> {
        match (kind, &self.scope) {
            (Type::Service, Some(scope)) => Part::Named(&scope.services),
            (Type::Endpoint, Some(scope)) => Part::EndpointsOf(&scope.services),
            _ => self.names(kind).map_or(Part::All, Part::Named),
        }
    }

    /// The names that the node may have of a type other than those of Services; `None` if it may have all.
    fn names(&self, kind: Type) -> Option<&BTreeSet<Name>> {
        match (kind, &self.scope) {
            (Type::Node, Some(scope)) => Some(&scope.nodes),
            _ => self.own.names(kind),
        }
    }
}

/// What a node has that has everything that it wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// The generation of which it has its part.
    pub generation: u64,
    /// The generation of the last mark: nothing of its part has changed since.
    pub marked: u64,
}

/// A message to the node: a response, a mark, or both.
#[derive(Debug, PartialEq)]
pub(super) struct Told {
    pub(super) response: Option<(Type, Response<Bytes>)>,
    /// The generation of which the node has everything that it wants, when it has read this message, and how many of its
    /// messages say what it wants.
    pub(super) mark: Option<(u64, u64)>,
}

impl Subscriptions {
    /// Of a node that has said nothing yet, and will subscribe to these types. `on_demand`: it names what it uses.
    pub(super) fn new(node: NodeName, awaited: BTreeSet<Type>, on_demand: bool) -> Self {
        Subscriptions {
            visible: Visible {
                scope: on_demand.then(Scope::default),
                ..Visible::default()
            },
            touched: match on_demand {
                true => Touched::All,
                false => Touched::NONE,
            },
            is_scope_stale: false,
            rests_until: None,
            awaited,
            noted: 0,
            marked: 0,
            types: Default::default(),
            ready: VecDeque::new(),
            mark: None,
            taken: 0,
            is_unmarked: false,
            node,
        }
    }

    /// Takes a message about one type.
    ///
    /// # Errors
    /// When the node wants too much.
    pub(super) fn receive(
        &mut self,
        kind: Type,
        request: Request,
        catalog: &Catalog,
    ) -> Result<Answer, TooMany> {
        self.awaited.remove(&kind);
        self.taken += 1;
        let names_any = !request.subscribe.is_empty() || !request.unsubscribe.is_empty();
        if names_any && self.visible.scope.is_some() {
            let names = request.subscribe.iter().chain(&request.unsubscribe);
            self.touched.add(kind, names);
            let mut left = request.unsubscribe.iter();
            self.is_scope_stale |= left.any(|name| exists(catalog.index(), kind, name));
            // The node is told even if nothing else changes: from then on it knows that there is no more to come.
            self.is_unmarked = true;
        }
        let view = catalog.view(kind, self.visible.part(kind));
        let answer = self.types[kind as usize].receive(request, &view)?;
        let (names, bytes) = self.named();
        match names > MAX_NAMES || bytes > MAX_NAMES_BYTES {
            true => Err(TooMany::of(MAX_NAMES, MAX_NAMES_BYTES)),
            false => Ok(answer),
        }
    }

    /// How many names the node subscribes to, of all types, and their bytes.
    fn named(&self) -> (usize, usize) {
        let types = self.types.iter().map(Subscriber::named);
        types.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    /// Until when the next look should wait, if it should: it costs much, and the one before did, too.
    pub(super) fn rests(&self) -> Option<Instant> {
        let until = self.rests_until.filter(|_| self.is_scope_stale());
        until.filter(|until| Instant::now() < *until)
    }

    /// Whether the next look finds the scope anew because of what the node has named, in time for all of its names.
    pub(super) fn is_scope_stale(&self) -> bool {
        self.visible.scope.is_some()
            && (self.is_scope_stale || matches!(self.touched, Touched::All))
    }

    /// Takes a message about a type that this control plane does not have.
    pub(super) fn pass_over(&mut self) {
        self.taken += 1;
    }

    /// What the node has, once it has all that it wants, and has answered for it.
    pub(super) fn settled(&self) -> Option<Settled> {
        let is_sent = self.ready.is_empty() && self.mark.is_none();
        let is_settled = is_sent && self.is_complete() && !self.is_answer_due();
        (is_settled && self.marked > 0).then_some(Settled {
            generation: self.noted,
            marked: self.marked,
        })
    }

    fn is_complete(&self) -> bool {
        self.awaited.is_empty() && !self.types.iter().any(Subscriber::is_owed)
    }

    /// Whether the node has not answered a response.
    pub(super) fn is_answer_due(&self) -> bool {
        self.types.iter().any(Subscriber::is_answer_due)
    }

    /// Goes on to the next generation, if what it changes does not concern the node, and returns whether it has. If not, the
    /// node's stream has to look.
    pub(super) fn skip_unless_concerned(
        &mut self,
        generation: u64,
        changed: Option<&Changed>,
    ) -> bool {
        // What the node was not told yet, it is told by a look at all that has changed since.
        let is_told = self.marked > 0 && self.touched.is_empty() && !self.is_unmarked;
        let is_next = self.noted + 1 == generation;
        let concerns = |changed: &Changed| self.is_concerned(changed);
        let skips = is_told && is_next && changed.is_some_and(|changed| !concerns(changed));
        if skips {
            self.noted = generation;
        }
        skips
    }

    /// Whether a look might find something. It is true for all that [`Subscriptions::follow`] takes notice of.
    fn is_concerned(&self, changed: &Changed) -> bool {
        // A node that is told everything nearly always is.
        let Some(scope) = &self.visible.scope else {
            return true;
        };
        let mut services = scope.used_of(changed);
        let mut common = changed.common.iter();
        changed.is_of(&self.node)
            || (self.visible.own.is_gateway && changed.own.iter().next().is_some())
            || services.next().is_some()
            || scope.has_one_of(&changed.addresses)
            || common.any(|(kind, names)| match self.visible.names(kind) {
                Some(part) => in_both(part, names).next().is_some(),
                None => self.types[kind as usize].wants_one_of(names),
            })
    }

    /// The next message, if there is something to say.
    pub(super) fn respond(&mut self, catalog: &Catalog) -> Option<Told> {
        if self.ready.is_empty() && self.mark.is_none() {
            self.look(catalog);
        }
        let response = self.ready.pop_front();
        let mark = match self.ready.is_empty() {
            true => self.mark.take(),
            false => None,
        };
        (response.is_some() || mark.is_some()).then_some(Told { response, mark })
    }

    /// Finds what is to be sent now, of all types at one moment. There is a mark unless the node wants more than that.
    fn look(&mut self, catalog: &Catalog) {
        self.follow(catalog);
        for kind in Type::ALL {
            let view = catalog.view(kind, self.visible.part(kind));
            if let Some(response) = self.types[kind as usize].respond(&view) {
                self.ready.push_back((kind, response));
            }
        }
        self.is_unmarked |= !self.ready.is_empty();
        // What changes nothing for the node costs it nothing, not even a mark.
        if self.is_complete() && (self.is_unmarked || self.marked == 0) {
            self.is_unmarked = false;
            self.marked = self.noted;
            self.mark = Some((self.noted, self.taken));
        }
    }

    /// Notes what has changed in the catalog, and in what the node may have of it.
    fn follow(&mut self, catalog: &Catalog) {
        let own = catalog.own(&self.node);
        let is_own_new = !Arc::ptr_eq(&own, &self.visible.own);
        let has = self.types.iter().map(Subscriber::held).sum::<usize>();
        let at_most = LOOKED_UP + LOOKED_UP_PER_COMPARED * has;
        let changes = catalog.changes_since(self.noted, has.max(LOOKED_UP), at_most);
        let is_scope_same = !is_own_new && self.is_scope_same(changes.clone());
        let (scope, added) = self.next_scope(catalog, &own, is_scope_same);
        // What the node might have until now, as far as that is another part.
        let before = Visible {
            own: mem::replace(&mut self.visible.own, own),
            scope: scope.and_then(|scope| self.visible.scope.replace(scope)),
        };
        let now = &self.visible;
        match changes {
            Some(changes) => {
                for changed in changes {
                    note(changed, &self.node, &before, now, &mut self.types);
                }
            }
            // Versions tell what has.
            None => {
                for kind in Type::ALL {
                    let view = catalog.view(kind, now.part(kind));
                    self.types[kind as usize].all_may_have_changed(&view);
                }
            }
        }
        self.noted = catalog.generation();
        if is_own_new {
            for kind in [Type::Workload, Type::Policy] {
                let subscriber = &mut self.types[kind as usize];
                match (before.own.names(kind), now.own.names(kind)) {
                    (Some(old), Some(new)) => {
                        let differ = old.symmetric_difference(new);
                        differ.for_each(|name| subscriber.changed(name));
                    }
                    (None, None) => {}
                    // It has become a gateway, or is none any more.
                    _ => subscriber.all_may_have_changed(&catalog.view(kind, now.part(kind))),
                }
            }
        }
        if let Some((old, new)) = before.scope.as_ref().zip(now.scope.as_ref()) {
            let nodes = old.nodes.symmetric_difference(&new.nodes);
            let services = old.services.symmetric_difference(&new.services);
            note_scope(nodes, services, catalog, &mut self.types);
        }
        note_scope(&added.nodes, &added.services, catalog, &mut self.types);
    }

    /// Whether none of these changes changes the scope of a node that names what it uses.
    fn is_scope_same<'c>(&self, changes: Option<impl Iterator<Item = &'c Changed>>) -> bool {
        let scope = self.visible.scope.as_ref();
        scope.is_none_or(|scope| {
            changes.is_some_and(|mut changes| !changes.any(|changed| scope.depends_on(changed)))
        })
    }

    /// Goes on to the scope of what the node names now. Returns what the scope has more; or, where that has to be found
    /// anew, the next scope.
    fn next_scope(
        &mut self,
        catalog: &Catalog,
        own: &Own,
        is_same: bool,
    ) -> (Option<Scope>, Added) {
        let touched = mem::replace(&mut self.touched, Touched::NONE);
        self.is_scope_stale = false;
        let Some(scope) = &mut self.visible.scope else {
            return Default::default();
        };
        if let (Touched::These(touched), true) = (touched, is_same) {
            let types = &self.types;
            let touched = touched.iter();
            let touched = touched.map(|(kind, name)| {
                let is_named = types[*kind as usize].is_named(name);
                (*kind, name, is_named)
            });
            if let Some(added) = scope.follow(catalog, touched) {
                return (None, added);
            }
        }
        let [services, addresses] = [Type::Service, Type::Address].map(|kind| kind as usize);
        let scope = Scope::new(
            catalog,
            own,
            self.types[services].names(),
            self.types[addresses].names(),
        );
        (Some(scope), Added::default())
    }
}

/// Notes nodes and Services that a node may have now, and might not have before, or the reverse.
fn note_scope<'n>(
    nodes: impl IntoIterator<Item = &'n Name>,
    services: impl IntoIterator<Item = &'n Name>,
    catalog: &Catalog,
    types: &mut [Subscriber; Type::ALL.len()],
) {
    for node in nodes {
        types[Type::Node as usize].changed(node);
    }
    for service in services {
        types[Type::Service as usize].changed(service);
        // Those that are gone as well are among the changes.
        let bound = catalog.index().service(service);
        for endpoint in bound.iter().flat_map(|bound| &bound.endpoints) {
            types[Type::Endpoint as usize].changed(endpoint);
        }
    }
}

/// Notes what of a change concerns a node that might have the parts `before`, and may have those `now`.
fn note(
    changed: &Changed,
    node: &NodeName,
    before: &Visible,
    now: &Visible,
    types: &mut [Subscriber; Type::ALL.len()],
) {
    let has_all = before.own.is_gateway || now.own.is_gateway;
    for (kind, names) in changed.of_node(node, has_all) {
        let subscriber = &mut types[kind as usize];
        let Some(part) = now.names(kind) else {
            subscriber.changed_among(names);
            continue;
        };
        for part in [Some(part), before.names(kind)].into_iter().flatten() {
            in_both(part, names).for_each(|name| subscriber.changed(name));
        }
    }
    let mut note_service = |service: &ChangedService| {
        for (kind, name) in &service.changed {
            types[*kind as usize].changed(name);
        }
    };
    let Some(scope) = &now.scope else {
        return changed.services.iter().for_each(note_service);
    };
    for scope in [Some(scope), before.scope.as_ref()].into_iter().flatten() {
        scope.used_of(changed).for_each(&mut note_service);
    }
}
