//! Callers that only make TLS handshakes: a fixed number a second, each on a connection of its own, each a full one,
//! with a certificate of the mesh.
//!
//! A handshake counts when the server's session ticket has come, since a TLS 1.3 server sends it after it has verified
//! the caller's certificate (RFC 8446 section 4.6.1). No ticket is ever used.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use hdrhistogram::Histogram;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};
use serde::{Deserialize, Serialize};

/// Callers at a time: more than a server that keeps up with the rate ever sees.
const THREADS: u32 = 32;
/// The timeout for connecting, and for each read and write.
const PATIENCE: Duration = Duration::from_secs(5);

/// Options of `heddle-lab handshakes`.
#[derive(Args, Clone)]
pub struct Handshakes {
    /// The server to call.
    #[arg(long, value_name = "ADDRESS:PORT")]
    to: SocketAddr,
    /// The name to ask for (SNI).
    #[arg(long)]
    name: String,
    /// The protocol to offer (ALPN).
    #[arg(long)]
    protocol: String,
    /// The certificate to show, in PEM.
    #[arg(long, value_name = "FILE")]
    certificate: PathBuf,
    /// Its key, in PEM.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Handshakes per second.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Seconds over which handshakes are made.
    #[arg(long)]
    seconds: f64,
}

/// The results. Latencies are in microseconds, from the time at which a handshake was due to its ticket.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Shaken {
    pub(super) handshakes: u64,
    pub(super) seconds: f64,
    pub(super) errors: BTreeMap<String, u64>,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

/// Makes handshakes until the time is up, and prints the results as one line of JSON.
pub fn run(options: &Handshakes) -> anyhow::Result<()> {
    let config = Arc::new(config(options)?);
    let name = ServerName::try_from(options.name.clone()).context("--name")?;
    let found = Mutex::new(HandshakeResults::new()?);
    let start = Instant::now();
    let gap = Duration::from_secs_f64(f64::from(THREADS) / f64::from(options.rate));
    let end = start + Duration::from_secs_f64(options.seconds);
    thread::scope(|scope| {
        for index in 0..THREADS {
            let (config, name, found) = (&config, &name, &found);
            scope.spawn(move || {
                let mut due = start + gap * index / THREADS;
                // Handshakes that a stalled server has delayed beyond the end are not made, and are missing in the
                // count.
                while due < end && Instant::now() < end {
                    wait_until(due);
                    let outcome = shake(options.to, config, name);
                    let took = due.elapsed();
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    found.add(outcome, took);
                    due += gap;
                }
            });
        }
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut line = serde_json::to_vec(&found.shaken(start.elapsed()))?;
    line.push(b'\n');
    std::io::stdout().write_all(&line).context("stdout")
}

/// Sleeps until that time.
pub(super) fn wait_until(due: Instant) {
    while let Some(left) = due.checked_duration_since(Instant::now()) {
        thread::park_timeout(left);
    }
}

struct HandshakeResults {
    latencies: Histogram<u64>,
    errors: BTreeMap<String, u64>,
}

impl HandshakeResults {
    fn new() -> anyhow::Result<HandshakeResults> {
        Ok(HandshakeResults {
            latencies: Histogram::new_with_bounds(1, 60_000_000, 2)?,
            errors: BTreeMap::new(),
        })
    }

    fn add(&mut self, outcome: std::io::Result<()>, took: Duration) {
        match outcome {
            Ok(()) => {
                let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
                self.latencies.saturating_record(took.max(1));
            }
            Err(error) => *self.errors.entry(error.to_string()).or_default() += 1,
        }
    }

    fn shaken(self, took: Duration) -> Shaken {
        let quantile = |quantile: f64| self.latencies.value_at_quantile(quantile) as f64;
        Shaken {
            handshakes: self.latencies.len(),
            seconds: took.as_secs_f64(),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            errors: self.errors,
        }
    }
}

/// One connection, one whole handshake, and the ticket that ends it.
fn shake(
    to: SocketAddr,
    config: &Arc<ClientConfig>,
    name: &ServerName<'static>,
) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut connection = ClientConnection::new(Arc::clone(config), name.clone())
        .map_err(|error| std::io::Error::new(ErrorKind::InvalidInput, error))?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    while connection.tls13_tickets_received() == 0 {
        if connection.read_tls(&mut stream)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        connection
            .process_new_packets()
            .map_err(|error| std::io::Error::new(ErrorKind::InvalidData, error))?;
    }
    connection.send_close_notify();
    connection.write_tls(&mut stream)?;
    Ok(())
}

fn config(options: &Handshakes) -> anyhow::Result<ClientConfig> {
    let certificates = CertificateDer::pem_file_iter(&options.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("{}", options.certificate.display()))?;
    let key = PrivateKeyDer::from_pem_slice(&fs::read(&options.key)?)
        .with_context(|| format!("{}", options.key.display()))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer))
        .with_client_auth_cert(certificates, key)?;
    config.alpn_protocols = vec![options.protocol.clone().into_bytes()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Accepts every server certificate: only the server's work is measured, and no data is ever sent to it.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ED25519,
        ]
    }
}

#[cfg(test)]
mod tests;
