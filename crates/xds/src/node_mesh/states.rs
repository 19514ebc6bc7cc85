//! What is known of what a node uses.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use heddle_model::{Dependency, DependencyState, ServiceName};

use super::NodeMesh;
use crate::delta::{Held, Name};
use crate::resources::{JoinedMesh, Type};

/// What the control plane has said of each name, as of the last mark.
#[derive(Debug, Default)]
pub(super) struct States {
    /// As the names were answered. An address that is no workload's is absent here.
    answers: BTreeMap<Dependency, DependencyState>,
    /// The names whose answers may have changed since then.
    pub(super) touched: Touched,
    /// Whether there was a Service that the node cannot read.
    is_any_unreadable: bool,
}

/// Names of which something was said.
#[derive(Debug)]
pub(super) enum Touched {
    All,
    These(BTreeSet<(Type, Name)>),
}

impl Default for Touched {
    fn default() -> Self {
        Touched::These(BTreeSet::new())
    }
}

impl Touched {
    pub(super) fn add(&mut self, key: &(Type, Name)) {
        if let Touched::These(names) = self {
            names.insert(key.clone());
        }
    }
}

impl States {
    /// Forgets a name. Returns whether something was known of it.
    pub(super) fn forget(&mut self, dependency: &Dependency) -> bool {
        self.answers.remove(dependency).is_some()
    }

    pub(super) fn of(
        &self,
        dependency: &Dependency,
        joined: &JoinedMesh,
    ) -> Option<DependencyState> {
        let answer = self.answers.get(dependency)?;
        Some(self.state(dependency, *answer, joined))
    }

    pub(super) fn all(&self, joined: &JoinedMesh) -> Vec<(Dependency, DependencyState)> {
        let answers = self.answers.iter();
        let all = answers.map(|(one, answer)| (one.clone(), self.state(one, *answer, joined)));
        all.collect()
    }

    /// An address that is no workload's may be a Service's: its cluster address, or that of an endpoint. It may
    /// belong to a Service that this node cannot read.
    fn state(
        &self,
        dependency: &Dependency,
        answer: DependencyState,
        joined: &JoinedMesh,
    ) -> DependencyState {
        match (dependency, answer) {
            (Dependency::Address(address), DependencyState::Absent) => {
                if joined.has_address(*address) {
                    DependencyState::There
                } else if self.is_any_unreadable {
                    DependencyState::Unreadable
                } else {
                    DependencyState::Absent
                }
            }
            _ => answer,
        }
    }
}

impl NodeMesh {
    /// Something was said of a resource. It matters if the node has named it; what it names later has no answer then.
    pub(super) fn touch(&mut self, key: &(Type, Name)) {
        if self.types[key.0 as usize].is_named(&key.1) {
            self.states.touched.add(key);
        }
    }

    /// Finds what is known now of what is used. What the control plane said of a name before it had read that this node
    /// uses it is no answer: it may be about an earlier use of the same name.
    pub(super) fn find_states(&mut self) {
        self.states.is_any_unreadable = self.refused.iter().any(|(kind, _)| *kind == Type::Service);
        let touched = match mem::take(&mut self.states.touched) {
            Touched::These(names) => names,
            Touched::All => {
                self.states.answers.clear();
                let kinds = [Type::Service, Type::Address].into_iter();
                let named = kinds.flat_map(|kind| {
                    let names = self.types[kind as usize].names();
                    names.map(move |name| (kind, name.clone()))
                });
                named.collect()
            }
        };
        for key in touched {
            let (kind, name) = &key;
            let dependency = match kind {
                Type::Service => ServiceName::parse(name).ok().map(Dependency::Service),
                _ => name.parse().ok().map(Dependency::Address),
            };
            let Some(dependency) = dependency else {
                continue;
            };
            match self.answer(&key) {
                Some(answer) => self.states.answers.insert(dependency, answer),
                None => self.states.answers.remove(&dependency),
            };
        }
    }

    /// What is said of a name; `None` if it is not used, or there is no answer yet.
    fn answer(&self, key: &(Type, Name)) -> Option<DependencyState> {
        let (kind, name) = key;
        let subscription = &self.types[*kind as usize];
        if !subscription.is_named(name) || self.unanswered.contains_key(key) {
            return None;
        }
        match subscription.held(name) {
            Some(Held::Version(_)) => Some(DependencyState::There),
            Some(Held::Absent) => Some(DependencyState::Absent),
            None => (self.refused.contains(key)).then_some(DependencyState::Unreadable),
        }
    }
}
