//! The registry in etcd: reading the registered providers, and registering one.
//!
//! ```text
//!   heddle register ──► etcd ──► Follower ──► Providers ──► heddle_compile::Watcher
//!   key with a lease             list, watch   what is there
//! ```
//!
//! A [`Follower`] reads the registry; a [`Registration`] is the other side, a provider that registers.
//! [`heddle_compile::registered`] decides which values a key may hold, and how they combine with a folder of manifests.
//!
//! `docs/registry.md` is the operators' page.

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
