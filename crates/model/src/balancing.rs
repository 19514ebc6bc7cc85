//! Load balancing of a Service's requests among its endpoints, apart from the choice of the endpoint.

use serde::{Deserialize, Serialize};

/// The load-balancing settings of a Service. The default sets only limits of the queue and of retries.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Balancing {
    /// The hash key of requests, for [`Balancer::RingHash`](crate::Balancer::RingHash).
    #[serde(default)]
    pub hash_on: HashOn,
    /// The queue for requests while no endpoint has room.
    #[serde(default)]
    pub line: Line,
    /// When a failing endpoint is ejected for a time; `None` for never.
    #[serde(default)]
    pub ejection: Option<Ejection>,
    /// The limit of retries.
    #[serde(default)]
    pub retry_budget: RetryBudget,
    /// How long the share of an endpoint rises after it is new or was ejected, in milliseconds, at most
    /// [`MAX_SLOW_START_MS`]; 0 for its full share at once.
    #[serde(default)]
    pub slow_start_ms: u64,
}

/// Longest slow start, in milliseconds.
pub const MAX_SLOW_START_MS: u64 = 3_600_000;
/// Largest limit of concurrent requests that an endpoint may have.
pub const MAX_ROOM: u32 = 1_000_000;

/// The hash key of requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HashOn {
    /// The client's IP address.
    #[default]
    Source,
    /// The value of the first header with this name (lower case). A request without one goes to any endpoint.
    Header(String),
}

/// The queue for requests while no endpoint has room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Limit of queued requests, for one port on one node, at most [`Line::MOST`]; 0 for no queue.
    pub max_waiting: u32,
    /// Longest time in the queue, in milliseconds, from 1 to [`Line::LONGEST_MS`].
    pub max_wait_ms: u64,
}

impl Line {
    /// The largest `max_waiting`.
    pub const MOST: u32 = 65_536;
    /// The largest `max_wait_ms`, in milliseconds.
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

/// When an endpoint is ejected, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ejection {
    /// Consecutive failures before ejection, at least 1.
    pub after: u32,
    /// Which answers count as failures.
    pub on: Failing,
    /// Duration of the first ejection, in milliseconds, from 1 to [`Ejection::LONGEST_MS`]; each consecutive ejection
    /// lasts this much longer.
    pub base_ms: u64,
    /// Limit of endpoints ejected at once, in percent, from 1 to 100; one may always be ejected.
    pub max_percent: u8,
}

impl Ejection {
    /// The longest ejection, in milliseconds.
    pub const LONGEST_MS: u64 = 300_000;
    /// The default of `base_ms`, in milliseconds.
    pub const BASE_MS: u64 = 30_000;
    /// The default of `max_percent`.
    pub const MAX_PERCENT: u8 = 50;
}

/// Which answers of an endpoint count as failures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failing {
    /// A status of 500 and above, or no answer.
    #[default]
    ServerError,
    /// A status of 502, 503 or 504, or no answer.
    GatewayFailure,
}

/// The limit of retries: a share of the requests of the last ten seconds, and a minimum beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryBudget {
    /// Retries per hundred requests, at most 100.
    pub percent: u8,
    /// Retries per second that a node may always make.
    pub min_per_second: u32,
}

impl RetryBudget {
    /// The largest `min_per_second`.
    pub const MOST_PER_SECOND: u32 = 100_000;
}

impl Default for RetryBudget {
    /// The Gateway API's default of `retryConstraint` (GEP-3388).
    fn default() -> Self {
        RetryBudget {
            percent: 20,
            min_per_second: 10,
        }
    }
}
