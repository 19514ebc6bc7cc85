//! An outgoing message.

/// A head, and perhaps bytes after it that are sent together with it. Reused; sending may change its bytes.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) bytes: Vec<u8>,
    head_bytes: usize,
    /// Whether the end of the body is marked explicitly, whatever length the head declares.
    is_open: bool,
}

impl Message {
    /// Begins a new message, whose head is to be written into the result.
    pub(crate) fn begin(&mut self) -> &mut Vec<u8> {
        self.bytes.clear();
        self.head_bytes = 0;
        self.is_open = false;
        &mut self.bytes
    }

    /// Marks the end of the head: bytes written from now on belong to the body.
    pub(crate) fn end_head(&mut self) -> &mut Vec<u8> {
        self.head_bytes = self.bytes.len();
        &mut self.bytes
    }

    /// Marks the first `head_bytes` bytes as the head.
    pub(crate) fn head_ends_at(&mut self, head_bytes: usize) {
        debug_assert!(head_bytes <= self.bytes.len());
        self.head_bytes = head_bytes;
    }

    /// Adds a field to a head behind which there is nothing yet.
    pub(crate) fn add_field(&mut self, name: &[u8], value: &[u8]) {
        debug_assert_eq!(self.head_bytes, self.bytes.len());
        debug_assert!(self.bytes.ends_with(b"\r\n\r\n"));
        self.bytes.truncate(self.bytes.len().saturating_sub(2));
        for part in [name, b": ", value, b"\r\n\r\n"] {
            self.bytes.extend_from_slice(part);
        }
        self.head_bytes = self.bytes.len();
    }

    /// Marks the body as not ended by its length: trailers may follow.
    pub(crate) fn leave_open(&mut self) {
        self.is_open = true;
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    pub(crate) fn head(&self) -> &[u8] {
        &self.bytes[..self.head_bytes]
    }

    /// The head, and the bytes after it.
    pub(crate) fn parts(&self) -> (&[u8], &[u8]) {
        self.bytes.split_at(self.head_bytes)
    }
}

#[cfg(test)]
impl From<&[u8]> for Message {
    fn from(head: &[u8]) -> Self {
        Message {
            bytes: head.to_vec(),
            head_bytes: head.len(),
            is_open: false,
        }
    }
}
