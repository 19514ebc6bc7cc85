//! What is wrong with a settings file, and what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};

/// A settings file that was refused: where, which field, why, and the remedy.
#[derive(Debug)]
pub(crate) struct SettingsError {
    pub(super) file: PathBuf,
    pub(super) line: Option<u64>,
    pub(super) field: String,
    pub(super) reason: String,
    pub(super) remedy: String,
}

impl SettingsError {
    pub(super) fn unreadable(file: &Path, error: &std::io::Error) -> Self {
        SettingsError {
            file: file.to_owned(),
            line: None,
            field: String::new(),
            reason: error.to_string(),
            remedy: "check the path given to --config".into(),
        }
    }

    /// From the parser's error and the path of the field at which it stopped.
    pub(super) fn parse(file: &Path, field: &str, error: &serde_saphyr::Error) -> Self {
        let text = error.without_snippet().to_string();
        // The line is reported on its own.
        let text = text.split(" at line ").next().unwrap_or(&text);
        let (reason, remedy) = match text.split_once(", expected ") {
            Some((reason, expected)) => (reason, format!("expected {expected}")),
            None => (
                text,
                "see docs/settings.md for what this field takes".into(),
            ),
        };
        SettingsError {
            file: file.to_owned(),
            line: error.location().map(|at| at.line()),
            field: field.trim_matches(['.', '?']).to_owned(),
            reason: reason.to_owned(),
            remedy,
        }
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        if !self.field.is_empty() {
            write!(f, " {}:", self.field)?;
        }
        write!(f, " {} ({})", self.reason, self.remedy)
    }
}

impl std::error::Error for SettingsError {}
