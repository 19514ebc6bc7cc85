//! Bands: tasks that stay on the same Worker together, such as those of a link. None of them moves by itself, so their
//! run time is measured together.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::{Gate, TaskId, WorkKey};

/// Identifies a band of a gate, and is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Band(u64);

/// A task's band, and its part in that band.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BandMember {
    pub(crate) band: Band,
    pub(crate) part: Part,
}

/// The part of a task in its band.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// It does the work that all other members need.
    Driver,
    /// It serves short exchanges one after the other; the next one may be served on another Worker.
    Exchanges,
    /// It is long-lived, and stays on this Worker.
    Flow,
}

/// Recent run time of a caller's task, or of a whole band, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spent {
    /// A task that belongs to no band.
    Task(TaskId, u64),
    /// A band: its whole time, and the part for exchanges that may be served elsewhere next time.
    Band(Band, u64, u64),
}

/// Run time of a band, by the parts of its tasks.
#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    driver: u64,
    passing: u64,
    lasting: u64,
}

impl Sums {
    /// The driver's time is divided between exchanges (`passing`) and flows (`lasting`), in proportion to their own
    /// time.
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
    /// Creates a band without members.
    pub(crate) fn band(&self) -> Band {
        let band = Band(self.last_band.get() + 1);
        self.last_band.set(band.0);
        self.bands.borrow_mut().insert(band, 0);
        band
    }

    /// Removes a band. Its members may still be finishing their work.
    pub(crate) fn disband(&self, band: Band) {
        self.bands.borrow_mut().remove(&band);
    }

    /// Adds the run time of an ended task.
    pub(super) fn add_ended(&self, band: Band, spent_ns: u64) {
        if let Some(ended) = self.bands.borrow_mut().get_mut(&band) {
            *ended += spent_ns;
        }
    }

    /// Recent run time of callers' tasks. Called at most a few times a second.
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
