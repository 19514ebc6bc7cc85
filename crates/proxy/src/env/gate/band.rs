//! Bands: tasks that stay together, as those of a link do. None of them goes anywhere by itself, so that what they
//! have spent is looked at as a whole.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::{Gate, TaskId, WorkKey};

/// Which band of a gate: no other one ever has the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Band(u64);

/// What a task is in its band.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BandMember {
    pub(crate) band: Band,
    pub(crate) part: Part,
}

/// The parts there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// It does what all the others need.
    Driver,
    /// It serves one short thing after the other, the next of which may be served elsewhere.
    Exchanges,
    /// It lasts, and stays where it is.
    Flow,
}

/// What was spent lately by a caller's task, or by all of a band, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spent {
    /// By a task of no band.
    Task(TaskId, u64),
    /// By a band: in all, and on what may be done elsewhere next time.
    Band(Band, u64, u64),
}

/// A band's sums.
#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    driver: u64,
    passing: u64,
    lasting: u64,
}

impl Sums {
    /// The driver has worked for what passes and for what lasts, in proportion.
    fn spent(self, band: Band) -> Spent {
        let Sums {
            driver,
            passing,
            lasting,
        } = self;
        let served = passing + lasting;
        let for_passing = match served {
            0 => driver,
            _ => (u128::from(driver) * u128::from(passing) / u128::from(served)) as u64,
        };
        Spent::Band(band, driver + served, passing + for_passing)
    }
}

impl Gate {
    /// A band that has no members yet.
    pub(crate) fn band(&self) -> Band {
        let band = Band(self.last_band.get() + 1);
        self.last_band.set(band.0);
        self.bands.borrow_mut().insert(band, 0);
        band
    }

    /// Forgets a band, whose members may still have something to finish.
    pub(crate) fn disband(&self, band: Band) {
        self.bands.borrow_mut().remove(&band);
    }

    /// Counts what a task had spent that has ended.
    pub(super) fn add_ended(&self, band: Band, spent_ns: u64) {
        if let Some(ended) = self.bands.borrow_mut().get_mut(&band) {
            *ended += spent_ns;
        }
    }

    /// What was spent lately on accounts of callers. Looked at a few times a second at most.
    pub(crate) fn spent(&self) -> Vec<Spent> {
        let tasks = self.tasks.borrow();
        let ended = self.bands.borrow();
        let ended = ended.iter().map(|(band, passing)| {
            let passing = *passing;
            let sums = Sums {
                passing,
                ..Sums::default()
            };
            (*band, sums)
        });
        let mut bands: HashMap<Band, Sums, RandomState> = ended.collect();
        let mut all = Vec::new();
        for (_, task) in tasks.iter() {
            let spent = task.recent_ns + task.spent_ns;
            if task.signal.work.key == WorkKey::OWN || spent == 0 {
                continue;
            }
            let Some(member) = task.member else {
                all.push(Spent::Task(task.id(), spent));
                continue;
            };
            let Some(sums) = bands.get_mut(&member.band) else {
                continue;
            };
            match member.part {
                Part::Driver => sums.driver += spent,
                Part::Exchanges => sums.passing += spent,
                Part::Flow => sums.lasting += spent,
            }
        }
        all.extend(bands.into_iter().map(|(band, sums)| sums.spent(band)));
        all
    }
}
