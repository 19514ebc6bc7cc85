//! What a simulated node has been told of.

use std::collections::BTreeSet;

use super::shape::{PODS_OF_SERVICE, Shape};

/// What a node has, as far as it shows whether it has everything.
#[derive(Debug, Default)]
pub(super) struct Has {
    pub(super) services: BTreeSet<usize>,
    pub(super) endpoints: usize,
    /// Where the control plane tells of nodes: how many.
    pub(super) nodes: Option<usize>,
    /// Whether what it was told at first is complete, as far as the control plane says so.
    pub(super) is_marked: bool,
}

impl Has {
    /// Whether it has been told of all endpoints of exactly the Services that it uses, and of the nodes that they are on.
    /// The control plane may have forgotten nodes that are `gone`, since none of these nodes has joined.
    pub(super) fn is_complete(
        &self,
        shape: &Shape,
        uses: &BTreeSet<usize>,
        gone: &BTreeSet<usize>,
    ) -> bool {
        let are_told = |count: usize| {
            let nodes = shape.nodes_of(uses);
            let there = nodes.difference(gone).count();
            (there..=nodes.len()).contains(&count)
        };
        self.is_marked
            && self.endpoints == uses.len() * PODS_OF_SERVICE
            && self.services == *uses
            && self.nodes.is_none_or(are_told)
    }

    /// What it has, for a person.
    pub(super) fn described(&self) -> String {
        format!(
            "{} nodes, {} services, {} endpoints, {} mark",
            self.nodes.unwrap_or(0),
            self.services.len(),
            self.endpoints,
            if self.is_marked { "a" } else { "no" }
        )
    }
}
