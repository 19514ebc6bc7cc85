//! Where an object comes from.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// Where an object, or something that should be one, was read.
///
/// Shown as `file:line` or `etcd:key`, and so in JSON: a `file`, and its `line` or null.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A file, or a folder of them.
    File {
        /// As a path that starts with the folder as it was given.
        path: Arc<Path>,
        /// The line in it, from 1; none when the whole file is meant.
        line: Option<u32>,
    },
    /// A key in etcd, or what several begin with.
    Etcd {
        /// As far as it is text, and no longer than it is shown.
        key: Arc<str>,
    },
}

impl Origin {
    /// A file or folder as a whole.
    pub fn file(path: impl Into<Arc<Path>>) -> Self {
        let path = path.into();
        Origin::File { path, line: None }
    }

    /// A key in etcd.
    pub fn etcd(key: impl Into<Arc<str>>) -> Self {
        Origin::Etcd { key: key.into() }
    }

    /// A line of the same file; a key has none.
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

    /// The file, if it is one.
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

    /// Whether it is a registry, where others may write than those who write the folder.
    pub fn is_registry(&self) -> bool {
        matches!(self, Origin::Etcd { .. })
    }

    /// Without the line.
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

/// A path as far as it is text: one name that is no UTF-8 must not cost the whole report.
impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut origin = serializer.serialize_struct("Origin", 2)?;
        origin.serialize_field("file", &self.place())?;
        origin.serialize_field("line", &self.line())?;
        origin.end()
    }
}
