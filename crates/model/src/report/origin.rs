//! The origin of an object.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// The file or registry key from which an object was read, or should have been.
///
/// Displayed as `file:line` or `etcd:key`. In JSON: a `file` in that form without the line, and a `line` or null.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A file, or a folder of them.
    File {
        /// A path that starts with the folder as it was given.
        path: Arc<Path>,
        /// The line, from 1; `None` for the whole file.
        line: Option<u32>,
    },
    /// A key in etcd, or a common prefix of several.
    Etcd {
        /// The key as text, with replacement characters, cut to a length for display.
        key: Arc<str>,
    },
}

impl Origin {
    /// A file or folder as a whole.
    pub fn file(path: impl Into<Arc<Path>>) -> Self {
        let path = path.into();
        Origin::File { path, line: None }
    }

    pub fn etcd(key: impl Into<Arc<str>>) -> Self {
        Origin::Etcd { key: key.into() }
    }

    /// The same file with a line; a key stays without one.
    #[must_use]
    pub fn at(&self, line: u32) -> Self {
        match self {
            Origin::File { path, .. } => Origin::File {
                path: Arc::clone(path),
                line: Some(line),
            },
            Origin::Etcd { .. } => self.clone(),
        }
    }

    /// The file's path; `None` for a key.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Origin::File { path, .. } => Some(path),
            Origin::Etcd { .. } => None,
        }
    }

    /// The line in a file, from 1.
    pub fn line(&self) -> Option<u32> {
        match self {
            Origin::File { line, .. } => *line,
            Origin::Etcd { .. } => None,
        }
    }

    /// Whether it is a registry, which others may write than the folder's owner.
    pub fn is_registry(&self) -> bool {
        matches!(self, Origin::Etcd { .. })
    }

    /// The file or key, without a line.
    fn place(&self) -> String {
        match self {
            Origin::File { path, .. } => path.display().to_string(),
            Origin::Etcd { key } => format!("etcd:{key}"),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place())?;
        match self.line() {
            Some(line) => write!(f, ":{line}"),
            None => Ok(()),
        }
    }
}

/// A path as text, with replacement characters: one name that is not UTF-8 must not fail the whole report.
impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut origin = serializer.serialize_struct("Origin", 2)?;
        origin.serialize_field("file", &self.place())?;
        origin.serialize_field("line", &self.line())?;
        origin.end()
    }
}
