//! The link protocol: what two node proxies say to each other over one TLS connection at a time.
//!
//! * [`heads`]: HTTP heads as templates with slots, so that a request that differs from the one
//!   before it in three values costs little more than those three values.

pub mod heads;
