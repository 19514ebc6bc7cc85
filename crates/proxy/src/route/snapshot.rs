//! The configuration in the form that Workers use: made for each change, then only read.
//!
//! Names are replaced by indices. A Service's port is a [`Cluster`](super::Cluster) and an entry at the same index, so a
//! backend is one number. There is also an entry for each workload of this node, for its ports that belong to no Service,
//! and one for everything outside of the mesh.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use foldhash::fast::RandomState;
use heddle_model::{NodeName, ServiceName};

use super::known::{Known, Mark};
use super::names::{Names, OUTSIDE, PortIndex};
use super::notable::Notable;
use super::port::PortEntry;
use super::rules::RouteTable;
use super::source::Source;
use super::{Addresses, Hosts};
use crate::authorize::Guards;
use crate::entry::Entry;
use crate::entry::What;
use crate::permits::{CalledShares, Share};

/// The parts of the mesh that Workers need. Of two snapshots, one after the other, the later one has whatever is the same
/// from the earlier one.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Unique within the process, even for equal generations.
    pub(crate) id: u64,
    pub(crate) generation: u64,
    pub(crate) hosts: Hosts,
    pub(crate) guards: Guards,
    pub(crate) addresses: Addresses,
    /// What the node has named; `None` if the mesh has everything.
    pub(super) known: Option<Known>,
    /// The shares of connections from other nodes, one for each workload of this node and one for all other calls.
    pub(crate) called: CalledShares,
    /// By index. An index that is free has an entry that leads nowhere.
    pub(super) ports: Vec<Arc<PortEntry>>,
    pub(super) names: Names,
    pub(super) notable: Notable,
    /// Whether a caller of this node has used a port, by index.
    pub(super) used: Box<[Mark]>,
    /// The ports whose requests can reach an endpoint with a policy that checks paths.
    pub(super) judged: HashSet<PortIndex, RandomState>,
    /// Names of the workloads of this node that are offline.
    pub(crate) offline: Arc<HashSet<Arc<str>>>,
    pub(super) source: Source,
}

impl Snapshot {
    /// The port that a listener or a connection leads to. `None` if each request names its own, or if the port no
    /// longer exists.
    pub(crate) fn port_of(&self, entry: &Entry) -> Option<PortIndex> {
        match entry {
            Entry::Service { service, port, .. } => self.find(service, *port),
            Entry::Inbound(inbound) => self.find(&inbound.service, inbound.port),
            Entry::Forwarded(forwarded) => {
                let (service, port) = forwarded.to.as_ref()?;
                self.find(service, *port)
            }
            Entry::Direct(direct) => match &direct.what {
                What::Endpoint { service, port, .. } => self.find(service, *port),
                What::Workload(workload) => self.names.workload(workload),
                What::Outside => Some(PortIndex::at(OUTSIDE)),
            },
            Entry::ForwardProxy { .. }
            | Entry::Mesh
            | Entry::Outbound { .. }
            | Entry::Arriving { .. } => None,
        }
    }

    /// The share that counts a connection from another node, by the endpoint that it calls: the share of that workload
    /// of this node, else the one of all calls that match nothing here. `None` before there is a mesh.
    pub(crate) fn called(
        &self,
        service: &ServiceName,
        port: u16,
        endpoint: SocketAddr,
    ) -> Option<&Arc<Share>> {
        let port = self.find(service, port).map(|index| self.port(index));
        let workload = port.and_then(|port| port.workload_at(endpoint));
        let share = workload.and_then(|workload| self.called.workloads.get(workload));
        share.or(self.called.astray.as_ref())
    }

    pub(crate) fn find(&self, service: &ServiceName, port: u16) -> Option<PortIndex> {
        self.names.find(service, port)
    }

    /// The entry at an index that this snapshot gave out.
    pub(crate) fn port(&self, index: PortIndex) -> &PortEntry {
        &self.ports[index.get()]
    }

    /// All entries, by index.
    pub(crate) fn ports(&self) -> &[Arc<PortEntry>] {
        &self.ports
    }

    /// The ports of which a workload of this node is an endpoint.
    pub(crate) fn with_workloads(&self) -> impl Iterator<Item = PortIndex> {
        self.notable.with_workloads.iter().copied()
    }

    /// Whether a path that two programs could interpret differently is refused: when one of the caller's routes, or a
    /// policy, depends on the path.
    pub(crate) fn strict_paths(&self, port: PortIndex, routes: Option<&RouteTable>) -> bool {
        self.judged.contains(&port) || routes.is_some_and(|routes| routes.strict_paths)
    }

    /// The nodes with endpoints that cannot be reached because the address of the node is not known; some more than once.
    pub(crate) fn unreached(&self) -> impl Iterator<Item = &NodeName> {
        let ports = self.notable.unreached.iter();
        ports.flat_map(|index| &self.port(*index).unreached)
    }

    /// Notes that a caller of this node uses a port.
    pub(crate) fn mark_used(&self, port: PortIndex) {
        self.used[port.get()].set();
    }
}
