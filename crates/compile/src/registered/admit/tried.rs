//! Who fits, found by trying, and remembered from one time to the next.
//!
//! ```text
//!   in the order in which their keys came to be        48 trials
//!     │ what is left untried
//!     ├─ those that were let in last time              the other 16
//!     │
//!   those that did not fit before                      what is left of all
//! ```
//!
//! A provider that did not fit before is tried last, whatever it has become: so it uses up the trials of the others
//! once, and not with every change. And while so many do not fit that not all can be tried, those that were let in
//! before stay.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use heddle_model::report::{Cause, Origin, Problem};

use super::Candidate;
use crate::manifest::Object;
use crate::registered::value::told;
use crate::registered::{Entry, ProviderKey, warning};

/// How often the mesh is compiled to find providers that do not fit. Beyond, those not yet tried are left out.
pub(super) const MAX_TRIALS: usize = 64;
/// How many of the trials are not for those that nothing is known of: isolating one provider of 10,000 takes 28.
const RESERVED: usize = 16;

/// What came of trying providers so far.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    /// Who was let in last.
    fit: BTreeMap<ProviderKey, Arc<Entry>>,
    /// Who did not fit when it was tried last.
    unfit: BTreeMap<ProviderKey, Unfit>,
    rounds: u64,
    is_unfinished: bool,
}

#[derive(Debug)]
struct Unfit {
    /// What it was then.
    entry: Arc<Entry>,
    problem: Problem,
    /// When that was.
    round: u64,
}

/// What came of trying providers.
#[derive(Default)]
pub(crate) struct Admitted {
    /// Those with which there is no error.
    pub(crate) objects: Vec<Object>,
    /// Why others are left out.
    pub(crate) problems: Vec<Problem>,
}

impl Tried {
    /// Whether some are left out that were not tried as they are now: the next time, even with nothing changed, gets
    /// further.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.is_unfinished
    }

    /// There is no error with all of them.
    pub(crate) fn all_fit(&mut self, entries: Vec<Arc<Entry>>) {
        self.fit = by_key(entries);
        self.unfit.clear();
        self.is_unfinished = false;
    }

    /// Takes the providers with which the mesh has no error, those first that come first. `trial` compiles with
    /// these beside the folder's, and hands them back with the first error that there is. Without any there is none.
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
        // Those that have become another first, and then in turn.
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

    /// Remembers who does not fit; says why each is left out.
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
                    let reason = "too much else in the registry does not fit".to_owned();
                    let remedy = "mend or remove that first";
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

/// One time of trying.
struct Trials<T> {
    left: usize,
    /// What has been let in so far, and whose it is.
    admitted: Vec<Object>,
    fit: Vec<Arc<Entry>>,
    unfit: Vec<(Arc<Entry>, Problem)>,
    trial: T,
}

impl<T: FnMut(Vec<Object>) -> (Vec<Object>, Option<Problem>)> Trials<T> {
    /// Lets in the candidates that fit. Hands back those for which no trials were left.
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
                // The first half is tried first.
                waiting.push(second);
                waiting.push(some);
            } else if let Some(Candidate { entry, .. }) = some.pop() {
                let problem = not_fitting(&entry.origin, error);
                self.unfit.push((entry, problem));
            }
        }
        untried
    }

    /// Lets these in, unless there is an error with them: then they are handed back with it.
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

/// The error that one provider brings. Where it is found in a file, it is that object which would not stand it.
fn not_fitting(origin: &Origin, error: Problem) -> Problem {
    if error.origin == *origin {
        return told(origin, error).because(Cause::Unfit);
    }
    let object = error.object.unwrap_or_else(|| "the folder".to_owned());
    let reason = format!("with it {object} would be refused: {}", error.reason);
    warning(origin, "", reason, "change either").because(Cause::Unfit)
}
