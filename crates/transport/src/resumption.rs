//! Tickets that a client keeps, to resume sessions.
//!
//! The library's own store sets its tables aside for all the servers that it may ever remember, which a node with
//! hundreds of identities pays hundreds of times over. This one grows with those that are called.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// Servers that an identity remembers at most.
const SERVERS: usize = 32;
/// Tickets of each: connections that can be resumed at one time.
const TICKETS: usize = 8;

/// What an identity has kept of the servers that it called. Bounded: a new server displaces another.
#[derive(Default)]
pub(crate) struct Kept {
    /// By their names as TLS writes them.
    servers: Mutex<HashMap<Box<str>, Server>>,
}

#[derive(Default)]
struct Server {
    group: Option<NamedGroup>,
    /// Oldest first.
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl Kept {
    /// A thread that panicked left nothing half done here that matters: at worst a ticket is lost.
    fn servers(&self) -> MutexGuard<'_, HashMap<Box<str>, Server>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, name: &ServerName<'_>, update: impl FnOnce(&mut Server)) {
        let mut servers = self.servers();
        let name = name.to_str();
        if servers.len() >= SERVERS && !servers.contains_key(&*name) {
            // Whichever: each costs one handshake more, and no node calls so many often.
            if let Some(other) = servers.keys().next().cloned() {
                servers.remove(&other);
            }
        }
        update(servers.entry(name.into()).or_default());
    }
}

impl ClientSessionStore for Kept {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.update(&name, |server| server.group = Some(group));
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.servers().get(&*name.to_str())?.group
    }

    // There is no TLS 1.2 between nodes.
    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'_>) {}

    fn insert_tls13_ticket(&self, name: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        self.update(&name, |server| {
            if server.tickets.len() >= TICKETS {
                server.tickets.pop_front();
            }
            server.tickets.push_back(ticket);
        });
    }

    fn take_tls13_ticket(&self, name: &ServerName<'_>) -> Option<Tls13ClientSessionValue> {
        // The newest: it lasts longest.
        self.servers().get_mut(&*name.to_str())?.tickets.pop_back()
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Tickets are secrets.
        f.debug_struct("Kept")
            .field("servers", &self.servers().len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(index: usize) -> ServerName<'static> {
        ServerName::try_from(format!("server-{index}.test")).unwrap()
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let kept = Kept::default();
        for index in 0..3 * SERVERS {
            kept.set_kx_hint(name(index), NamedGroup::X25519);
            assert_eq!(kept.kx_hint(&name(index)), Some(NamedGroup::X25519));
        }
        assert_eq!(kept.servers().len(), SERVERS);
        assert_eq!(kept.kx_hint(&name(usize::MAX)), None);
    }

    #[test]
    fn one_that_has_called_no_server_takes_nothing() {
        let kept = Kept::default();
        assert!(kept.take_tls13_ticket(&name(0)).is_none());
        assert_eq!(kept.servers().capacity(), 0);
    }
}
