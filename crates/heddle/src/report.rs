//! What reading a folder came to, said in the log and to a node.

use heddle_model::report::{Report, Severity};
use heddle_node::table::count;

/// Logs what is wrong.
pub(crate) fn say(report: &Report) {
    say_new(report, &[]);
}

/// Logs what is wrong, but for what the registry had wrong before: that changes whenever a provider comes or goes.
pub(crate) fn say_new(report: &Report, before: &[String]) {
    for problem in &report.problems {
        let is_registrys = problem.origin.is_registry();
        if is_registrys && before.contains(&problem.to_string()) {
            continue;
        }
        match problem.severity {
            Severity::Error => tracing::error!("{problem}"),
            Severity::Warning => tracing::warn!("{problem}"),
        }
    }
    if report.omitted > 0 {
        tracing::error!("{} omitted", count(report.omitted, "problem"));
    }
    if let Some(skipped) = report.skipped_summary() {
        tracing::info!("{skipped}");
    }
}
