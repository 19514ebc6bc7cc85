//! Chooses the part of a busy Worker's work that moves to another one: a decision without tasks, links or clock.
//!
//! A connection is moved. A link from another node is not: its caller is asked to open another link, which comes to the
//! Worker that is least loaded then, and to begin new streams on that one.
//!
//! ```text
//!   share of the work ─┬─ connections and links that fit, the busiest first
//!                      └─ less than half was found: the busiest link that does not fit is divided in two
//! ```
//!
//! **No link goes back and forth.** A link whose caller was asked a moment ago counts as gone, so that it is not asked
//! twice. A new link is left alone. A link that does all the work is never moved, since it would do all the work there,
//! but it is divided, if its caller keeps two. A link that does hardly any work in comparison is not worth a handshake.

use heddle_wire::link::Another;

/// Most connections that one choice moves.
const MAX_MOVED: usize = 64;
/// Most links whose callers one choice asks: each may cost a handshake.
pub(crate) const MAX_ASKED: usize = 32;
/// The part by which a link may exceed the wanted amount: loads are not measured more exactly.
const TOLERANCE: f64 = 0.1;
/// An item with less than one part in this many of the busiest item's work is ignored.
const LEAST: u64 = 64;
/// A link is divided if its half is at most this many times the amount that is left to give: the two Workers are then
/// closer than before.
const HALF_AT_MOST: f64 = 1.8;
/// The share from which two Workers are far apart: one has a third more work than the other.
const FAR: f64 = 0.125;
/// The limit for a half if the Workers are far apart. The other Worker may then have more work, and one of its links is
/// divided later: without that, two callers of which one does twice as much as the other would never be balanced.
const HALF_AT_MOST_WHEN_FAR: f64 = 4.0;

/// Something that a Worker carries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item<T> {
    pub(crate) who: T,
    /// Recent run time spent on it, in nanoseconds.
    pub(crate) all_ns: u64,
    /// The part of that time that would move with it.
    pub(crate) goes_ns: u64,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Connection,
    Link(Standing),
}

/// Whether a link's caller can be asked for another link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The caller can be asked.
    Ready {
        /// The caller can keep two links if it is asked to.
        keeps_two: bool,
    },
    /// The caller was asked a moment ago.
    Asked(Another),
    /// The link is new, its caller was asked without success, or it is ending anyway.
    Resting,
}

/// What is done with a chosen item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Moves,
    /// Its caller is asked for another link.
    Asked(Another),
}

/// Chooses items that together make up at most about `share` of the work.
pub(crate) fn choose<T: Copy>(items: &[Item<T>], share: f64) -> Vec<(T, Fate)> {
    let all: u64 = items.iter().map(|item| item.all_ns).sum();
    let going: u64 = items.iter().map(Item::going_ns).sum();
    let wanted = all as f64 * share - going as f64;
    if wanted <= 0.0 {
        return Vec::new();
    }
    let mut left = wanted;
    let (mut moved, mut asked) = (0, 0);
    let mut chosen = Vec::new();
    let most = items.iter().map(|item| item.goes_ns).max().unwrap_or(0);
    let matters = |item: &&Item<T>| item.goes_ns > most / LEAST;
    let mut by_size: Vec<&Item<T>> = items.iter().filter(matters).collect();
    by_size.sort_unstable_by_key(|item| std::cmp::Reverse(item.goes_ns));
    for item in &by_size {
        let goes = item.goes_ns as f64;
        let fate = match item.kind {
            Kind::Connection if goes <= left && moved < MAX_MOVED => {
                moved += 1;
                Fate::Moves
            }
            Kind::Link(Standing::Ready { .. })
                if goes <= left * (1.0 + TOLERANCE) && asked < MAX_ASKED =>
            {
                asked += 1;
                Fate::Asked(Another::Instead)
            }
            _ => continue,
        };
        chosen.push((item.who, fate));
        left -= goes;
    }
    if left > wanted / 2.0 {
        let half_at_most = match share >= FAR {
            true => HALF_AT_MOST_WHEN_FAR,
            false => HALF_AT_MOST,
        };
        let divided = by_size.iter().find(|item| {
            let half = item.goes_ns as f64 / 2.0;
            let too_large = item.goes_ns as f64 > left * (1.0 + TOLERANCE);
            item.keeps_two() && too_large && half <= left * half_at_most
        });
        chosen.extend(divided.map(|item| (item.who, Fate::Asked(Another::Beside))));
    }
    chosen
}

impl<T> Item<T> {
    /// The part of its work that is already moving elsewhere.
    fn going_ns(&self) -> u64 {
        match self.kind {
            Kind::Link(Standing::Asked(Another::Instead)) => self.goes_ns,
            Kind::Link(Standing::Asked(Another::Beside)) => self.goes_ns / 2,
            _ => 0,
        }
    }

    fn keeps_two(&self) -> bool {
        matches!(self.kind, Kind::Link(Standing::Ready { keeps_two: true }))
    }
}

#[cfg(test)]
mod tests;
