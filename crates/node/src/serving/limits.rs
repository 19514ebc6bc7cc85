//! Limit of open file descriptors, and how it is shared out.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

static ORIGINAL: OnceLock<Rlimit> = OnceLock::new();

/// Descriptors that are reserved for everything except listeners, Workers and clients: the process's own files, the
/// admin socket and metrics with their connections, reading the folder, starting commands. An eighth of all, within
/// these bounds.
const MIN_RESERVE: usize = 32;
const MAX_RESERVE: usize = 1_024;
/// Per running command: two pipes for its output, and one descriptor that reports its end.
const PER_COMMAND: usize = 3;
const PER_LISTENER: usize = 1;
/// Per Worker: its runtime's epoll instance, its timer, and its wake-up descriptors.
const PER_WORKER: usize = 8;
/// Per client: its connection, and one to an endpoint.
const PER_CLIENT: usize = 2;
/// With room for fewer clients, the process does not start.
const MIN_CLIENTS: usize = 8;
/// Room for later listeners, beyond half as many again as at first.
const MORE_LISTENERS: usize = 16;

/// Raises the soft limit of open descriptors to the hard one: settings bound listeners and connections, not the default
/// of 1,024, which exists for `select(2)`.
pub(crate) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if setrlimit(Resource::Nofile, raised).is_ok() {
        // Only the first call sees the original limit.
        let _kept = ORIGINAL.set(limit);
    }
}

/// The limit before [`raise`], for child processes.
pub(crate) fn original() -> Option<Rlimit> {
    ORIGINAL.get().copied()
}

/// Numbers of everything that takes descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorDemand {
    /// Listeners that the first mesh wants.
    pub(crate) listeners: usize,
    /// Most client connections at a time, by the settings.
    pub(crate) clients: usize,
    /// Commands of workloads that are run.
    pub(crate) commands: usize,
    /// Fewest and most Workers at a time, by the settings.
    pub(crate) workers: (usize, usize),
}

/// Upper bounds that fit into the limit of open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Listeners at a time, now and later.
    pub(crate) listeners: usize,
    /// Client connections at a time.
    pub(crate) clients: usize,
    /// Workers at a time.
    pub(crate) workers: usize,
}

/// Shares out the descriptors once, before anything is served. Otherwise whichever part takes the last one would stop
/// all others, first of all starting commands.
///
/// # Errors
/// When too few are left for [`MIN_CLIENTS`] clients.
pub(crate) fn shares(wanted: DescriptorDemand) -> anyhow::Result<Shares> {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let Some(shares) = share(descriptors, wanted) else {
        anyhow::bail!(
            "{descriptors} open files are too few for {} listeners, {} commands, {} workers and \
             {MIN_CLIENTS} clients: raise the limit to {} or more (ulimit -n)",
            wanted.listeners,
            wanted.commands,
            wanted.workers.0,
            enough(descriptors, wanted)
        );
    };
    if shares.clients < wanted.clients {
        tracing::warn!(
            descriptors,
            "at most {} client connections instead of {}: raise the limit of open files \
             (ulimit -n)",
            shares.clients,
            wanted.clients
        );
    }
    if shares.workers < wanted.workers.1 {
        tracing::warn!(
            descriptors,
            "at most {} workers instead of {}: raise the limit of open files (ulimit -n)",
            shares.workers,
            wanted.workers.1
        );
    }
    Ok(shares)
}

/// The smallest sufficient number of descriptors, given that `too_few` are not enough.
fn enough(too_few: u64, wanted: DescriptorDemand) -> u64 {
    let more = too_few.saturating_add(1)..u64::MAX;
    let mut enough = more.filter(|descriptors| share(*descriptors, wanted).is_some());
    enough.next().unwrap_or(u64::MAX)
}

/// Workers get at most a quarter of the descriptors after the reserve, but never fewer than their minimum. Listeners
/// get at most half of the rest, clients what remains.
fn share(descriptors: u64, wanted: DescriptorDemand) -> Option<Shares> {
    let all = usize::try_from(descriptors).unwrap_or(usize::MAX);
    let reserve = (all / 8).clamp(MIN_RESERVE, MAX_RESERVE) + PER_COMMAND * wanted.commands;
    let left = all.checked_sub(reserve)?;
    let (min_workers, max_workers) = wanted.workers;
    let workers = (left / 4 / PER_WORKER).clamp(min_workers, max_workers.max(min_workers));
    let left = left.checked_sub(PER_WORKER * workers)?;
    let room = wanted.listeners + wanted.listeners / 2 + MORE_LISTENERS;
    let listeners = room.min(left / 2 / PER_LISTENER);
    let fitting = (left - PER_LISTENER * listeners) / PER_CLIENT;
    if fitting < MIN_CLIENTS {
        return None;
    }
    let clients = fitting.min(wanted.clients);
    Some(Shares {
        // Listeners may use what clients do not want.
        listeners: (left - PER_CLIENT * clients) / PER_LISTENER,
        clients,
        workers,
    })
}

#[cfg(test)]
mod tests {
    use super::{
        DescriptorDemand, MIN_CLIENTS, PER_CLIENT, PER_LISTENER, PER_WORKER, Shares, enough, share,
    };

    fn wanted(listeners: usize, clients: usize, commands: usize) -> DescriptorDemand {
        DescriptorDemand {
            listeners,
            clients,
            commands,
            workers: (1, 1),
        }
    }

    #[test]
    fn clients_get_what_listeners_and_the_reserve_leave() {
        let clients = |descriptors, wanted| share(descriptors, wanted).map(|s| s.clients);
        assert_eq!(clients(1 << 20, wanted(107, 8_192, 9)), Some(8_192));
        // 4,096 minus 512 in reserve, 27 for commands, 8 for a Worker and 176 for listeners.
        assert_eq!(clients(4_096, wanted(107, 8_192, 9)), Some(1_686));
        assert_eq!(clients(4_096, wanted(107, 100, 9)), Some(100));
        assert_eq!(clients(72, wanted(107, 8_192, 0)), Some(MIN_CLIENTS));
    }

    #[test]
    fn what_is_enough_is_the_fewest_that_serve() {
        for wanted in [wanted(107, 8_192, 0), wanted(1, 1, 1), wanted(0, 8, 2_000)] {
            let least = enough(10, wanted);
            assert!(share(least, wanted).is_some() && share(least - 1, wanted).is_none());
        }
    }

    #[test]
    fn listeners_are_bounded_by_descriptors_too() {
        let many = share(72, wanted(107, 8_192, 0));
        let expected = Shares {
            listeners: 16,
            clients: 8,
            workers: 1,
        };
        assert_eq!(many, Some(expected));
        let plenty = share(1 << 20, wanted(3, 8_192, 0)).expect("enough");
        assert!(plenty.listeners > 100_000, "{plenty:?}");
    }

    #[test]
    fn workers_are_as_many_as_there_is_room_for() {
        let workers = |descriptors, min, max| {
            let wanted = DescriptorDemand {
                workers: (min, max),
                ..wanted(10, 8_192, 0)
            };
            share(descriptors, wanted).map(|shares| shares.workers)
        };
        assert_eq!(workers(1 << 20, 1, 64), Some(64));
        assert_eq!(workers(256, 1, 64), Some(7));
        assert_eq!(workers(256, 9, 64), Some(9));
        assert_eq!(workers(256, 64, 64), None);
        assert_eq!(workers(256, 1, 2), Some(2));
    }

    #[test]
    fn too_few_are_refused() {
        assert_eq!(share(0, wanted(0, 8_192, 0)), None);
        assert_eq!(share(40, wanted(1, 8_192, 0)), None);
        assert_eq!(share(64, wanted(3, 8_192, 4)), None);
    }

    #[test]
    fn the_shares_never_come_to_more_than_there_are() {
        for descriptors in (0..5_000).chain([1 << 16, 1 << 20, u64::MAX]) {
            for listeners in [0, 1, 107, 5_000] {
                let shared = share(descriptors, wanted(listeners, 8_192, 3));
                let Some(Shares {
                    listeners,
                    clients,
                    workers,
                }) = shared
                else {
                    continue;
                };
                let all = usize::try_from(descriptors).unwrap_or(usize::MAX);
                let spent = PER_LISTENER * listeners + PER_CLIENT * clients + PER_WORKER * workers;
                assert!(spent + 32 <= all, "{descriptors}: {shared:?}");
            }
        }
    }
}
