//! What is known of what a node uses.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::net::IpAddr;

use heddle_model::{Dependency, DependencyState, ServiceName, Shared};

use super::NodeMesh;
use crate::delta::{Held, Name};
use crate::resources::Type;

/// What the control plane has said of each name, as of the last mark.
#[derive(Debug, Default)]
pub(super) struct States {
    /// Sorted by name, and shared with the meshes that have them.
    answers: Shared<Vec<(Dependency, DependencyState)>>,
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
    /// All answers, sorted by name.
    pub(super) fn all(&self) -> Shared<Vec<(Dependency, DependencyState)>> {
        self.answers.clone()
    }

    fn of(&self, dependency: &Dependency) -> Option<DependencyState> {
        let at = self
            .answers
            .binary_search_by(|(one, _)| one.cmp(dependency));
        at.ok().map(|at| self.answers[at].1)
    }

    /// Replaces these answers, in time for them and one copy of the list.
    fn set(&mut self, answers: &BTreeMap<Dependency, Option<DependencyState>>) {
        let mut rest = self.answers.as_slice();
        let mut now = Vec::with_capacity(rest.len() + answers.len());
        for (dependency, state) in answers {
            let at = rest.partition_point(|(one, _)| one < dependency);
            now.extend_from_slice(&rest[..at]);
            rest = &rest[at..];
            if let [(one, _), after @ ..] = rest
                && one == dependency
            {
                rest = after;
            }
            now.extend(state.map(|state| (dependency.clone(), state)));
        }
        now.extend_from_slice(rest);
        self.answers = now.into();
    }
}

impl NodeMesh {
    /// Something was said of a resource. It matters if the node has named it; what it names later has no answer then.
    pub(super) fn touch(&mut self, key: &(Type, Name)) {
        if self.types[key.0 as usize].is_named(&key.1) {
            self.states.touched.add(key);
        }
    }

    /// Something in the mesh has these addresses, or nothing has them any more.
    pub(super) fn touch_addresses(&mut self, addresses: BTreeSet<IpAddr>) {
        for address in addresses {
            self.touch(&(Type::Address, address.to_string().into()));
        }
    }

    /// What is known of something that is used, as of the last mark; `None` before the control plane has said it.
    pub fn state(&self, dependency: &Dependency) -> Option<DependencyState> {
        let key = (super::kind_of(dependency), super::name_of(dependency));
        let is_named = self.types[key.0 as usize].is_named(&key.1);
        let is_answered = is_named && !self.unanswered.contains_key(&key);
        is_answered.then(|| self.states.of(dependency))?
    }

    /// Finds what is known now of what is used, and returns what may be new of that. What the control plane said of a name
    /// before it had read that this node uses it is no answer: it may be about an earlier use of the same name.
    pub(super) fn find_states(&mut self) -> Vec<(Dependency, DependencyState)> {
        let is_any_unreadable = self.refused.iter().any(|(kind, _)| *kind == Type::Service);
        if mem::replace(&mut self.states.is_any_unreadable, is_any_unreadable) != is_any_unreadable
        {
            self.states.touched = Touched::All;
        }
        let touched = match mem::take(&mut self.states.touched) {
            Touched::These(names) => names,
            Touched::All => {
                self.states.answers = Shared::default();
                let kinds = [Type::Service, Type::Address].into_iter();
                let named = kinds.flat_map(|kind| {
                    let names = self.types[kind as usize].names();
                    names.map(move |name| (kind, name.clone()))
                });
                named.collect()
            }
        };
        let mut answers = BTreeMap::new();
        for key in touched {
            let (kind, name) = &key;
            let dependency = match kind {
                Type::Service => ServiceName::parse(name).ok().map(Dependency::Service),
                _ => name.parse().ok().map(Dependency::Address),
            };
            if let Some(dependency) = dependency {
                let answer = self.answer(&key);
                let answer = answer.map(|answer| self.as_known(&dependency, answer));
                answers.insert(dependency, answer);
            }
        }
        if !answers.is_empty() {
            self.states.set(&answers);
        }
        let answers = answers.into_iter();
        answers
            .filter_map(|(one, answer)| Some((one, answer?)))
            .collect()
    }

    /// An address that is no workload's may be a Service's: its cluster address, or that of an endpoint. It may
    /// belong to a Service that this node cannot read.
    fn as_known(&self, dependency: &Dependency, answer: DependencyState) -> DependencyState {
        match (dependency, answer) {
            (Dependency::Address(address), DependencyState::Absent) => {
                if self.joined.has_address(*address) {
                    DependencyState::There
                } else if self.states.is_any_unreadable {
                    DependencyState::Unreadable
                } else {
                    DependencyState::Absent
                }
            }
            _ => answer,
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
