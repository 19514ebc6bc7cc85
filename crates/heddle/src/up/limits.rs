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

/// The client connections that the descriptors suffice for, at most `wanted`: a third of them, since
/// a connection from a client may need one to an endpoint, and listeners and pools need some too.
pub(crate) fn client_connections(wanted: usize) -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let bound = fit(wanted, descriptors);
    if bound < wanted {
        tracing::info!(
            descriptors,
            "at most {bound} client connections instead of {wanted}: raise the limit of open files \
             (ulimit -n)"
        );
    }
    bound
}

fn fit(wanted: usize, descriptors: u64) -> usize {
    let third = usize::try_from(descriptors / 3).unwrap_or(usize::MAX);
    wanted.min(third.max(1))
}

#[cfg(test)]
mod tests {
    use super::fit;

    #[test]
    fn clients_get_a_third_of_the_descriptors_at_most() {
        assert_eq!(fit(8_192, 1 << 20), 8_192);
        assert_eq!(fit(8_192, 4_096), 1_365);
        assert_eq!(fit(100, 4_096), 100);
        assert_eq!(fit(100, 0), 1);
    }
}
