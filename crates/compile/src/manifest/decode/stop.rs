//! serde's error type here: why decoding a value stopped.

use std::fmt;

use serde::de::{Expected, Unexpected};

use super::super::node::{FieldPath, Node};
use super::Fault;

/// Why decoding a value stopped.
#[derive(Debug)]
pub(super) struct Stop {
    /// The place; unknown until the error passes a decoder, which knows it.
    pub(super) path: Option<FieldPath>,
    /// The field that is missing at that place.
    missing: Option<&'static str>,
    reason: String,
    remedy: String,
}

impl Stop {
    pub(super) fn new(reason: String, remedy: String) -> Self {
        Self {
            path: None,
            missing: None,
            reason,
            remedy,
        }
    }

    pub(super) fn at(mut self, path: &FieldPath) -> Self {
        if self.path.is_none() {
            self.path = Some(match self.missing {
                Some(field) => path.field(field),
                None => path.clone(),
            });
        }
        self
    }

    pub(super) fn into_fault(self, root: &Node) -> Fault {
        let path = self.path.unwrap_or_default();
        Fault {
            line: root.line_of(&path),
            path,
            reason: self.reason,
            remedy: self.remedy,
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Stop {}

impl serde::de::Error for Stop {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string(), String::new())
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(
            format!("expected {expected}, found a {unexpected}"),
            String::new(),
        )
    }

    fn missing_field(field: &'static str) -> Self {
        Self {
            missing: Some(field),
            ..Self::new("this field is required".to_owned(), format!("add {field}"))
        }
    }
}
