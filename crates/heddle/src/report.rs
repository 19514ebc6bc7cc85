//! Logs the problems found in a folder of manifests.

use heddle_model::report::{Report, Severity};
use heddle_node::table::count;

/// Logs all problems.
pub(crate) fn say(report: &Report) {
    say_new(report, &[]);
}

/// Logs all problems, except those of the registry that are also in `before`: a report is made whenever a provider
/// comes or goes, and would repeat them each time.
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
