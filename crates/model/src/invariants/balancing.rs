//! Invariants of load balancing.

use super::ensure;
use super::text::is_token;
use crate::{Balancing, Ejection, HashOn, Line, MAX_ROOM, MAX_SLOW_START_MS, RetryBudget};

pub(super) fn check(balancing: &Balancing) -> Result<(), String> {
    if let HashOn::Header(name) = &balancing.hash_on {
        let is_lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
        ensure(is_token(name) && is_lower, "the header to hash on")?;
    }
    let line = &balancing.line;
    ensure(
        line.max_waiting <= Line::MOST && (1..=Line::LONGEST_MS).contains(&line.max_wait_ms),
        "its queue",
    )?;
    if let Some(ejection) = &balancing.ejection {
        ensure(
            ejection.after > 0
                && (1..=Ejection::LONGEST_MS).contains(&ejection.base_ms)
                && (1..=100).contains(&ejection.max_percent),
            "when its endpoints are left out",
        )?;
    }
    let budget = &balancing.retry_budget;
    ensure(
        budget.percent <= 100 && budget.min_per_second <= RetryBudget::MOST_PER_SECOND,
        "its retry budget",
    )?;
    ensure(
        balancing.slow_start_ms <= MAX_SLOW_START_MS,
        "its slow start",
    )
}

/// Checks an endpoint's limit of concurrent requests.
pub(super) fn check_room(requests: Option<u32>) -> Result<(), String> {
    let holds = requests.is_none_or(|requests| (1..=MAX_ROOM).contains(&requests));
    ensure(holds, "its limit of requests is out of range")
}
