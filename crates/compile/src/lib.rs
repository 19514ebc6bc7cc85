//! From manifests to a mesh: sources, checks and compilation.
//!
//! ```text
//!   source ──► manifest ──► compile ──► heddle_model::Mesh
//!   bytes      objects      checked and resolved
//! ```
//!
//! Beside the folder there may be what [registers](registered) by itself.
//!
//! [`load`] goes this way once, a [`Watcher`] each time the folder changes. Everything that is wrong
//! comes back in a [report](heddle_model::report::Report) whose problems name file, line, field, reason and remedy. There is a
//! mesh only when none of them is an error; a server keeps the last good one.
//!
//! Nothing in a manifest is guessed at or dropped in silence. A field that is not known is an
//! error, and so is one that cannot be honoured; what is known to have no effect here is listed in one
//! place (`manifest/unused.rs`); kinds of other groups are counted.

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

use heddle_model::{Mode, TrustDomain};

/// What manifests leave open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Who vouches for the identities of the mesh.
    pub trust_domain: TrustDomain,
    /// The mode of workloads of which neither they nor their namespace say one.
    pub default_mode: Mode,
    /// Which node workloads are on.
    pub placement: Placement,
    /// Where workloads and Services have their addresses from.
    pub addresses: Addresses,
}

/// Where workloads and Services have their addresses from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Addresses {
    /// From the manifests: a LocalWorkload without one is refused.
    #[default]
    Written,
    /// From a lab, which gives every pod and Service its own: what is written does not count. Those of the mesh
    /// that comes of it stand in for them, and nothing is there.
    Given,
}

/// Which node workloads are on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Placement {
    /// There is one node, and all workloads are on it, whatever they say.
    #[default]
    OneNode,
    /// Each says it. Those that do not are left out, with a warning.
    ByNode,
}
