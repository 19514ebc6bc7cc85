//! Compiles manifests into a mesh: sources, checks and compilation.
//!
//! ```text
//!   source ──► manifest ──► compile ──► heddle_model::Mesh
//!   bytes      objects      checked and resolved
//! ```
//!
//! Beside the folder a [registry](registered) may contribute providers.
//!
//! [`load`] compiles once, a [`Watcher`] each time the folder changes. Everything wrong is returned in a
//! [report](heddle_model::report::Report) whose problems name file, line, field, reason and remedy. For [`load`] there is
//! a mesh only when no problem is an error. A [`Watcher`] refuses each object with an error by itself: its last good
//! version stays in force, or something that opens nothing.
//!
//! Nothing in a manifest is guessed or silently dropped. An unknown field is an error, and so is one that cannot be
//! honoured; known fields without effect here are listed in one place (`manifest/unused.rs`); objects of other groups
//! are counted.

mod check;
mod compile;
mod explain;
mod findings;
mod manifest;
pub mod registered;
mod source;

pub use explain::{
    Caller, Destination, ExplainedEndpoint, Explanation, Outcome, Request, Unexplained, explain,
    explain_denying,
};
pub use source::{Watcher, load, load_text, load_with};

use std::net::IpAddr;

use heddle_model::{Cidr, Mode, TrustDomain};

/// Settings that manifests do not contain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The trust domain of every identity in the mesh.
    pub trust_domain: TrustDomain,
    /// The mode of a workload when neither it nor its namespace sets one.
    pub default_mode: Mode,
    /// Whether an Envoy of a workload knows only what the workload uses, when neither it nor its namespace says so.
    pub lazy_envoys: bool,
    /// How workloads are assigned to nodes.
    pub placement: Placement,
    /// The source of the addresses of workloads and Services.
    pub addresses: Addresses,
    /// Where the addresses of Services, endpoints and workloads are, sorted, each once. Empty: they may be any.
    pub address_ranges: Vec<Cidr>,
}

/// Ranges that a message names, at most.
const NAMED_RANGES: usize = 8;

impl Options {
    /// Why an address is not one that the mesh may have; `None` if it is. A lab assigns addresses without regard to those in
    /// manifests.
    pub(crate) fn outside(&self, address: IpAddr) -> Option<String> {
        let ranges = &self.address_ranges;
        let is_any = ranges.is_empty() || self.addresses == Addresses::Given;
        if is_any || ranges.iter().any(|range| range.contains(address)) {
            return None;
        }
        let named = ranges.iter().take(NAMED_RANGES).map(Cidr::to_string);
        let more = match ranges.len() > NAMED_RANGES {
            true => ", ...",
            false => "",
        };
        let named = named.collect::<Vec<_>>().join(", ");
        let ranges = format!("{named}{more}");
        Some(format!(
            "{address} is in none of the mesh's address ranges ({ranges})"
        ))
    }
}

/// The source of the addresses of workloads and Services.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Addresses {
    /// The manifests: a LocalWorkload without an address is refused.
    #[default]
    Written,
    /// A lab, which assigns an address to every pod and Service: written ones are ignored. The addresses in the
    /// compiled mesh are placeholders at which nothing listens.
    Given,
}

/// How workloads are assigned to nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Placement {
    /// There is one node, which runs all workloads, whatever node they name.
    #[default]
    OneNode,
    /// Each workload names its node. A workload without one is left out, with a warning.
    ByNode,
}
