//! The node, and what holds for the mesh.

use heddle_model::{NodeName, ServiceAccountName, SpiffeId};

use crate::resources::Settings;

/// Decides what is on the node, and what can be in the mesh at all.
pub(super) struct Place<'r> {
    pub(super) settings: &'r Settings,
    pub(super) node: &'r NodeName,
}

impl Place<'_> {
    /// Whether what names this node, or none, is on the node.
    pub(super) fn is_here(&self, node: Option<&NodeName>) -> bool {
        node.map_or(self.settings.single_node, |node| node == self.node)
    }

    /// Whether a TLS client can ask for workloads of the account.
    pub(super) fn can_be_account(&self, account: &ServiceAccountName) -> bool {
        let domain = self.settings.trust_domain.clone();
        let id = SpiffeId::workload(domain, account.clone());
        id.server_name().is_some()
    }

    pub(super) fn can_be_node(&self, node: &NodeName) -> bool {
        let domain = self.settings.trust_domain.clone();
        let id = SpiffeId::node(domain, node.clone());
        id.server_name().is_some()
    }
}
