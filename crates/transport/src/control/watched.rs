//! A client's stream that remembers how the server has refused it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use rustls::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::Refusal;

/// A stream over TLS. In TLS 1.3 the server judges the client's certificate after the client's handshake is complete,
/// so its alert is an error of the first read, which may be deep inside a protocol that hides the reason.
#[derive(Debug)]
pub struct WatchedStream<IO> {
    stream: IO,
    refused: Arc<OnceLock<Refusal>>,
}

impl<IO> WatchedStream<IO> {
    /// Watches a stream whose I/O errors have TLS errors in them.
    pub fn new(stream: IO) -> Self {
        WatchedStream {
            stream,
            refused: Arc::default(),
        }
    }

    /// Gets its value when a read fails with a TLS error.
    pub fn refused(&self) -> Arc<OnceLock<Refusal>> {
        Arc::clone(&self.refused)
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for WatchedStream<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Poll::Ready(Err(error)) = &read {
            let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
            if let Some(tls) = tls {
                let _first_counts = self.refused.set(Error::clone(tls).into());
            }
        }
        read
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for WatchedStream<IO> {
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
