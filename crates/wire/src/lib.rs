//! Bytes on the wire: the HTTP/1.1 codec and pooled buffers. No I/O and no clock.
//!
//! Everything here is a state machine that is given bytes and answers with decisions, so that it
//! is tested by tables, by properties and by fuzzing, and counted in instructions instead of
//! seconds. Four rooms:
//!
//! * [`buffer`]: where bytes live between the read that brought them and the write that takes
//!   them away.
//! * [`http1`]: what those bytes mean. A head is parsed in place into a table of offsets and
//!   forwarded verbatim with a list of edits; there is no header map.
//! * [`link`]: many exchanges over one connection between two nodes.
//! * [`preface`]: what a connection between two nodes begins with.

pub mod buffer;
#[cfg(any(test, feature = "corpus"))]
pub mod corpus;
pub mod http1;
pub mod link;
pub mod preface;
