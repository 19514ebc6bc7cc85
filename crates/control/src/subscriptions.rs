//! One node's subscriptions to all types of resources: what it is owed of the catalog.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use heddle_model::NodeName;
use heddle_xds::delta::{Answer, Request, Response, Subscriber, TooMany};
use heddle_xds::resources::Type;

use super::catalog::{Catalog, Own};

#[cfg(test)]
mod tests;

/// What one node wants and has, on one stream. No I/O: its owner carries messages.
#[derive(Debug)]
pub(super) struct Subscriptions {
    node: NodeName,
    types: [Subscriber; Type::ALL.len()],
    /// Types without a first message, for which the mark waits.
    awaited: BTreeSet<Type>,
    /// The generation up to which changes are noted.
    noted: u64,
    /// The generation of the last mark.
    marked: u64,
    own: Arc<Own>,
    /// Responses of one moment that are not sent yet.
    ready: VecDeque<(Type, Response<Bytes>)>,
    /// The mark that belongs behind them.
    mark: Option<u64>,
    /// Whether something was sent since the last mark.
    is_unmarked: bool,
}

/// A message to the node: a response, a mark, or both.
#[derive(Debug, PartialEq)]
pub(super) struct Told {
    pub(super) response: Option<(Type, Response<Bytes>)>,
    /// The generation of which the node has everything that it wants, when it has read this message.
    pub(super) mark: Option<u64>,
}

impl Subscriptions {
    /// Of a node that has said nothing yet, and will subscribe to these types.
    pub(super) fn new(node: NodeName, awaited: BTreeSet<Type>) -> Self {
        Subscriptions {
            own: Arc::default(),
            awaited,
            noted: 0,
            marked: 0,
            types: Default::default(),
            ready: VecDeque::new(),
            mark: None,
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
        self.types[kind as usize].receive(request, &catalog.view(kind, &self.own))
    }

    /// Whether the node has not answered a response.
    pub(super) fn is_answer_due(&self) -> bool {
        self.types.iter().any(Subscriber::is_answer_due)
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
            let view = catalog.view(kind, &self.own);
            if let Some(response) = self.types[kind as usize].respond(&view) {
                self.ready.push_back((kind, response));
            }
        }
        let is_complete = self.awaited.is_empty() && !self.types.iter().any(Subscriber::is_owed);
        self.is_unmarked |= !self.ready.is_empty();
        if is_complete && (self.is_unmarked || self.noted != self.marked) {
            self.is_unmarked = false;
            self.marked = self.noted;
            self.mark = Some(self.noted);
        }
    }

    /// Notes what has changed in the catalog.
    fn follow(&mut self, catalog: &Catalog) {
        let own = catalog.own(&self.node);
        match catalog.changes_since(self.noted) {
            Some(changes) => {
                for (kind, name) in changes {
                    // Most workloads and policies are those of other nodes.
                    let of = |own: &Own| own.names(*kind).is_none_or(|own| own.contains(name));
                    if of(&own) || of(&self.own) {
                        self.types[*kind as usize].changed(name);
                    }
                }
            }
            // Versions tell what has.
            None => {
                for kind in Type::ALL {
                    let view = catalog.view(kind, &own);
                    self.types[kind as usize].all_may_have_changed(&view);
                }
            }
        }
        self.noted = catalog.generation();
        if Arc::ptr_eq(&own, &self.own) {
            return;
        }
        for kind in [Type::Workload, Type::Policy] {
            let Some((old, new)) = self.own.names(kind).zip(own.names(kind)) else {
                continue;
            };
            for name in old.symmetric_difference(new) {
                self.types[kind as usize].changed(name);
            }
        }
        self.own = own;
    }
}
