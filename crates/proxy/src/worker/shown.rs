//! How a Worker reports the state of its connections with other nodes.

use std::collections::BTreeMap;

use heddle_transport::Protocol;

use super::Worker;
use crate::peers::{Peer, PeerStatus};

impl Worker {
    /// Updates `shown`, at most once a second. Allocates nothing if the nodes are the same as before.
    pub(crate) fn show_peers(&self, shown: &mut BTreeMap<Peer, PeerStatus>) {
        let (now, peers, clock) = (self.clock.now_ms(), &self.peers, &self.clock);
        if !peers.is_time(now) {
            return;
        }
        let none = PeerStatus::default();
        shown.values_mut().for_each(|status| *status = none);
        self.links.show(clock, shown);
        self.http2.show(shown);
        self.links.places.show(clock, shown);
        if self.settings.between_nodes == Protocol::Http1 {
            self.upstreams.show(shown);
        }
        peers.show_failures(clock, shown);
        shown.retain(|_, status| *status != none);
        peers.shown(shown.values().any(PeerStatus::is_connected));
    }
}
