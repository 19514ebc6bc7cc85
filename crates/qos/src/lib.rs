//! Node QoS: latency-sensitive (online) pods stay fast beside batch (offline) work, by control groups of version 1 or 2.
//!
//! ```text
//!   pods, their classes and wishes          samples of the node and its groups
//!                 └────────► controllers ◄───────────────┘
//!                                 │ what each group should have
//!                                 ▼
//!                              arbiter ──► journal
//!                                 │
//!                                 ▼
//!                        cgroup: v1 or v2 files
//! ```
//!
//! The [`agent`] brings them together. [`controllers`] decide without I/O and without a clock. [`arbiter`] is the only
//! writer of control groups: it remembers what it found and puts it back. [`cgroup`] knows the names of the kernel's files.
//! [`kubelet`] reads which pods there are, [`network`] divides bandwidth, [`threads`] is about the proxy's own threads.
//! [`counts`] are for metrics, and [`remarks`] is what the agent has to say beside its changes. What is kept on the disk is
//! in the [`state`] folder.

pub mod agent;
pub mod arbiter;
pub mod cgroup;
pub mod controllers;
pub mod counts;
pub mod kubelet;
pub mod network;
pub mod now;
pub mod remarks;
pub mod state;
pub mod threads;
