//! The client's store of session tickets.
//!
//! The store of rustls allocates tables for the maximum number of servers up front, and a node with hundreds of
//! identities would pay that hundreds of times. This store grows with the servers that are called.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// Limit on remembered servers, for each client identity.
const SERVERS: usize = 32;
/// Limit on tickets for each server: the number of connections that can be resumed at once.
const TICKETS: usize = 8;

/// Tickets of the servers that one identity has called. When the limit is reached, a new server evicts another.
#[derive(Default)]
pub(crate) struct Kept {
    /// By the server name in its TLS spelling.
    servers: Mutex<HashMap<Box<str>, Server>>,
}

#[derive(Default)]
struct Server {
    group: Option<NamedGroup>,
    /// Oldest first.
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl Kept {
    /// A lock poisoned by a panic is used anyway: at worst a ticket is lost.
    fn servers(&self) -> MutexGuard<'_, HashMap<Box<str>, Server>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, name: &ServerName<'_>, update: impl FnOnce(&mut Server)) {
        let mut servers = self.servers();
        let name = name.to_str();
        if servers.len() >= SERVERS && !servers.contains_key(&*name) {
            // Any victim will do: it costs one full handshake, and few nodes call this many servers often.
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

    // Nodes never speak TLS 1.2.
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
        // The newest ticket: it is valid the longest.
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
