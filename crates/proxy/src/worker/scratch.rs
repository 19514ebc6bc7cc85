//! Buffers in which a Worker's tasks parse and assemble messages.

use heddle_wire::http1::{Edits, RequestHead, ResponseHead};

use crate::authorize::Judged;
use crate::io::Message;

/// Buffers that all Collaborators of a Worker reuse, so that a request allocates nothing. Never borrowed across an
/// await.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) request: RequestHead,
    pub(crate) response: ResponseHead,
    pub(crate) edits: Edits,
    /// A head that spans several blocks, made contiguous.
    pub(crate) linear: Vec<u8>,
    /// The outgoing message.
    pub(crate) out: Message,
    /// The path that the route rewrote, if it did.
    pub(crate) path: Vec<u8>,
    /// The request's authority in canonical form.
    pub(crate) authority: Vec<u8>,
    /// A field value that is being assembled.
    pub(crate) value: Vec<u8>,
    /// The request as policies see it.
    pub(crate) judged: Judged,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Scratch::default()
    }
}
