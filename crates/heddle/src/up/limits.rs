//! How many descriptors the process may have.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

static ORIGINAL: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of open descriptors to the hard one: listeners and connections are
/// bounded by settings, not by a default of 1,024 that stands for `select(2)`.
pub(crate) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if setrlimit(Resource::Nofile, raised).is_ok() {
        // A second call keeps what the first one saw.
        let _kept = ORIGINAL.set(limit);
    }
}

/// The limit as it was, for the processes that we start.
pub(crate) fn original() -> Option<Rlimit> {
    ORIGINAL.get().copied()
}
