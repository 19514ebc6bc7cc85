//! Decides which endpoint gets a request, and when. State machines without I/O: the caller passes in loads, time and
//! random numbers.
//!
//! | module | decides |
//! |---|---|
//! | [`choose`] | the endpoint: round robin, least requests of two, lowest latency of two, or hash |
//! | [`schedule`] | the round-robin order, by weight |
//! | [`ewma`] | an endpoint's latency, in which a peak counts at once |
//! | [`ring`] | the endpoint of a hash, on a consistent-hash ring |
//! | [`slow_start`] | the share of a new or returning endpoint |
//! | [`outlier`] | when a failing endpoint is ejected, and for how long |
//! | [`queue`] | which requests wait for a free place, and which of them gets it |
//! | [`budget`] | whether a request may be retried |
//!
//! ```text
//!              waits in a queue                       none is left: refused
//!                ▲         │ a place is free                ▲
//!           full │         ▼                                │
//!   request ──▶ choose ──▶ endpoint ── fails ──▶ budget ────┘
//!                 ▲  passes over:    │              │ a retry is left
//!                 │  shut, ejected   ▼              │
//!                 │               outlier           │
//!                 └─────────────────────────────────┘
//! ```

mod budget;
mod choose;
mod ewma;
mod outlier;
mod queue;
mod random;
mod ring;
mod schedule;
mod slow_start;

#[cfg(test)]
mod simulation;

pub(crate) use budget::Budget;
pub(crate) use choose::{Choice, FULL_SHARE, Load, Picker, choose};
pub(crate) use ewma::{Ewma, cost};
pub(crate) use outlier::Outlier;
pub(crate) use queue::{Queue, Ticket};
pub(crate) use random::Random;
pub(crate) use ring::{Ring, hash};
pub(crate) use schedule::Schedule;
pub(crate) use slow_start::share;
