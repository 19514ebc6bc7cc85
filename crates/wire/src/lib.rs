//! Bytes on the wire: the HTTP/1.1 codec and pooled buffers. No I/O and no clock.
//!
//! Everything here is a state machine: it takes bytes and returns decisions. It can therefore be tested with tables,
//! properties and fuzzing, and measured in instructions instead of seconds. The modules:
//!
//! * [`buffer`]: buffers that hold bytes between a read from one socket and a write to another.
//! * [`http1`]: HTTP/1.1. A head is parsed in place into a table of offsets and forwarded verbatim with a list of
//!   edits; there is no header map.
//! * [`link`]: many exchanges over one connection between two nodes.
//! * [`preface`]: the first bytes of a connection between two nodes.

pub mod buffer;
#[cfg(any(test, feature = "corpus"))]
pub mod corpus;
pub mod http1;
pub mod link;
pub mod preface;
