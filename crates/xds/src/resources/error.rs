//! Why a resource is refused.

use std::fmt;

use super::MAX_RESOURCE_BYTES;
use crate::trust::Invalid;

/// Why a resource is refused.
#[derive(Debug, Clone, PartialEq)]
pub enum InvalidResource {
    /// The name is none of this type, or is not spelled in the one valid way.
    Name(&'static str),
    /// The content has so many bytes, more than [`MAX_RESOURCE_BYTES`].
    TooLarge(usize),
    /// The content is no message of this type.
    Message(prost::DecodeError),
    /// A field is missing, out of range, or of an unknown kind.
    Field(Invalid),
    /// The object breaks an invariant of the model.
    Invariant(String),
}

impl From<prost::DecodeError> for InvalidResource {
    fn from(error: prost::DecodeError) -> Self {
        Self::Message(error)
    }
}

impl From<Invalid> for InvalidResource {
    fn from(invalid: Invalid) -> Self {
        Self::Field(invalid)
    }
}

impl fmt::Display for InvalidResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(expected) => write!(f, "its name is not of the form {expected}"),
            Self::TooLarge(bytes) => write!(
                f,
                "it has {bytes} bytes, and at most {MAX_RESOURCE_BYTES} are accepted"
            ),
            Self::Message(error) => write!(f, "it cannot be decoded: {error}"),
            Self::Field(invalid) => invalid.fmt(f),
            Self::Invariant(broken) => f.write_str(broken),
        }
    }
}

impl std::error::Error for InvalidResource {}
