//! A message on its way out.

/// A head, and perhaps bytes behind it that go along with it. It is reused: sending one may use it up.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) bytes: Vec<u8>,
    head_bytes: usize,
    /// What follows says where its body ends, whatever length the head says.
    is_open: bool,
}

impl Message {
    /// Begins another message, whose head is to be written.
    pub(crate) fn begin(&mut self) -> &mut Vec<u8> {
        self.bytes.clear();
        self.head_bytes = 0;
        self.is_open = false;
        &mut self.bytes
    }

    /// The head ends here: what is written from now on is behind it.
    pub(crate) fn end_head(&mut self) -> &mut Vec<u8> {
        self.head_bytes = self.bytes.len();
        &mut self.bytes
    }

    /// The head are the first `head_bytes` of what was written.
    pub(crate) fn head_ends_at(&mut self, head_bytes: usize) {
        debug_assert!(head_bytes <= self.bytes.len());
        self.head_bytes = head_bytes;
    }

    /// Its body does not end with its length: trailers may follow.
    pub(crate) fn leave_open(&mut self) {
        self.is_open = true;
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    pub(crate) fn head(&self) -> &[u8] {
        &self.bytes[..self.head_bytes]
    }

    /// The head, and what is behind it.
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
