//! Errors of a side.

use std::fmt;
use std::io;

use heddle_transport::TlsError;

use crate::failure::StreamFailure;

/// An error of a side, of any carrier.
#[derive(Debug)]
pub(crate) enum SideError {
    /// No buffer block is left.
    Memory,
    /// The stream between nodes was ended, or was never opened.
    Stream(StreamFailure),
    /// The TLS session failed, for example by a bad record. Boxed, so that results are small.
    Session(Box<TlsError>),
    /// The socket's error.
    Socket(io::Error),
}

/// Result of reading or writing.
pub(crate) type SideResult<T> = Result<T, SideError>;

impl SideError {
    /// Whether the socket was not ready (`WouldBlock`).
    pub(super) fn is_too_early(&self) -> bool {
        matches!(self, SideError::Socket(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl From<io::Error> for SideError {
    fn from(error: io::Error) -> Self {
        SideError::Socket(error)
    }
}

impl From<io::ErrorKind> for SideError {
    fn from(kind: io::ErrorKind) -> Self {
        SideError::Socket(kind.into())
    }
}

impl From<StreamFailure> for SideError {
    fn from(failure: StreamFailure) -> Self {
        SideError::Stream(failure)
    }
}

impl From<TlsError> for SideError {
    fn from(error: TlsError) -> Self {
        SideError::Session(Box::new(error))
    }
}

impl fmt::Display for SideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SideError::Memory => f.write_str("all buffers are in use"),
            SideError::Stream(failure) => {
                write!(f, "the stream was ended: {}", failure.reason.code())
            }
            SideError::Session(error) => error.fmt(f),
            SideError::Socket(error) => error.fmt(f),
        }
    }
}
