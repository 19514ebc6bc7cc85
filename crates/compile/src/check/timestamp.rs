//! Times as Kubernetes writes them.

use heddle_model::calendar;

use super::Flaw;

/// Seconds since 1970, for a time such as `2024-05-01T12:00:00Z`; a fraction is ignored.
pub(crate) fn timestamp(text: &str) -> Result<i64, Flaw> {
    calendar::parse(text).ok_or_else(|| {
        Flaw::new(
            format!("{text:?} is no time"),
            "write it like 2024-05-01T12:00:00Z, or leave it out",
        )
    })
}
