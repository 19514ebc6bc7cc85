//! `heddle-lab bench mtls`: the cost of a request between two nodes, compared with a pair of Envoys.
//!
//! ```text
//! load generator ── HTTP ──▶ near proxy ══ mutual TLS 1.3 ══▶ far proxy ── HTTP ──▶ upstream
//! ```
//!
//! The rounds, the rates and the report are those of `bench proxy`; the system under test is a pair of proxies, whose
//! CPU time and memory are added up.

use clap::Args;

use super::proxy::{self, Comparison};
use super::systems::Traffic;

/// Options of `bench mtls`.
#[derive(Args, Clone)]
pub struct MutualTls {
    #[command(flatten)]
    comparison: Comparison,
}

/// Measures and reports.
///
/// # Errors
/// When a peer or tool is missing, a pair does not start, or a pair forwards a request that its policy refuses.
pub(super) fn run(options: &MutualTls) -> anyhow::Result<()> {
    proxy::compare(&options.comparison, Traffic::MutualTls)
}
