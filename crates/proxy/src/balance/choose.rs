//! Chooses an endpoint by a [`Picker`].

use std::cell::Cell;
use std::cmp::Ordering;
use std::iter;

use super::{Random, Ring, Schedule};

/// The share of an endpoint that takes all of its turns, in parts of 65,536.
pub(crate) const FULL_SHARE: u32 = 1 << 16;
/// The cost of the first request of an idle endpoint, where costs are numbers of requests.
const IDLE: u64 = 1;
/// Turns that are drawn to find another endpoint than the first of two. One that has most of the turns may be both.
const LOOK_FOR_ANOTHER: usize = 4;
/// Following turns that are tried when the endpoint of a turn is not usable.
const LOOK_AROUND: u64 = 64;
/// Following points that are tried on a ring, where a light endpoint may come after many points of a heavy one.
const LOOK_ON_RING: usize = 256;
/// Endpoints that are tried one by one when all of those were to be avoided.
const LOOK_ONE_BY_ONE: usize = 512;
/// Most redraws for an endpoint whose share is still small.
const MAX_REDRAWS: usize = 8;

/// An endpoint's state at the moment of the choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    /// Cost of one more request there: the number of requests that there would be, or the time that it would take.
    pub(crate) cost: u64,
    /// The part of its turns that the endpoint takes, in parts of [`FULL_SHARE`].
    pub(crate) share: u32,
    /// Chosen only if no other can be: the endpoint failed recently, or was just tried.
    pub(crate) avoid: bool,
    /// Not to be chosen: the endpoint's request limit is reached.
    pub(crate) full: bool,
}

impl Load {
    /// An endpoint that does not exist.
    pub(crate) const NONE: Load = Load {
        cost: u64::MAX,
        share: FULL_SHARE,
        avoid: true,
        full: true,
    };

    fn is_usable(self) -> bool {
        !self.avoid && !self.full
    }
}

/// How an endpoint is chosen.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Picker<'a> {
    /// Round robin, with the number of this choice.
    Turn(u64),
    /// The one of two chosen at random that has fewer requests for its weight ("the power of two choices", Mitzenmacher
    /// 2001). The first if it is idle, so that weights are kept where there is little to do.
    LessBusy,
    /// The cheaper of two chosen at random, with the cost divided by the weight.
    Faster,
    /// The endpoint of a hash on the ring, and the ones after it.
    Ring(&'a Ring, u64),
}

/// The result of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The endpoint with this index in the schedule's weights.
    At(usize),
    /// All endpoints that could be chosen are full.
    Full,
    /// No endpoint exists, or none has any weight.
    NoEndpoint,
}

/// Chooses an endpoint, by its index in the schedule's weights.
///
/// `random` is a fresh random number. An endpoint to avoid is skipped while another one is found, and so is a full one.
/// If all are to be avoided, one of them that has room is chosen, because a try may succeed where refusing surely
/// fails. While none is full, a bounded search is enough: first the following turns or points, which keeps the weights,
/// then endpoint by endpoint, because all of those turns may belong to one heavy endpoint.
pub(crate) fn choose(
    picker: Picker<'_>,
    schedule: &Schedule,
    random: u64,
    load: impl Fn(usize) -> Load,
) -> Choice {
    let first = match picker {
        Picker::Turn(turn) => draw(schedule, turn, random, &load),
        Picker::LessBusy | Picker::Faster => cheaper(picker, schedule, random, &load),
        Picker::Ring(ring, hash) => ring.at(hash).map(|first| (first, load(first))),
    };
    let Some((first, first_load)) = first else {
        return Choice::NoEndpoint;
    };
    if first_load.is_usable() {
        return Choice::At(first);
    }
    let any_full = Cell::new(first_load.full);
    let is_usable = |candidate: &usize| {
        let load = load(*candidate);
        any_full.set(any_full.get() | load.full);
        load.is_usable()
    };
    let around = match picker {
        Picker::Ring(ring, hash) => {
            let mut around = ring.after(hash).take(LOOK_ON_RING);
            around.find(is_usable)
        }
        Picker::Turn(_) | Picker::LessBusy | Picker::Faster => {
            let start = match picker {
                Picker::Turn(turn) => turn,
                _ => random >> 32,
            };
            (1..=schedule.len().min(LOOK_AROUND))
                .filter_map(|step| schedule.turn(start.wrapping_add(step)))
                .find(is_usable)
        }
    };
    if let Some(found) = around {
        return Choice::At(found);
    }
    // Requests with the same hash reach the same endpoint by this search, too.
    let seed = match picker {
        Picker::Ring(_, hash) => hash,
        Picker::Turn(_) | Picker::LessBusy | Picker::Faster => random,
    };
    let found = (!any_full.get()).then(|| {
        let mut each = one_by_one(schedule, seed).take(LOOK_ONE_BY_ONE);
        each.find(is_usable)
    });
    match found.flatten() {
        Some(found) => Choice::At(found),
        None if any_full.get() => exactly(schedule, seed, &load),
        None => Choice::At(first),
    }
}

/// The cheaper of two endpoints that are drawn by their weights, with the cost divided by the weight.
fn cheaper(
    picker: Picker<'_>,
    schedule: &Schedule,
    random: u64,
    load: &impl Fn(usize) -> Load,
) -> Option<(usize, Load)> {
    let one_turn = random >> 32;
    let other_turn = other_turn(picker, schedule, one_turn, random);
    let (one, a) = draw(schedule, one_turn, random, load)?;
    let (other, b) = draw(schedule, other_turn, !random, load)?;
    let is_kept = matches!(picker, Picker::LessBusy) && a.cost <= IDLE;
    let a_cost = a.cost.saturating_mul(schedule.weight(other));
    let b_cost = b.cost.saturating_mul(schedule.weight(one));
    let is_better = match (b.full, b.avoid).cmp(&(a.full, a.avoid)) {
        Ordering::Less => true,
        Ordering::Equal => !is_kept && b_cost < a_cost,
        Ordering::Greater => false,
    };
    Some(if is_better { (other, b) } else { (one, a) })
}

/// The turn of the second of two. It is another endpoint's, which keeps a few endpoints level: the most expensive of them
/// is not chosen. With unequal weights the faster of two may be both, so that a light endpoint is not starved by one whose
/// cost for its weight is always lower.
fn other_turn(picker: Picker<'_>, schedule: &Schedule, one_turn: u64, random: u64) -> u64 {
    let drawn = random & u64::from(u32::MAX);
    if schedule.is_even() {
        let others = schedule.len().saturating_sub(1);
        return one_turn + 1 + drawn.checked_rem(others).unwrap_or(0);
    }
    if matches!(picker, Picker::Faster) {
        return drawn;
    }
    let mut dice = Random::new(random);
    let more = iter::repeat_with(|| dice.next() >> 32);
    let is_another = |turn: &u64| schedule.turn(*turn) != schedule.turn(one_turn);
    let mut drawn_turns = iter::once(drawn).chain(more).take(LOOK_FOR_ANOTHER);
    drawn_turns.find(is_another).unwrap_or(drawn)
}

/// The endpoint whose turn it is, or perhaps a random one if that takes only a part of its turns.
fn draw(
    schedule: &Schedule,
    turn: u64,
    random: u64,
    load: &impl Fn(usize) -> Load,
) -> Option<(usize, Load)> {
    let first = schedule.turn(turn)?;
    let first = (first, load(first));
    if first.1.share >= FULL_SHARE {
        return Some(first);
    }
    redraw(schedule, first, random, load)
}

fn redraw(
    schedule: &Schedule,
    mut drawn: (usize, Load),
    random: u64,
    load: &impl Fn(usize) -> Load,
) -> Option<(usize, Load)> {
    let mut dice = Random::new(random);
    for _ in 0..MAX_REDRAWS {
        if dice.below(u64::from(FULL_SHARE)) < u64::from(drawn.1.share) {
            break;
        }
        let next = schedule.turn(dice.next() >> 32)?;
        drawn = (next, load(next));
    }
    Some(drawn)
}

/// Every endpoint that has any weight, starting with a random one.
fn one_by_one(schedule: &Schedule, random: u64) -> impl Iterator<Item = usize> {
    let endpoints = schedule.endpoints();
    let start = Random::new(random).below(endpoints as u64);
    let start = usize::try_from(start).unwrap_or(0);
    let each = (start..endpoints).chain(0..start);
    each.filter(|&i| schedule.weight(i) > 0)
}

/// Checks every endpoint, so that no request waits while any endpoint has room.
fn exactly(schedule: &Schedule, random: u64, load: &impl Fn(usize) -> Load) -> Choice {
    let all = || one_by_one(schedule, random);
    if let Some(found) = all().find(|&i| load(i).is_usable()) {
        return Choice::At(found);
    }
    let is_last_resort = all().all(|i| load(i).avoid);
    let found = all().find(|&i| is_last_resort && !load(i).full);
    found.map_or(Choice::Full, Choice::At)
}

#[cfg(test)]
mod tests;
