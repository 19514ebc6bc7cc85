//! From manifests to a mesh: sources, checks and compilation.
//!
//! ```text
//!   source ──► manifest ──► compile ──► heddle_model::Mesh
//!   bytes      objects      checked and resolved
//! ```
//!
//! [`load`] goes this way once, a [`Watcher`] each time the folder changes. Everything that is wrong
//! comes back in a [`Report`] whose [`Problem`]s name file, line, field, reason and remedy. There is a
//! mesh only when none of them is an error; whoever serves keeps the last good one.
//!
//! Nothing in a manifest is guessed at or dropped in silence. A field that is not known is an
//! error, and so is one that cannot be honoured; what is known to have no effect here is listed in one
//! place (`manifest/unused.rs`); kinds of other groups are counted.

pub mod authority;
mod check;
mod compile;
mod manifest;
mod problem;
pub mod serve;
mod source;

pub use problem::{LeftAside, Problem, Report, Severity, printable};
pub use source::{Watcher, load, load_text};
