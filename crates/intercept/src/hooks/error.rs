//! Errors of the hooks.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::PodId;

/// Why hooks could not be installed or changed.
#[derive(Debug)]
pub enum HookError {
    /// The kernel lacks a feature, or does not permit this process to use it.
    Lacking {
        /// Name and purpose of the feature.
        what: String,
        /// The kernel's error.
        reason: String,
    },
    /// A path is not as required.
    Path {
        path: PathBuf,
        /// What is wrong with it, and how to fix it.
        reason: String,
    },
    /// A pod cannot be enrolled or changed as asked.
    Pod {
        pod: PodId,
        /// Why not.
        reason: String,
    },
    /// No pod with that number is enrolled.
    Unknown(PodId),
    /// The kernel or `nft` refused an operation, or a limit was reached.
    Refused {
        /// The operation.
        what: String,
        /// The error message.
        reason: String,
    },
}

impl HookError {
    pub(super) fn lacking(what: impl Into<String>, error: &dyn Error) -> Self {
        HookError::Lacking {
            what: what.into(),
            reason: chain(error),
        }
    }

    pub(super) fn refused(what: impl Into<String>, error: &dyn Error) -> Self {
        HookError::Refused {
            what: what.into(),
            reason: chain(error),
        }
    }

    pub(super) fn path(path: &Path, reason: impl Into<String>) -> Self {
        HookError::Path {
            path: path.to_owned(),
            reason: reason.into(),
        }
    }

    pub(super) fn pod(pod: PodId, reason: impl Into<String>) -> Self {
        HookError::Pod {
            pod,
            reason: reason.into(),
        }
    }

    pub(super) fn too_many(what: &str, most: usize) -> Self {
        HookError::Refused {
            what: what.to_owned(),
            reason: format!("the limit is {most}"),
        }
    }
}

/// Limit of a reason in bytes. A verifier log has thousands of lines, of which the last ones are the useful ones, so
/// the end is kept.
const MAX_REASON: usize = 600;

/// An error message with those of its causes, cut at the front to [`MAX_REASON`].
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    if text.len() > MAX_REASON {
        let from = text.ceil_char_boundary(text.len() - MAX_REASON);
        text.replace_range(..from, "… ");
    }
    text
}

impl fmt::Display for HookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HookError::Lacking { what, reason } => {
                write!(f, "the kernel does not provide {what}: {reason}")
            }
            HookError::Path { path, reason } => write!(f, "{}: {reason}", path.display()),
            HookError::Pod { pod, reason } => write!(f, "pod {pod}: {reason}"),
            HookError::Unknown(pod) => write!(f, "there is no pod {pod}"),
            HookError::Refused { what, reason } => write!(f, "{what}: {reason}"),
        }
    }
}

impl Error for HookError {}
