//! Joining: exchanges a token for the node's first certificate.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use heddle_model::calendar::utc;
use heddle_model::{NodeName, SpiffeId};
use heddle_transport::control::{ConnectError, Connector};
use heddle_transport::secrets::JoinToken;
use heddle_transport::{Clock, Leaf, Refusal};
use heddle_xds::{Client, ClientError, DenyList, Joined};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustls_pki_types::CertificateDer;
use tokio::sync::oneshot;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::courier::dial;
use super::key::LeafKey;
use super::trusted::Trusted;

#[cfg(test)]
mod tests;

/// Timeout of the TLS handshake.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);
/// Longest text that is read as a token, in bytes.
const MAX_TOKEN_FILE: usize = 4 * 1024;

/// Key, certificate and trust of a node that has just joined.
pub(super) struct NewNode {
    pub(super) leaf: Arc<Leaf>,
    pub(super) key: LeafKey,
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) trusted: Trusted,
}

/// Why a node has not joined.
#[derive(Debug)]
pub(super) enum JoinFailure {
    /// Another try, later, may succeed.
    ForNow(String),
    /// An operator has to act.
    ForGood(String),
}

/// Where a token comes from.
#[derive(Debug)]
pub(crate) struct TokenFile {
    /// `-` is standard input.
    path: PathBuf,
    /// Result of opening it early, for a process that may lose the right to open it later.
    opened: Option<io::Result<File>>,
}

impl TokenFile {
    /// A file that is opened when the token is needed.
    pub(crate) fn at(path: PathBuf) -> TokenFile {
        TokenFile { path, opened: None }
    }

    /// A file that is opened now, and read when the token is needed. Opening a pipe does not wait for its
    /// writer.
    pub(crate) fn open(path: PathBuf) -> TokenFile {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let opened = File::options().read(true).custom_flags(flags).open(&path);
        TokenFile {
            path,
            opened: Some(opened),
        }
    }

    /// Whether it is a regular file. A token on standard input or in a pipe can be read only once.
    pub(crate) fn is_file(&self) -> bool {
        match &self.opened {
            Some(Ok(file)) => file.metadata().is_ok_and(|found| found.is_file()),
            Some(Err(_)) => false,
            None => self.path != Path::new("-") && self.path.is_file(),
        }
    }
}

/// Reads a token from a file, or from standard input (`-`). Both may block until the writer writes, so a thread reads;
/// dropping the returned future does not wait for that thread.
///
/// # Errors
/// When it cannot be read, or is not a token.
pub(crate) async fn read_token(from: TokenFile) -> anyhow::Result<JoinToken> {
    let (sender, read) = oneshot::channel();
    std::thread::Builder::new()
        .name("token".to_owned())
        .spawn(move || {
            // The receiver is gone when a signal came first.
            let _ = sender.send(read_token_waiting(from));
        })
        .context("cannot start a thread")?;
    read.await.context("the token could not be read")?
}

fn read_token_waiting(from: TokenFile) -> anyhow::Result<JoinToken> {
    let TokenFile { path, opened } = from;
    let shown = path.display();
    let text = match opened {
        Some(opened) => opened.and_then(wait_written).and_then(read_text),
        None if path == Path::new("-") => read_text(io::stdin().lock()),
        None => File::open(&path).and_then(read_text),
    };
    let text = text.with_context(|| format!("cannot read the token from {shown}"))?;
    if text.len() > MAX_TOKEN_FILE {
        return Err(anyhow!(
            "{shown} holds more than a token: it is longer than {MAX_TOKEN_FILE} bytes, a token is one line that \
             begins with heddle- (heddle token create NODE)"
        ));
    }
    if text.trim().is_empty() {
        // The command at the other end of a pipe may have failed.
        return Err(anyhow!("{shown} is empty, there is no token in it"));
    }
    JoinToken::parse(text.trim()).ok_or_else(|| {
        anyhow!(
            "{shown} holds no token: a token is one line that begins with heddle- (heddle token create NODE)"
        )
    })
}

/// Waits for the first bytes in a file that was opened non-blocking, then makes it blocking.
fn wait_written(file: File) -> io::Result<File> {
    while let Err(error) = poll(&mut [PollFd::new(&file, PollFlags::IN)], None) {
        if error != Errno::INTR {
            return Err(error.into());
        }
    }
    rustix::io::ioctl_fionbio(&file, false)?;
    Ok(file)
}

/// Reads to the end, but at most one byte more than [`MAX_TOKEN_FILE`]: the caller sees by it that the text is too
/// long.
fn read_text(from: impl Read) -> io::Result<Zeroizing<String>> {
    // A buffer that grows would leave copies of the secret in freed memory.
    let mut text = Zeroizing::new(String::with_capacity(MAX_TOKEN_FILE + 2));
    let most = u64::try_from(MAX_TOKEN_FILE).unwrap_or(u64::MAX);
    from.take(most.saturating_add(1))
        .read_to_string(&mut text)?;
    Ok(text)
}

/// Tries once to join.
pub(super) async fn join(
    control: &str,
    name: &NodeName,
    token: &JoinToken,
    clock: &Arc<Clock>,
) -> Result<NewNode, JoinFailure> {
    let for_good = |why: &dyn fmt::Display| JoinFailure::ForGood(why.to_string());
    let for_now = |why: &dyn fmt::Display| JoinFailure::ForNow(why.to_string());
    let connector =
        Connector::joining(token.root_sha256, clock).map_err(|error| for_good(&error))?;
    let stream = dial(control).await.map_err(|error| for_now(&error))?;
    let shaken = timeout(HANDSHAKE_WAIT, connector.connect(stream)).await;
    let shaken = shaken.map_err(|_| for_now(&"the handshake took too long"))?;
    let (stream, peer) = shaken.map_err(|error| unbelieved(error, control, &connector, clock))?;
    let client = Client::over(stream)
        .await
        .map_err(|error| for_now(&error))?;
    let key =
        LeafKey::generate().ok_or_else(|| for_now(&"the system's random generator failed"))?;
    let request = key
        .request()
        .ok_or_else(|| for_good(&"no certificate request could be made"))?;
    let secret = (token.id.as_str(), token.secret.as_bytes());
    let joined = client
        .join(name, secret, &request)
        .await
        .map_err(|error| refused(&error))?;
    check(joined, key, name, token, (clock, &peer.id))
        .map_err(|why| for_good(&format!("the control plane's answer: {why}")))
}

/// Why the handshake failed; the token's secret was not sent.
fn unbelieved(
    error: ConnectError,
    control: &str,
    connector: &Connector,
    clock: &Clock,
) -> JoinFailure {
    match error {
        ConnectError::Io(error) => JoinFailure::ForNow(error.to_string()),
        ConnectError::Refused(Refusal::UnknownAuthority) => JoinFailure::ForGood(format!(
            "{control} has no certificate of the root that the token names, so the token's secret was not sent \
             (is it the control plane that made the token? after its root was replaced, make a new one)"
        )),
        ConnectError::Refused(refusal @ (Refusal::NotYetValid | Refusal::Expired)) => {
            // Retried until the clock is set: on a machine without a clock battery that takes a moment after boot.
            let valid = connector.shown_validity();
            let valid = valid.map(|(from, until)| {
                format!("it is valid from {} until {}, ", utc(from), utc(until))
            });
            JoinFailure::ForNow(format!(
                "{control}: its certificate is refused: {refusal} ({}this node's clock shows {}: compare the clocks)",
                valid.unwrap_or_default(),
                utc(clock.now())
            ))
        }
        ConnectError::Refused(refusal) => {
            JoinFailure::ForGood(format!("{control}: its certificate is refused: {refusal}"))
        }
    }
}

fn refused(error: &ClientError) -> JoinFailure {
    match error.is_transient() {
        true => JoinFailure::ForNow(error.to_string()),
        false => JoinFailure::ForGood(format!(
            "{error} (a token is for one node and one use, and one whose answer was lost is used up: make \
             another with heddle token create NODE)"
        )),
    }
}

/// Checks the control plane's answer against the token and the node's name.
fn check(
    joined: Joined,
    key: LeafKey,
    name: &NodeName,
    token: &JoinToken,
    (clock, control): (&Arc<Clock>, &SpiffeId),
) -> Result<NewNode, String> {
    let Joined {
        certificate,
        bundle,
        trust_domain,
    } = joined;
    if trust_domain != control.trust_domain {
        return Err(format!(
            "it is for trust domain {trust_domain}, but its certificate is that of {control}"
        ));
    }
    let own = SpiffeId::node(trust_domain.clone(), name.clone());
    let chain = certificate.chain.iter().map(|der| der.to_vec()).collect();
    let leaf = Leaf::new(chain, key.pkcs8()).map_err(|error| error.to_string())?;
    if *leaf.id() != own {
        return Err(format!(
            "its certificate is for {}, not for {own}",
            leaf.id()
        ));
    }
    let trusted = Trusted {
        domain: trust_domain,
        bundle,
        denied: DenyList::default(),
    };
    if !trusted.has_root(&token.root_sha256) {
        return Err("the trust bundle does not contain the token's root".to_owned());
    }
    let trust = trusted
        .in_force(clock.now())
        .map_err(|error| error.to_string())?;
    leaf.verify(&trust, clock.now())
        .map_err(|refusal| refusal.to_string())?;
    clock.raise(leaf.not_before());
    Ok(NewNode {
        leaf: Arc::new(leaf),
        key,
        chain: certificate.chain,
        trusted,
    })
}
