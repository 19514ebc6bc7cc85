//! The registry in etcd: who has registered there, and registering.
//!
//! ```text
//!   heddle register ──► etcd ──► Follower ──► Providers ──► heddle_compile::Watcher
//!   key with a lease             list, watch   what is there
//! ```
//!
//! A [`Follower`] says what is in it, a [`Registration`] is the other side: a provider that registers. What may stand
//! under a key, and what comes of it beside a folder of manifests, is for [`heddle_compile::registered`].
//!
//! `docs/registry.md` is the page for operators.

mod access;
mod core;
mod follow;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod keep;
mod life;
mod pause;
mod write;

pub use access::{Access, AccessError, Credentials, Tls};
pub use follow::{Follower, Seen};
pub use keep::{Kept, Registration};
pub use life::{MAX_TTL, MIN_TTL, News};
pub use write::Provider;
