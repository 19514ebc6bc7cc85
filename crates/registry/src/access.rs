//! Access to etcd: endpoints, certificates, user.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use heddle_model::check_registry_endpoints;

#[cfg(test)]
mod tests;

/// Limit for a file with a certificate, a key or a password, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Connect timeout.
const CONNECT_WAIT: Duration = Duration::from_secs(3);
/// Keepalive: interval of probes on an idle connection, and how long an answer may take.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEP_ALIVE_WAIT: Duration = Duration::from_secs(3);

/// How to reach etcd. Files are read for each connection, so new certificates and passwords need no restart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// URLs of the cluster's members, such as `http://127.0.0.1:2379`. One is used at a time.
    pub endpoints: Vec<String>,
    /// Certificates for `https` endpoints.
    pub tls: Tls,
    /// The user to log in as, if etcd requires one.
    pub credentials: Option<Credentials>,
}

/// Certificate files in PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// The authority of the cluster's certificate. No other authority is trusted.
    pub ca: Option<PathBuf>,
    /// The client certificate and its key, if the cluster asks for one.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// A user of etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name in etcd.
    pub user: String,
    /// The file with the password; a line feed at its end is ignored.
    pub password: PathBuf,
}

/// A fault of the settings: etcd cannot be reached until the operator changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessError(pub(super) String);

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AccessError {}

impl Access {
    /// Checks the settings for contradictions. No file is read.
    ///
    /// # Errors
    /// [`AccessError`] says what to write instead.
    pub fn check(&self) -> Result<(), AccessError> {
        let (certificates, ca) = (self.tls != Tls::default(), self.tls.ca.is_some());
        check_registry_endpoints(&self.endpoints, certificates, ca)
            .map_err(|error| AccessError(error.to_string()))
    }

    pub(super) fn len(&self) -> usize {
        self.endpoints.len()
    }

    /// The endpoint of this attempt, round robin.
    pub(super) fn endpoint(&self, attempt: usize) -> &str {
        let at = attempt.checked_rem(self.endpoints.len()).unwrap_or(0);
        self.endpoints.get(at).map_or("", String::as_str)
    }

    /// Connects to one endpoint. A client with several endpoints would send calls to a member that is known to be down.
    pub(super) async fn connect(&self, attempt: usize) -> Result<Client, Trouble> {
        let options = self.options().map_err(Trouble::Ours)?;
        let connecting = Client::connect([self.endpoint(attempt)], Some(options));
        let connected = tokio::time::timeout(CONNECT_WAIT, connecting).await;
        Ok(connected.map_err(|_| Trouble::late())??)
    }

    fn options(&self) -> Result<ConnectOptions, String> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_WAIT)
            .with_keep_alive(KEEP_ALIVE_EVERY, KEEP_ALIVE_WAIT)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true);
        if let Some(ca) = &self.tls.ca {
            let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(read(ca)?));
            if let Some((certificate, key)) = &self.tls.own {
                tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
            }
            options = options.with_tls(tls);
        }
        if let Some(Credentials { user, password }) = &self.credentials {
            let text = String::from_utf8(read(password)?)
                .map_err(|_| format!("{} holds no text", password.display()))?;
            options = options
                .with_user(user, text.trim_end_matches(['\r', '\n']))
                .with_auto_token_refresh(true);
        }
        Ok(options)
    }
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let said = |error: std::io::Error| format!("{}: {error}", file.display());
    let length = std::fs::metadata(file).map_err(said)?.len();
    if length > MAX_FILE_BYTES {
        return Err(format!("{} has more than a MiB", file.display()));
    }
    std::fs::read(file).map_err(said)
}

/// Why a call to etcd failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// A fault of ours: a file, or a missing permission in etcd.
    Ours(String),
    /// etcd is unreachable or answered incorrectly; a retry may succeed.
    Away(String),
    /// etcd has compacted the revision.
    Compacted,
    /// The answer is larger than the limit.
    TooLarge,
    /// The lease has ended.
    NoLease,
}

impl Trouble {
    pub(super) fn late() -> Self {
        Trouble::Away("no answer in time".to_owned())
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Ours(why) | Trouble::Away(why) => f.write_str(why),
            Trouble::Compacted => f.write_str("the revision was compacted"),
            Trouble::TooLarge => f.write_str("an answer is too large"),
            Trouble::NoLease => f.write_str("the lease has ended"),
        }
    }
}

impl From<etcd_client::Error> for Trouble {
    fn from(error: etcd_client::Error) -> Self {
        use etcd_client::Error;
        match error {
            Error::GRpcStatus(status) => of_status(&status),
            Error::InvalidArgs(_) | Error::InvalidUri(_) | Error::InvalidMetadataValue(_) => {
                Trouble::Ours(error.to_string())
            }
            // The library reports a missing lease only by this text.
            Error::LeaseKeepAliveError(why) if why == "lease not found" => Trouble::NoLease,
            // The stream on which keepalives or watch requests are sent has ended.
            Error::LeaseKeepAliveError(_) | Error::WatchError(_) => {
                Trouble::Away("the connection has ended".to_owned())
            }
            Error::TransportError(error) => Trouble::Away(causes(&error)),
            other => Trouble::Away(other.to_string()),
        }
    }
}

fn of_status(status: &tonic::Status) -> Trouble {
    use tonic::Code;
    let message = status.message();
    let why = match std::error::Error::source(status) {
        Some(source) if !message.contains(&source.to_string()) => causes(source),
        _ => message.to_owned(),
    };
    match status.code() {
        Code::OutOfRange if message.contains("compacted") => Trouble::Compacted,
        // A message above our limit or the server's.
        Code::OutOfRange | Code::ResourceExhausted
            if message.contains("too large") || message.contains("larger than max") =>
        {
            Trouble::TooLarge
        }
        Code::NotFound if message.contains("lease not found") => Trouble::NoLease,
        Code::Unauthenticated if message.contains("invalid auth token") => Trouble::Away(why),
        Code::PermissionDenied
        | Code::Unauthenticated
        | Code::InvalidArgument
        | Code::FailedPrecondition => Trouble::Ours(why),
        _ => Trouble::Away(why),
    }
}

/// An error and all its causes, except those whose text the error contains already.
fn causes(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
        next = cause.source();
    }
    said
}
