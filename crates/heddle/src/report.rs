//! Logs the problems found in a folder of manifests.

use std::collections::BTreeSet;

use heddle_model::report::{Report, Severity};
use heddle_node::table::count;

/// Logs all problems.
pub(crate) fn say(report: &Report) {
    say_new(report, &[]);
}

/// Most refused objects that are logged at a time. The problems above them name all.
const MAX_REFUSED: usize = 100;

/// Logs all problems, except those that are also in `before` and about the registry, or about a folder that has not
/// changed: a report is made whenever a provider comes or goes, and would repeat them each time.
pub(crate) fn say_new(report: &Report, before: &[String]) {
    let before: BTreeSet<&str> = before.iter().map(String::as_str).collect();
    for problem in &report.problems {
        let is_old = report.is_same_folder || problem.origin.is_registry();
        if is_old && before.contains(problem.to_string().as_str()) {
            continue;
        }
        match problem.severity {
            Severity::Error => tracing::error!("{problem}"),
            Severity::Warning => tracing::warn!("{problem}"),
        }
    }
    if report.is_same_folder {
        return;
    }
    for refused in report.refused.iter().take(MAX_REFUSED) {
        tracing::error!("{refused}");
    }
    let more = report.refused.len().saturating_sub(MAX_REFUSED);
    if more > 0 {
        tracing::error!("{} more refused", count(more, "object"));
    }
    if report.omitted > 0 {
        tracing::error!("{} omitted", count(report.omitted, "problem"));
    }
    if let Some(skipped) = report.skipped_summary() {
        tracing::info!("{skipped}");
    }
}
