//! Session tickets that never outlive a certificate.

use std::sync::Arc;

use rustls::Error;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::ProducesTickets;

use crate::Clock;

/// Session tickets (RFC 8446 section 4.6.1) under rotating keys. None is issued or accepted after `until`, the first
/// expiry among this server's certificates: a resumed session shows no certificate anew.
///
/// Each set of identities has its own ticket keys, so a session allowed by an old set cannot be resumed under a new
/// one.
#[derive(Debug)]
pub(crate) struct Tickets {
    inner: Arc<dyn ProducesTickets>,
    clock: Arc<Clock>,
    until: u64,
}

impl Tickets {
    pub(crate) fn new(clock: Arc<Clock>, until: u64) -> Result<Tickets, Error> {
        Ok(Tickets {
            inner: Ticketer::new()?,
            clock,
            until,
        })
    }

    fn left(&self) -> u64 {
        self.until.saturating_sub(self.clock.now())
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        self.inner.enabled()
    }

    fn lifetime(&self) -> u32 {
        let left = u32::try_from(self.left()).unwrap_or(u32::MAX);
        self.inner.lifetime().min(left)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        (self.left() > 0).then(|| self.inner.encrypt(plain))?
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        (self.left() > 0).then(|| self.inner.decrypt(cipher))?
    }
}
