//! One question to a kubelet: `GET /pods`, over a connection of its own, so that renewed files need no restart.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use heddle_node::settings::{KubeletSettings, KubeletUrl};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, HOST, HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::CertificateError;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::tls;

#[cfg(test)]
mod tests;

/// From the first byte to the last.
const WAIT: Duration = Duration::from_secs(10);
/// Largest answer, in bytes. A pod has some 5 KB, at most 1.5 MB.
const MAX_ANSWER: usize = 64 << 20;
/// Largest file with a token, in bytes.
const MAX_TOKEN: u64 = 64 << 10;

/// Asks one kubelet.
pub(super) struct Client {
    url: KubeletUrl,
    files: tls::Files,
    token: Option<PathBuf>,
    max_answer: usize,
}

/// Why there is no answer, with a remedy where there is one.
#[derive(Debug)]
pub(super) struct Trouble(String);

impl Trouble {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Trouble(why.into())
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

impl Client {
    /// `None` when the settings name no kubelet.
    pub(super) fn new(settings: &KubeletSettings) -> Option<Self> {
        Some(Client {
            url: settings.url()?.clone(),
            files: tls::Files::of(settings),
            token: settings.token_file.clone(),
            max_answer: MAX_ANSWER,
        })
    }

    /// Asks for all pods, and returns the answer as it came.
    pub(super) async fn pods(&self) -> Result<Bytes, Trouble> {
        let asked = timeout(WAIT, self.ask()).await;
        asked.unwrap_or_else(|_| {
            let seconds = WAIT.as_secs();
            Err(Trouble(format!("no answer within {seconds} s")))
        })
    }

    async fn ask(&self) -> Result<Bytes, Trouble> {
        let request = self.request()?;
        let connected = TcpStream::connect((self.url.host.as_str(), self.url.port)).await;
        let stream = connected.map_err(|error| {
            Trouble(format!(
                "{error}: see whether the kubelet runs, and at this address and port"
            ))
        })?;
        if !self.url.is_tls {
            return self.exchange(stream, request).await;
        }
        let name = ServerName::try_from(self.url.host.clone())
            .map_err(|_| Trouble(format!("{} is no name of a server", self.url.host)))?;
        let config = self.files.config().map_err(Trouble)?;
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector.connect(name, stream).await;
        let stream = stream.map_err(|error| of_tls(&error))?;
        self.exchange(stream, request).await
    }

    fn request(&self) -> Result<Request<Empty<Bytes>>, Trouble> {
        let mut request = Request::get("/pods")
            .header(HOST, self.url.authority())
            .header(USER_AGENT, concat!("heddle/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "application/json");
        if let Some(file) = &self.token {
            let token = tls::read(file, MAX_TOKEN).map_err(|why| of_token(file, &why))?;
            let text = format!("Bearer {}", String::from_utf8_lossy(&token).trim());
            let mut value =
                HeaderValue::try_from(text).map_err(|_| of_token(file, "it holds no token"))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        request
            .body(Empty::new())
            .map_err(|error| Trouble(error.to_string()))
    }

    async fn exchange<S>(&self, stream: S, request: Request<Empty<Bytes>>) -> Result<Bytes, Trouble>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| of_http(&error))?;
        // It ends with this question.
        let running = Running(tokio::spawn(connection));
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| of_http(&error))?;
        let status = response.status();
        if status != StatusCode::OK {
            return Err(of_status(status));
        }
        let body = Limited::new(response.into_body(), self.max_answer);
        let body = body.collect().await.map_err(|error| {
            match error.downcast_ref::<LengthLimitError>() {
                Some(_) => Trouble(format!(
                    "its answer has more than {} MiB",
                    self.max_answer >> 20
                )),
                None => Trouble(format!("its answer broke off: {error}")),
            }
        })?;
        drop(running);
        Ok(body.to_bytes())
    }
}

/// A connection's task, which ends with its owner.
struct Running<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn of_token(file: &Path, why: &str) -> Trouble {
    Trouble(format!("qos.kubelet.token_file: {}: {why}", file.display()))
}

/// The kubelet's authorization: k8s.io/kubernetes/pkg/kubelet/server/auth.go.
fn of_status(status: StatusCode) -> Trouble {
    let remedy = match status {
        StatusCode::UNAUTHORIZED => {
            "it does not know who asks: give a token that is valid (--kubelet-token) or a client certificate (--kubelet-certificate)"
        }
        StatusCode::FORBIDDEN => {
            "it refuses: allow the agent's account to get nodes/pods by a ClusterRole, before Kubernetes 1.33 nodes/proxy"
        }
        StatusCode::NOT_FOUND => "see whether a kubelet is at this address and port",
        _ => "see the kubelet's log",
    };
    Trouble(format!("it answers {}: {remedy}", status.as_u16()))
}

fn of_tls(error: &io::Error) -> Trouble {
    let inner = error.get_ref();
    let inner = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(reason)) => Trouble(format!(
            "its certificate is not trusted: {}: name that certificate or its authority by --kubelet-ca",
            of_certificate(reason)
        )),
        Some(rustls::Error::InvalidMessage(_)) => {
            Trouble("it does not speak TLS: see whether the port is right".to_owned())
        }
        _ => Trouble(format!("TLS: {error}")),
    }
}

/// Why a certificate is not trusted.
fn of_certificate(reason: &CertificateError) -> String {
    use CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
        NotValidYetContext, Other, UnknownIssuer,
    };
    match reason {
        Expired | ExpiredContext { .. } => "it has expired".to_owned(),
        NotValidYet | NotValidYetContext { .. } => {
            "it is not valid yet: see whether the clock is right".to_owned()
        }
        NotValidForName | NotValidForNameContext { .. } => {
            "it is for another name than that of the URL".to_owned()
        }
        UnknownIssuer => "no authority in that file has signed it".to_owned(),
        // What webpki says, which has no text for it.
        Other(error) if error.to_string() == "CaUsedAsEndEntity" => {
            "it is that of an authority, or one that has signed itself, and not the one in that file"
                .to_owned()
        }
        other => other.to_string(),
    }
}

fn of_http(error: &hyper::Error) -> Trouble {
    let cause = std::error::Error::source(error);
    let cause = cause.map(|cause| format!(": {cause}"));
    Trouble(format!("{error}{}", cause.unwrap_or_default()))
}
