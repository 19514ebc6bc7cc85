//! A node's connection to the control plane, as `heddle_xds::Client` makes it, with a gate: a node that is dead has its
//! connection open and reads nothing of it.

use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use heddle_transport::control::Connector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// Keepalive, as nodes have it.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(20);
const KEEP_ALIVE_WAIT: Duration = Duration::from_secs(10);

/// Opens a connection. Once `is_dead`, nothing is read any more. A node that will be dead sends no keepalives: it would
/// miss the answers, and end the connection.
///
/// # Errors
/// When the control plane does not answer, or one end refuses the other.
pub(crate) async fn open(
    to: SocketAddr,
    connector: &Connector,
    is_dead: Arc<AtomicBool>,
    has_keepalive: bool,
) -> anyhow::Result<Channel> {
    let stream = TcpStream::connect(to).await.context("connect")?;
    stream.set_nodelay(true)?;
    let (stream, _control) = connector.connect(stream).await.context("handshake")?;
    // The connection is open: the name is never resolved.
    let mut endpoint = Endpoint::from_static("http://control.heddle");
    if has_keepalive {
        endpoint = endpoint
            .http2_keep_alive_interval(KEEP_ALIVE_EVERY)
            .keep_alive_timeout(KEEP_ALIVE_WAIT)
            .keep_alive_while_idle(true);
    }
    let once = Mutex::new(Some(Gate { stream, is_dead }));
    let connector = service_fn(move |_| {
        let stream = once.lock().unwrap_or_else(PoisonError::into_inner).take();
        let ended = || io::Error::new(io::ErrorKind::NotConnected, "the connection has ended");
        ready(stream.map(TokioIo::new).ok_or_else(ended))
    });
    Ok(endpoint.connect_with_connector(connector).await?)
}

struct Gate<IO> {
    stream: IO,
    is_dead: Arc<AtomicBool>,
}

impl<IO: AsyncRead + Unpin> AsyncRead for Gate<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.is_dead.load(Ordering::Relaxed) {
            // Nothing wakes the reader again.
            true => Poll::Pending,
            false => Pin::new(&mut self.stream).poll_read(cx, buf),
        }
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Gate<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
