//! An encoder and its decoder, compared with each other.

use super::super::*;

pub(super) struct CoderPair {
    pub(super) encoder: Encoder,
    pub(super) decoder: Decoder,
    limits: HeadLimits,
    /// The last block.
    pub(super) block: Vec<u8>,
}

impl CoderPair {
    pub(super) fn new(limits: HeadLimits) -> Self {
        Self {
            encoder: Encoder::new(&limits),
            decoder: Decoder::new(&limits),
            limits,
            block: Vec::new(),
        }
    }

    /// Sends a head and returns the length of its block.
    pub(super) fn send(&mut self, scope: u32, destination: &str, head: impl AsRef<[u8]>) -> usize {
        let head = head.as_ref();
        self.block.clear();
        self.encoder
            .encode(scope, destination.as_bytes(), head, &mut self.block);
        let mut out = b"before".to_vec();
        let decoded = self.decoder.decode(&self.block, &mut out);
        let decoded = decoded.unwrap_or_else(|error| panic!("{error}: {:02x?}", self.block));
        assert_eq!(
            String::from_utf8_lossy(&out[6..]),
            String::from_utf8_lossy(head)
        );
        assert_eq!(decoded.destination, destination.as_bytes());
        self.check();
        self.block.len()
    }

    /// Checks that both ends hold the same templates, within the limits.
    pub(super) fn check(&self) {
        assert_eq!(self.encoder.bytes(), self.decoder.bytes());
        assert_eq!(self.encoder.templates(), self.decoder.templates());
        assert!(self.decoder.bytes() <= self.limits.all_bytes);
        assert!(self.decoder.templates() <= usize::from(self.limits.templates));
    }
}
