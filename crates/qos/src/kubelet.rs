//! The pods of a kubelet: what it says of them, and where their control groups are.
//!
//! ```text
//!   folders of the tree ──► Tree ──────┐
//!                                      ├──► Follower ──► when to ask again; pods for the agent
//!   the kubelet's answer ──► pods_of ──┘
//! ```
//!
//! No I/O and no clock. Its owner lists folders, asks the kubelet and passes the time.

mod answer;
mod follow;
mod group;
mod quantity;
mod resize;
mod tree;

pub use answer::{Answer, AnswerError, KubeletPod, MAX_PODS, pods_of};
pub use follow::{Follower, LOOK};
pub use group::{Driver, Layout, PodGroup, PodQos, Uid};
pub use resize::PATIENCE;
pub use tree::Tree;
