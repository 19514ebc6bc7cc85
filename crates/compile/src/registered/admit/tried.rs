//! Finds the providers that fit, by trial compilations, and remembers the result for the next round.
//!
//! ```text
//!   in the order in which their keys came to be        48 trials
//!     │ what is left untried
//!     ├─ those that were let in last time              the other 16
//!     │
//!   those that did not fit before                      what is left of all
//! ```
//!
//! A provider that did not fit before is tried last, even if it has changed: it uses up the trials of the others once,
//! and not at every change. While trials do not suffice for all, the providers admitted before stay.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use heddle_model::report::{Cause, Origin, Problem};

use super::Candidate;
use crate::manifest::Object;
use crate::registered::value::told;
use crate::registered::{Entry, ProviderKey, warning};

/// Limit of trial compilations in one round. Providers still untried then are left out.
pub(super) const MAX_TRIALS: usize = 64;
/// Trials reserved for providers with a known result: isolating one provider of 10,000 takes 28 trials.
const RESERVED: usize = 16;

/// The results of trials up to now.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    /// The providers that the last round admitted.
    fit: BTreeMap<ProviderKey, Arc<Entry>>,
    /// The providers that did not fit when they were last tried.
    unfit: BTreeMap<ProviderKey, Unfit>,
    rounds: u64,
    is_unfinished: bool,
}

#[derive(Debug)]
struct Unfit {
    /// The entry that was tried.
    entry: Arc<Entry>,
    problem: Problem,
    /// The round in which it was tried.
    round: u64,
}

/// The result of one round.
#[derive(Default)]
pub(crate) struct Admitted {
    /// The providers that compile without an error.
    pub(crate) objects: Vec<Object>,
    /// Why the others are left out.
    pub(crate) problems: Vec<Problem>,
}

impl Tried {
    /// Whether a provider is left out whose current entry was not tried: another round gets further, even without a
    /// change.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.is_unfinished
    }

    /// Whether a provider is left out because of what it does to others.
    pub(crate) fn has_unfit(&self) -> bool {
        !self.unfit.is_empty()
    }

    /// Records that every provider compiled without an error.
    pub(crate) fn all_fit(&mut self, entries: Vec<Arc<Entry>>) {
        self.fit = by_key(entries);
        self.unfit.clear();
        self.is_unfinished = false;
    }

    /// Admits the providers with which the mesh has no error, in the given order. `trial` compiles these objects beside
    /// the folder's, and returns them with the first error, if any. Without providers the folder has no error.
    pub(crate) fn admit(
        &mut self,
        candidates: Vec<Candidate>,
        trial: impl FnMut(Vec<Object>) -> (Vec<Object>, Option<Problem>),
    ) -> Admitted {
        self.rounds += 1;
        let mut trials = Trials {
            left: MAX_TRIALS - RESERVED,
            admitted: Vec::new(),
            fit: Vec::new(),
            unfit: Vec::new(),
            trial,
        };
        let (mut again, others): (Vec<_>, Vec<_>) = candidates
            .into_iter()
            .partition(|one| self.unfit.contains_key(&one.entry.key));
        let untried = trials.halve(others);
        trials.left += RESERVED;
        let (before, mut untried): (Vec<_>, Vec<_>) = untried
            .into_iter()
            .partition(|one| self.fit.get(&one.entry.key) == Some(&one.entry));
        untried.extend(trials.halve(before));
        // Changed providers first, then the one whose trial is longest ago.
        again.sort_by_cached_key(|one| {
            let before = self.unfit.get(&one.entry.key);
            let has_changed = before.is_none_or(|before| before.entry != one.entry);
            (Reverse(has_changed), before.map(|before| before.round))
        });
        untried.extend(trials.halve(again));
        let Trials {
            admitted,
            fit,
            unfit,
            ..
        } = trials;
        self.fit = by_key(fit);
        Admitted {
            objects: admitted,
            problems: self.keep(unfit, untried),
        }
    }

    /// Remembers the providers that do not fit; returns why each is left out.
    fn keep(&mut self, unfit: Vec<(Arc<Entry>, Problem)>, untried: Vec<Candidate>) -> Vec<Problem> {
        let mut before = std::mem::take(&mut self.unfit);
        let mut problems = Vec::new();
        self.is_unfinished = false;
        for (entry, problem) in unfit {
            problems.push(problem.clone());
            let round = self.rounds;
            let key = entry.key.clone();
            self.unfit.insert(
                key,
                Unfit {
                    entry,
                    problem,
                    round,
                },
            );
        }
        for Candidate { entry, .. } in untried {
            let known = before.remove_entry(&entry.key);
            match &known {
                Some((_, known)) if known.entry == entry => problems.push(known.problem.clone()),
                _ => {
                    self.is_unfinished = true;
                    let reason = "too many others in the registry do not fit".to_owned();
                    let remedy = "correct or remove those first";
                    let problem = warning(&entry.origin, "", reason, remedy);
                    problems.push(problem.because(Cause::Untried));
                }
            }
            self.unfit.extend(known);
        }
        problems
    }
}

fn by_key(entries: Vec<Arc<Entry>>) -> BTreeMap<ProviderKey, Arc<Entry>> {
    let entries = entries.into_iter();
    entries.map(|entry| (entry.key.clone(), entry)).collect()
}

/// The trials of one round.
struct Trials<T> {
    left: usize,
    /// The objects admitted so far, and their entries.
    admitted: Vec<Object>,
    fit: Vec<Arc<Entry>>,
    unfit: Vec<(Arc<Entry>, Problem)>,
    trial: T,
}

impl<T: FnMut(Vec<Object>) -> (Vec<Object>, Option<Problem>)> Trials<T> {
    /// Admits the candidates that fit, by bisection. Returns those for which no trials were left.
    fn halve(&mut self, candidates: Vec<Candidate>) -> Vec<Candidate> {
        let mut untried = Vec::new();
        let mut waiting = vec![candidates];
        while let Some(mut some) = waiting.pop() {
            if self.left == 0 || some.is_empty() {
                untried.append(&mut some);
                continue;
            }
            let Some((mut some, error)) = self.refused(some) else {
                continue;
            };
            if some.len() > 1 {
                let second = some.split_off(some.len() / 2);
                // The stack's top, the first half, is tried first.
                waiting.push(second);
                waiting.push(some);
            } else if let Some(Candidate { entry, .. }) = some.pop() {
                let problem = not_fitting(&entry.origin, error);
                self.unfit.push((entry, problem));
            }
        }
        untried
    }

    /// Admits these, unless they cause an error: then returns them with it.
    fn refused(&mut self, some: Vec<Candidate>) -> Option<(Vec<Candidate>, Problem)> {
        self.left -= 1;
        let before = self.admitted.len();
        let mut together = std::mem::take(&mut self.admitted);
        let mut entries = Vec::new();
        for Candidate { entry, object } in some {
            entries.push(entry);
            together.push(object);
        }
        let (mut together, error) = (self.trial)(together);
        let Some(error) = error else {
            self.admitted = together;
            self.fit.append(&mut entries);
            return None;
        };
        let objects = together.split_off(before);
        self.admitted = together;
        let some = entries.into_iter().zip(objects);
        let some = some.map(|(entry, object)| Candidate { entry, object });
        Some((some.collect(), error))
    }
}

/// The problem of one provider. An error found in one of the folder's objects names that object, too.
fn not_fitting(origin: &Origin, error: Problem) -> Problem {
    if error.origin == *origin {
        return told(origin, error).because(Cause::Unfit);
    }
    let object = error.object.unwrap_or_else(|| "the folder".to_owned());
    let reason = format!("with it {object} would be refused: {}", error.reason);
    warning(origin, "", reason, "change either").because(Cause::Unfit)
}
