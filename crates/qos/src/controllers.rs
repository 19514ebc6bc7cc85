//! What each group should have, decided without I/O and without a clock.

pub mod bandwidth;
pub mod burst;
pub mod eviction;
pub mod fssr;
pub mod latency;
pub mod turbo;
