//! Who comes in: the control plane's own certificate, which clients it believes, and who was turned away.

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
use heddle_transport::control::{AcceptError, Acceptor};
use heddle_transport::{Clock, Leaf, Refusal, Trust};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

#[cfg(test)]
mod tests;

/// Makes authenticated peers of connections, and keeps what that takes fresh.
pub(super) struct Door {
    authority: Arc<Authority>,
    clock: Arc<Clock>,
    acceptor: Acceptor,
    kept: Mutex<CredentialState>,
    /// Handshakes that were refused, by [`Refusal::index`].
    refused: [AtomicU64; Refusal::CODES.len()],
    /// Reasons that were logged a moment ago.
    said: Mutex<Seldom<usize>>,
}

/// What is shown and believed, and until when.
#[derive(Clone, PartialEq, Eq)]
struct CredentialState {
    /// The root that the leaf verifies against.
    root_sha256: [u8; 32],
    /// The leaf is renewed then; seconds since 1970.
    renew_at: u64,
    /// It expires then.
    not_after: u64,
    /// Generations of the roots and of the deny-list.
    believed: (u64, u64),
    /// An entry of the deny-list expires then.
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
                renew_at: half_life(now, leaf.not_after()),
                not_after: leaf.not_after(),
                believed,
                believed_until,
            }),
            refused: Default::default(),
            said: Mutex::new(Seldom::default()),
        })
    }

    /// Renews the leaf at half of its life, or at once when another root signs; believes the
    /// same clients as the authority. It signs, and so takes a moment.
    ///
    /// # Errors
    /// What could not be done; the old is kept.
    pub(super) fn refresh(&self) -> anyhow::Result<()> {
        let now = self.clock.now();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let trusted = self.authority.trust();
        let generations = (trusted.bundle.generation, trusted.denied.generation);
        // Believed first: a new root is shown only to those who can be told of it.
        if kept.believed != generations || kept.believed_until <= now {
            let (trust, believed, until) = trust(&self.authority, now)?;
            self.acceptor
                .believe(trust)
                .context("TLS cannot be set up")?;
            (kept.believed, kept.believed_until) = (believed, until);
        }
        let root_sha256 = self.authority.root_sha256();
        if kept.root_sha256 != root_sha256 || kept.renew_at <= now {
            let (own, leaf) = issue(&self.authority, now)?;
            self.acceptor
                .show(&leaf, &own.root)
                .context("TLS cannot be set up")?;
            kept.root_sha256 = root_sha256;
            kept.renew_at = half_life(now, leaf.not_after());
            kept.not_after = leaf.not_after();
            let until = utc(leaf.not_after());
            tracing::info!("the own certificate was renewed, until {until}");
        }
        Ok(())
    }

    /// When the certificate expires that is shown, in seconds since 1970.
    pub(super) fn not_after(&self) -> u64 {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.not_after
    }

    /// Handshakes that were refused, with the reason's name.
    pub(super) fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.refused.iter().map(|count| count.load(Relaxed));
        Refusal::CODES.into_iter().zip(counts)
    }

    /// Shakes hands with a client that has connected. Why a client is refused is logged, a reason at most every
    /// few seconds: one without a certificate can make as many attempts as there is room for.
    pub(super) async fn shake(
        &self,
        stream: TcpStream,
        address: SocketAddr,
    ) -> io::Result<(TlsStream<TcpStream>, Peer)> {
        let (stream, peer) = self.acceptor.accept(stream).await.map_err(|error| {
            if let AcceptError::Refused(refusal) = &error {
                self.note(address, refusal);
            }
            io::Error::other(error)
        })?;
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
    let leaf = Leaf::new(chain, &own.key).context("the own certificate is not understood")?;
    Ok((own, leaf))
}

fn half_life(now: u64, not_after: u64) -> u64 {
    now + not_after.saturating_sub(now) / 2
}

type Believed = (Arc<Trust>, (u64, u64), u64);

/// What to believe, which generations that is, and until when.
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
        .context("the authority's roots cannot be believed")?;
    let generations = (trust.bundle.generation, trust.denied.generation);
    Ok((Arc::new(believed), generations, until))
}
