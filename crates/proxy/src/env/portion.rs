//! What of a busy Worker's work goes to another one: a decision without tasks, links or clock.
//!
//! A connection moves as it is. A link from another node stays where it is; its caller is asked to open another, which
//! comes to the Worker that is least loaded then, and begins what is next on that one.
//!
//! ```text
//!   share of the work ─┬─ connections and links that fit, the busiest first
//!                      └─ less than half was found: the busiest link that does not fit is divided in two
//! ```
//!
//! **No link goes back and forth.** What was asked for a moment ago counts as gone, so that it is not asked for twice; a
//! link that has just come is left alone; one that does all the work is never moved, since it would do all the work
//! there, but divided, if its caller keeps two. And none is worth a handshake that does hardly anything beside others.

use heddle_wire::link::Another;

/// Most connections that move at a time.
const MAX_MOVED: usize = 64;
/// Most links whose callers are asked at a time: each may cost a handshake.
pub(crate) const MAX_ASKED: usize = 32;
/// How much more than was asked for a link may carry, as a part of it: loads are not measured more exactly.
const TOLERANCE: f64 = 0.1;
/// What does less than this part of what the busiest does makes no difference.
const LEAST: u64 = 64;
/// The half of a link goes if that is at most so much of what is left to give: the two Workers are closer
/// afterwards.
const HALF_AT_MOST: f64 = 1.8;
/// A share from which the two are far apart: a third more work for the one than for the other.
const FAR: f64 = 0.125;
/// Then so much may go. It may be the other Worker that has more afterwards, and a link of its own is divided then:
/// without that, two callers of which one does twice as much as the other would stay as they are.
const HALF_AT_MOST_WHEN_FAR: f64 = 4.0;

/// Something that a Worker carries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item<T> {
    pub(crate) who: T,
    /// What was spent on it lately.
    pub(crate) all_ns: u64,
    /// Of that, what would go along.
    pub(crate) goes_ns: u64,
    pub(crate) kind: Kind,
}

/// What it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Connection,
    Link(Standing),
}

/// Whether a link's caller is asked for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It may be.
    Ready {
        /// It keeps two if it is asked to.
        keeps_two: bool,
    },
    /// It was a moment ago.
    Asked(Another),
    /// The link has just come, or was asked for in vain, or ends anyway.
    Resting,
}

/// What becomes of an item that was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Moves,
    /// Its caller is asked.
    Asked(Another),
}

/// What makes up at most about `share` of the work.
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
    /// What of it is on its way elsewhere.
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
