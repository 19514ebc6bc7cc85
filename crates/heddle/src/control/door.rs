//! Admission of connections: the control plane's own certificate, authentication of clients, and counts of refused
//! handshakes.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use heddle_authority::{Authority, ControlLeaf, Denied, Serial, UnixTime};
use heddle_control::{Peer, PeerCertificate};
use heddle_model::calendar::utc;
use heddle_telemetry::Seldom;
use heddle_transport::control::{AcceptError, Acceptor, Unaccepted};
use heddle_transport::{Clock, Leaf, Refusal, Trust};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::server::TlsStream;

#[cfg(test)]
mod tests;

/// Performs TLS handshakes, and keeps the certificate and trust for them current.
pub(super) struct Door {
    authority: Arc<Authority>,
    clock: Arc<Clock>,
    acceptor: Acceptor,
    kept: Mutex<CredentialState>,
    /// Handshakes that were refused, by [`Refusal::index`].
    refused: [AtomicU64; Refusal::CODES.len()],
    /// Limits how often each reason is logged.
    said: Mutex<Seldom<usize>>,
    /// Places of refused clients that may still read why: without one, the connection is closed at once.
    partings: Arc<Semaphore>,
}

/// The clock may go back by so many seconds without another leaf.
const CLOCK_BACK_S: u64 = 60;

/// Limit of refused clients that may still read why.
const PARTINGS: usize = 64;

/// The state of the own certificate and of the trust in use.
#[derive(Clone, PartialEq, Eq)]
struct CredentialState {
    /// The root that the leaf verifies against.
    root_sha256: [u8; 32],
    /// When the leaf was issued, and when it is due for renewal, in seconds since 1970.
    issued_at: u64,
    renew_at: u64,
    /// When the leaf expires, in seconds since 1970.
    not_after: u64,
    /// Generations of the trust bundle and of the deny-list in use.
    believed: (u64, u64),
    /// When the next deny-list entry expires, in seconds since 1970.
    believed_until: u64,
}

impl Door {
    /// Issues the first leaf.
    ///
    /// # Errors
    /// When the authority cannot issue it.
    pub(super) fn open(authority: Arc<Authority>, clock: Arc<Clock>) -> anyhow::Result<Door> {
        let now = clock.now();
        let root_sha256 = authority.root_sha256();
        let (own, leaf) = issue(&authority, now)?;
        let (trust, believed, believed_until) = trust(&authority, now)?;
        let acceptor = Acceptor::new(Arc::clone(&clock), &leaf, &own.root, trust)
            .context("TLS cannot be set up")?;
        Ok(Door {
            authority,
            clock,
            acceptor,
            kept: Mutex::new(CredentialState {
                root_sha256,
                issued_at: now,
                renew_at: half_life(now, leaf.not_after()),
                not_after: leaf.not_after(),
                believed,
                believed_until,
            }),
            refused: Default::default(),
            said: Mutex::new(Seldom::default()),
            partings: Arc::new(Semaphore::new(PARTINGS)),
        })
    }

    /// Renews the leaf at half of its life, or at once when another root signs; takes over the authority's current
    /// trust. Signing takes a moment.
    ///
    /// # Errors
    /// When signing or the TLS configuration fails; the old state stays in use.
    pub(super) fn refresh(&self) -> anyhow::Result<()> {
        let now = self.clock.now();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let trusted = self.authority.trust();
        let generations = (trusted.bundle.generation, trusted.denied.generation);
        // Trust comes first: the certificate of a new root is used only after clients of both roots are accepted.
        if kept.believed != generations || kept.believed_until <= now {
            let (trust, believed, until) = trust(&self.authority, now)?;
            self.acceptor
                .believe(trust)
                .context("TLS cannot be set up")?;
            (kept.believed, kept.believed_until) = (believed, until);
        }
        let root_sha256 = self.authority.root_sha256();
        // One that was issued while the clock was ahead may not be valid yet.
        let is_of_later = now.saturating_add(CLOCK_BACK_S) < kept.issued_at;
        if is_of_later {
            tracing::warn!(
                "the clock went back by {} s: nodes whose certificates were issued in the meantime may be refused as not \
                 valid yet",
                kept.issued_at - now
            );
        }
        if kept.root_sha256 != root_sha256 || kept.renew_at <= now || is_of_later {
            let (own, leaf) = issue(&self.authority, now)?;
            self.acceptor
                .show(&leaf, &own.root)
                .context("TLS cannot be set up")?;
            kept.root_sha256 = root_sha256;
            (kept.issued_at, kept.renew_at) = (now, half_life(now, leaf.not_after()));
            kept.not_after = leaf.not_after();
            let until = utc(leaf.not_after());
            tracing::info!("the control plane's own certificate was renewed, until {until}");
        }
        Ok(())
    }

    /// Expiry of the certificate in use, in seconds since 1970.
    pub(super) fn not_after(&self) -> u64 {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.not_after
    }

    /// Number of refused handshakes, by the code of the reason.
    pub(super) fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.refused.iter().map(|count| count.load(Relaxed));
        Refusal::CODES.into_iter().zip(counts)
    }

    /// Performs the handshake with a client. Refusals are logged, each reason at most every few seconds: a client
    /// without a certificate can make as many attempts as there are connections free.
    pub(super) async fn shake(
        &self,
        stream: TcpStream,
        address: SocketAddr,
    ) -> io::Result<(TlsStream<TcpStream>, Peer)> {
        let (stream, peer) = match self.acceptor.accept(stream).await {
            Ok(accepted) => accepted,
            Err(unaccepted) => return Err(self.refuse(address, unaccepted)),
        };
        let certificate = peer.map(|peer| PeerCertificate {
            serial: Serial::from_be_bytes(&peer.serial),
            id: peer.id,
            not_after: peer.not_after,
        });
        let peer = Peer {
            address: Some(address),
            certificate,
        };
        Ok((stream, peer))
    }

    /// Counts a refusal, and lets the client read it, in a task of its own: the next handshake does not wait for that.
    fn refuse(&self, address: SocketAddr, unaccepted: Unaccepted<TcpStream>) -> io::Error {
        let said = unaccepted.error.to_string();
        if let AcceptError::Refused(refusal) = &unaccepted.error {
            self.note(address, refusal);
            if let Ok(place) = Arc::clone(&self.partings).try_acquire_owned() {
                tokio::spawn(async move {
                    unaccepted.part().await;
                    drop(place);
                });
            }
        }
        io::Error::other(said)
    }

    fn note(&self, address: SocketAddr, refusal: &Refusal) {
        let index = refusal.index();
        if let Some(count) = self.refused.get(index) {
            count.fetch_add(1, Relaxed);
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.may_name(index, Instant::now()) {
            let reason = refusal.code();
            tracing::warn!(%address, reason, "a connection was refused: {refusal}");
        }
    }
}

fn issue(authority: &Authority, now: u64) -> anyhow::Result<(ControlLeaf, Leaf)> {
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
    let own = authority
        .issue_control(now)
        .context("the control plane cannot issue its own certificate")?;
    let chain = own.issued.chain.iter().map(|der| der.to_vec()).collect();
    let leaf = Leaf::new(chain, &own.key)
        .context("the control plane's own certificate is not understood")?;
    Ok((own, leaf))
}

fn half_life(now: u64, not_after: u64) -> u64 {
    now + not_after.saturating_sub(now) / 2
}

type Believed = (Arc<Trust>, (u64, u64), u64);

/// The authority's current trust, its generations, and the time at which a deny-list entry ends it.
fn trust(authority: &Authority, now: u64) -> anyhow::Result<Believed> {
    let trust = authority.trust();
    let mut denied = heddle_transport::Denied::default();
    let mut until = u64::MAX;
    let alive = trust
        .denied
        .entries()
        .filter(|(_, entry)| entry.expires > now);
    for (what, entry) in alive {
        until = until.min(entry.expires);
        match what {
            Denied::Serial(serial) => {
                let bytes = serial.as_bytes();
                let first = bytes.iter().position(|byte| *byte != 0);
                let bytes = first
                    .and_then(|first| bytes.get(first..))
                    .unwrap_or_default();
                denied.serials.insert(bytes.into());
            }
            Denied::Identity(id) => {
                denied.ids.insert(id.clone());
            }
        }
    }
    let roots: Vec<Vec<u8>> = trust
        .bundle
        .roots
        .iter()
        .map(|root| root.to_vec())
        .collect();
    let believed = Trust::new(authority.trust_domain().clone(), &roots, denied)
        .context("the authority's roots cannot be used")?;
    let generations = (trust.bundle.generation, trust.denied.generation);
    Ok((Arc::new(believed), generations, until))
}
