//! `heddle-lab bench mtls`: what a request costs between two nodes, beside a pair of Envoys.
//!
//! ```text
//! load generator ── HTTP ──▶ near proxy ══ mutual TLS 1.3 ══▶ far proxy ── HTTP ──▶ upstream
//! ```
//!
//! The rounds, the rates and the report are those of `bench proxy`; the system under test is a pair of
//! proxies, accounted for together.

use clap::Args;

use super::proxy::{self, Comparison};
use super::systems::Traffic;

/// What the user may say to `bench mtls`.
#[derive(Args, Clone)]
pub struct MutualTls {
    #[command(flatten)]
    comparison: Comparison,
}

/// Measures and reports.
///
/// # Errors
/// When a peer or tool is missing, a pair does not start, or one lets pass what its policy refuses.
pub(super) fn run(options: &MutualTls) -> anyhow::Result<()> {
    proxy::compare(&options.comparison, Traffic::MutualTls)
}
