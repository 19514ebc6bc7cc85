//! Why traffic cannot be intercepted.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::PodId;

/// Why the kernel could not be told something.
#[derive(Debug)]
pub enum HookError {
    /// The kernel has no such thing, or does not let this process have it.
    Lacking {
        /// What it is for, and what it is called.
        what: String,
        /// What the kernel said.
        reason: String,
    },
    /// A path is not what it should be.
    Path {
        /// Which.
        path: PathBuf,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// A pod cannot be enrolled as it is.
    Pod {
        /// Which.
        pod: PodId,
        /// Why.
        reason: String,
    },
    /// There is no such pod.
    Unknown(PodId),
    /// The kernel refused something that it has.
    Refused {
        /// What was asked.
        what: String,
        /// What it said.
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
            reason: format!("there may be {most} at most"),
        }
    }
}

/// The longest reason that is kept: a verifier's log has thousands of lines, of which the last says most.
const MAX_REASON: usize = 600;

/// An error with its causes.
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
                write!(f, "this kernel gives us no {what}: {reason}")
            }
            HookError::Path { path, reason } => write!(f, "{}: {reason}", path.display()),
            HookError::Pod { pod, reason } => write!(f, "pod {pod}: {reason}"),
            HookError::Unknown(pod) => write!(f, "there is no pod {pod}"),
            HookError::Refused { what, reason } => write!(f, "{what}: {reason}"),
        }
    }
}

impl Error for HookError {}
