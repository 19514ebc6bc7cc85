//! Errors in settings, with their remedies.

use std::fmt;
use std::path::Path;

use serde_saphyr::Error;

use super::source::Source;
use crate::exit::{Exit, Failure};

/// Settings that were refused: source, field, reason and remedy.
#[derive(Debug)]
pub struct SettingsError {
    pub(super) source: Source,
    pub(super) field: String,
    pub(super) reason: String,
    pub(super) remedy: String,
}

impl SettingsError {
    pub(super) fn unreadable(file: &Path, error: &std::io::Error) -> Self {
        SettingsError {
            source: Source::File(file.to_owned(), None),
            field: String::new(),
            reason: error.to_string(),
            remedy: "check the path given to --config".into(),
        }
    }

    /// Builds the error from the parser's error and the path of the field at which it stopped.
    pub(super) fn parse(file: &Path, field: &str, error: &Error) -> Self {
        let (reason, remedy) = explain(error.without_snippet());
        SettingsError {
            source: Source::File(file.to_owned(), error.location().map(|at| at.line())),
            field: field.trim_matches(['.', '?']).to_owned(),
            reason,
            remedy,
        }
    }
}

/// Explains a parser error in plain words: reason and remedy.
fn explain(error: &Error) -> (String, String) {
    let (reason, remedy) = match error {
        Error::Unexpected {
            expected: "sequence start",
            ..
        } => ("this is no list", "write its items in brackets: [a, b]"),
        Error::Unexpected {
            expected: "mapping start",
            ..
        } => (
            "this is not a mapping",
            "write each below it, indented, as `name: value`",
        ),
        Error::Unexpected { .. } | Error::ExternallyTaggedEnumExpectedScalarOrMapping { .. } => (
            "this is no single value",
            "write one word or number; docs/settings.md says which",
        ),
        Error::InvalidScalar { ty: "boolean", .. } | Error::InvalidBooleanStrict { .. } => {
            ("this is neither true nor false", "write one of the two")
        }
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("a field");
            return (
                format!("`{key}` is written twice"),
                "keep one of the two".to_owned(),
            );
        }
        Error::UnknownAnchor { .. } => (
            "an alias refers to an anchor that is not defined above it",
            "quote a text that starts with '*'",
        ),
        Error::MultipleDocuments { .. } => (
            "there is more than one document",
            "remove the line ---: settings are one document",
        ),
        // Messages of our own types, and lists of valid names.
        Error::Message { .. }
        | Error::SerdeUnknownField { .. }
        | Error::SerdeUnknownVariant { .. } => {
            let text = error.to_string();
            let text = without_place(&text);
            return match text.split_once(", expected ") {
                Some((reason, expected)) => (reason.to_owned(), format!("expected {expected}")),
                None => (
                    text.to_owned(),
                    "see docs/settings.md for what this field takes".to_owned(),
                ),
            };
        }
        other => {
            let text = other.to_string();
            return (
                format!("this is not YAML: {}", without_place(&text)),
                "look at the indentation, quotes and brackets around this line".to_owned(),
            );
        }
    };
    (reason.to_owned(), remedy.to_owned())
}

/// Cuts off the position at the end of a parser message: it is reported separately.
fn without_place(text: &str) -> &str {
    text.split(" at line ").next().unwrap_or(text)
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::File(path, line) => {
                write!(f, "{}:", path.display())?;
                if let Some(line) = line {
                    write!(f, "{line}:")?;
                }
                if !self.field.is_empty() {
                    write!(f, " {}:", self.field)?;
                }
            }
            Source::Flag(flag) => write!(f, "{flag} ({}):", self.field)?,
            Source::Default => write!(f, "{}:", self.field)?,
        }
        write!(f, " {} ({})", self.reason, self.remedy)
    }
}

impl std::error::Error for SettingsError {}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        Failure::new(Exit::Refused, error)
    }
}
