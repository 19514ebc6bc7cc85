//! How the requests of a Service are shared out among its endpoints, beside who is chosen.

use serde::{Deserialize, Serialize};

/// What a Service says about the load of its endpoints. The default changes nothing but that retries have a
/// budget.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Balancing {
    /// What requests are told apart by, with [`Balancer::RingHash`](crate::Balancer::RingHash).
    #[serde(default)]
    pub hash_on: HashOn,
    /// Where requests wait for which no endpoint has room.
    #[serde(default)]
    pub line: Line,
    /// When an endpoint that fails is left out for a while; `None` for never.
    #[serde(default)]
    pub ejection: Option<Ejection>,
    /// How many requests may be sent once more.
    #[serde(default)]
    pub retry_budget: RetryBudget,
    /// Over how long the share of an endpoint rises that is new or has been left out, in milliseconds, at
    /// most [`MAX_SLOW_START_MS`]; 0 for at once.
    #[serde(default)]
    pub slow_start_ms: u64,
}

/// Longest slow start, in milliseconds.
pub const MAX_SLOW_START_MS: u64 = 3_600_000;
/// Most requests that an endpoint may be said to take at once.
pub const MAX_ROOM: u32 = 1_000_000;

/// What requests are told apart by.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HashOn {
    /// The address that the client calls from.
    #[default]
    Source,
    /// The value of the first field with this name, in lower case. A request without one goes anywhere.
    Header(String),
}

/// A queue for requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// How many may wait on one node for one port, at most [`Line::MOST`]; 0 for none.
    pub max_waiting: u32,
    /// How long one waits, in milliseconds, from 1 to [`Line::LONGEST_MS`].
    pub max_wait_ms: u64,
}

impl Line {
    /// The longest queue.
    pub const MOST: u32 = 65_536;
    /// The longest wait, in milliseconds.
    pub const LONGEST_MS: u64 = 3_600_000;
}

impl Default for Line {
    fn default() -> Self {
        Line {
            max_waiting: 1_024,
            max_wait_ms: 5_000,
        }
    }
}

/// When an endpoint is left out, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ejection {
    /// Failures one after the other, at least 1.
    pub after: u32,
    /// What is a failure.
    pub on: Failing,
    /// How long it is left out the first time, in milliseconds, from 1 to [`Ejection::LONGEST_MS`]; each time
    /// in a row so much longer.
    pub base_ms: u64,
    /// How many of the endpoints may be left out at once, of a hundred, from 1 to 100; one always.
    pub max_percent: u8,
}

impl Ejection {
    /// The longest time for which an endpoint is left out, in milliseconds.
    pub const LONGEST_MS: u64 = 300_000;
    /// How long it is left out the first time unless it is said, in milliseconds.
    pub const BASE_MS: u64 = 30_000;
    /// How many of a hundred may be left out unless it is said.
    pub const MAX_PERCENT: u8 = 50;
}

/// What counts as a failure of an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failing {
    /// An answer of 500 and above, and no answer.
    #[default]
    ServerError,
    /// An answer of 502, 503 or 504, and no answer.
    GatewayFailure,
}

/// How many requests may be sent once more, beside a share of those that came within the last ten seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryBudget {
    /// Retries for a hundred requests, at most 100.
    pub percent: u8,
    /// Retries within a second of a node, whatever comes.
    pub min_per_second: u32,
}

impl RetryBudget {
    /// The highest minimum.
    pub const MOST_PER_SECOND: u32 = 100_000;
}

impl Default for RetryBudget {
    /// What the Gateway API takes for `retryConstraint` (GEP-3388).
    fn default() -> Self {
        RetryBudget {
            percent: 20,
            min_per_second: 10,
        }
    }
}
