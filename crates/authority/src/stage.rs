//! The stages of a rotation of roots.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a rotation of roots stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// One root is trusted, and signs.
    Steady,
    /// Two roots are trusted, the old one signs.
    Begun,
    /// Two roots are trusted, the new one signs.
    Switched,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Steady => "there is one root and no rotation under way (the next step is begin)",
            Self::Begun => {
                "two roots are trusted and the old one signs (the next step is switch, or cancel)"
            }
            Self::Switched => {
                "two roots are trusted and the new one signs (the next step is finish)"
            }
        })
    }
}
