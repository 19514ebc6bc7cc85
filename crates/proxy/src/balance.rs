//! Which endpoint gets a request. State machines without I/O: loads and random numbers are passed
//! in.

use heddle_model::Balancer;

/// Longest schedule; weights that would need a longer one are rounded.
const MAX_SCHEDULE: u64 = 4096;

/// The order in which endpoints take their turns: each as often as its weight says, spread evenly.
///
/// Built once for each configuration by smooth weighted round robin, so that a pick is an index
/// whatever the weights.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    turns: Box<[u16]>,
    /// Of each endpoint, in lowest terms.
    weights: Box<[u64]>,
}

impl Schedule {
    /// A schedule over endpoints with these weights. Beyond 65,536 endpoints the rest gets no turn.
    pub(crate) fn new(weights: &[u32]) -> Self {
        let weights = &weights[..weights.len().min(1 << 16)];
        let weights = reduced(weights);
        let total: u64 = weights.iter().sum();
        if weights.iter().all(|&weight| weight <= 1) {
            let turns = (0..=u16::MAX)
                .zip(&weights)
                .filter(|(_, w)| **w == 1)
                .map(|(i, _)| i);
            return Schedule {
                turns: turns.collect(),
                weights: weights.into(),
            };
        }
        let mut current = vec![0i128; weights.len()];
        let one_turn = |_| {
            for (current, &weight) in current.iter_mut().zip(&weights) {
                *current += i128::from(weight);
            }
            // The first of equals, so that the order is that of the endpoints.
            let best = (0..current.len())
                .rev()
                .max_by_key(|&i| current[i])
                .unwrap_or(0);
            current[best] -= i128::from(total);
            u16::try_from(best).unwrap_or(0)
        };
        Schedule {
            turns: (0..total).map(one_turn).collect(),
            weights: weights.into(),
        }
    }

    fn weight(&self, endpoint: usize) -> u64 {
        self.weights.get(endpoint).copied().unwrap_or(0)
    }

    fn turn(&self, number: u64) -> Option<usize> {
        let length = self.turns.len() as u64;
        let at = number.checked_rem(length)?;
        self.turns
            .get(usize::try_from(at).ok()?)
            .map(|&i| usize::from(i))
    }
}

/// Divides by the common divisor, then rounds until the sum fits [`MAX_SCHEDULE`] turns or every
/// weight is 1.
fn reduced(weights: &[u32]) -> Vec<u64> {
    fn gcd(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    let divisor = weights.iter().fold(0, |d, &w| gcd(d, u64::from(w))).max(1);
    let weights: Vec<u64> = weights.iter().map(|&w| u64::from(w) / divisor).collect();
    let total: u64 = weights.iter().sum();
    if total <= MAX_SCHEDULE || weights.iter().all(|&w| w <= 1) {
        return weights;
    }
    weights
        .iter()
        .map(|&w| {
            if w == 0 {
                0
            } else {
                (w * MAX_SCHEDULE / total).max(1)
            }
        })
        .collect()
}

/// How busy an endpoint is at the moment of the choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    /// Requests under way.
    pub(crate) active: u32,
    /// Not to be chosen while another can be: it failed recently, is full, or was just tried.
    pub(crate) avoid: bool,
}

/// Chooses an endpoint, by its index in the schedule's weights.
///
/// `turn` counts this cluster's choices; `random` is a fresh random number. An endpoint to avoid is
/// passed over while another is found within a bounded look around; when all are to be avoided the
/// choice falls on one of them, because a try may succeed where refusing surely fails.
///
/// Returns `None` only when there is no endpoint.
pub(crate) fn choose(
    balancer: Balancer,
    schedule: &Schedule,
    turn: u64,
    random: u64,
    load: impl Fn(usize) -> Load,
) -> Option<usize> {
    let first = match balancer {
        Balancer::RoundRobin => schedule.turn(turn)?,
        Balancer::LeastRequest => {
            // Two of the schedule's turns, of which a heavier endpoint has more; then the one
            // with fewer requests for its weight.
            let one = schedule.turn(random >> 32)?;
            let other = schedule.turn(random & u64::from(u32::MAX))?;
            let (a, b) = (load(one), load(other));
            let a_cost = (u64::from(a.active) + 1).saturating_mul(schedule.weight(other));
            let b_cost = (u64::from(b.active) + 1).saturating_mul(schedule.weight(one));
            if (b.avoid, b_cost) < (a.avoid, a_cost) {
                other
            } else {
                one
            }
        }
    };
    if !load(first).avoid {
        return Some(first);
    }
    let start = match balancer {
        Balancer::RoundRobin => turn,
        Balancer::LeastRequest => random >> 32,
    };
    let around = (1..=schedule.turns.len().min(64) as u64)
        .filter_map(|step| schedule.turn(start.wrapping_add(step)))
        .find(|&candidate| !load(candidate).avoid);
    Some(around.unwrap_or(first))
}

/// A small random generator (xorshift64*, Vigna 2016): good enough to spread load, and its seed is
/// passed in.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound` (0 for a bound of 0), with a bias that no weight can notice.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
