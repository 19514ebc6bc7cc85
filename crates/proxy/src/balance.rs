//! Which endpoint gets a request, and when. State machines without I/O: loads, time and random numbers are
//! passed in.
//!
//! | module | decides |
//! |---|---|
//! | [`choose`] | which endpoint: by turns, by how busy two are, by their latency, by a hash |
//! | [`schedule`] | whose turn it is, by weight |
//! | [`ewma`] | how long an endpoint takes, peaks first |
//! | [`ring`] | where on the ring a request belongs |
//! | [`slow_start`] | what share an endpoint gets that is new or was left out |
//! | [`outlier`] | when an endpoint that fails is left out, and for how long |
//! | [`queue`] | which requests wait for a place, and whose turn it is when there is one |
//! | [`budget`] | whether a request may be sent once more |
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
