//! Where a Worker's tasks put together what they read and send.

use heddle_wire::http1::{Edits, RequestHead, ResponseHead};

use crate::authorize::Judged;
use crate::io::Message;

/// What a Worker's Collaborators share between two awaits, so that a request allocates nothing.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) request: RequestHead,
    pub(crate) response: ResponseHead,
    pub(crate) edits: Edits,
    /// A head that was split over blocks, made contiguous.
    pub(crate) linear: Vec<u8>,
    /// The message on its way out.
    pub(crate) out: Message,
    /// The request's path where it is not the one that was sent.
    pub(crate) path: Vec<u8>,
    /// The request's authority in canonical form.
    pub(crate) authority: Vec<u8>,
    /// A field value in the making.
    pub(crate) value: Vec<u8>,
    /// A request that policies look at.
    pub(crate) judged: Judged,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Scratch::default()
    }
}
