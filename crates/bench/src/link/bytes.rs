//! Bytes of an exchange between two proxies.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use crate::meter::{Meter, Moved, OnSockets, on_sockets};

/// How long after the last answer all bytes have been sent: longer than either end of a link waits before it
/// acknowledges received data.
pub(super) const SETTLES_IN: Duration = Duration::from_millis(800);

/// The counters of the bytes between two proxies at one moment.
pub(super) struct ByteReading {
    below_tls: Option<Moved>,
    on_sockets: OnSockets,
}

/// Bytes and segments for each exchange.
#[derive(Debug, PartialEq)]
pub(super) struct PerExchange {
    /// Bytes below TLS, where the near proxy counts them: all of them, and those that are not bodies.
    pub(super) bytes: Option<f64>,
    pub(super) overhead_bytes: Option<f64>,
    /// Bytes on the sockets, and TCP segments, in both directions. `None` if connections were opened or closed
    /// meanwhile: a closed connection takes its counters along.
    pub(super) socket_bytes: Option<f64>,
    pub(super) segments: Option<f64>,
}

impl ByteReading {
    /// Waits until all bytes have been sent, and reads the counters.
    ///
    /// # Errors
    /// When the counters of the proxy or of the kernel cannot be read.
    pub(super) fn take(meter: Option<&Meter>, between: SocketAddr) -> anyhow::Result<ByteReading> {
        thread::park_timeout(SETTLES_IN);
        Ok(ByteReading {
            below_tls: meter.map(Meter::read).transpose()?.flatten(),
            on_sockets: on_sockets(between)?,
        })
    }

    /// The difference of two readings, divided by the exchanges between them.
    pub(super) fn until(&self, end: &ByteReading, exchanges: u64, body_bytes: u64) -> PerExchange {
        let each = |bytes: u64| bytes as f64 / exchanges.max(1) as f64;
        let (before, after) = (&self.on_sockets, &end.on_sockets);
        let same = before.connections == after.connections
            && after.moved.sent >= before.moved.sent
            && after.moved.received >= before.moved.received
            && after.segments >= before.segments;
        let below = self.below_tls.zip(end.below_tls);
        let bytes = below.map(|(before, after)| each((after - before).total()));
        PerExchange {
            bytes,
            overhead_bytes: bytes.map(|bytes| bytes - 2.0 * body_bytes as f64),
            socket_bytes: same.then(|| each((after.moved - before.moved).total())),
            segments: same.then(|| each(after.segments - before.segments)),
        }
    }

    /// The reading of two proxies without TLS: the bytes on the sockets are also those below TLS.
    pub(super) fn in_the_clear(self) -> ByteReading {
        ByteReading {
            below_tls: Some(self.on_sockets.moved),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(below: Option<(u64, u64)>, on: (u64, u64), connections: usize) -> ByteReading {
        let moved = |(sent, received)| Moved { sent, received };
        ByteReading {
            below_tls: below.map(moved),
            on_sockets: OnSockets {
                moved: moved(on),
                segments: on.0 / 100,
                connections,
            },
        }
    }

    #[test]
    fn overhead_is_what_is_left_without_both_bodies() {
        let start = reading(Some((1_000, 2_000)), (1_500, 2_500), 4);
        let end = reading(Some((51_000, 42_000)), (61_500, 52_500), 4);
        let expected = PerExchange {
            bytes: Some(900.0),
            overhead_bytes: Some(644.0),
            socket_bytes: Some(1_100.0),
            segments: Some(6.0),
        };
        assert_eq!(start.until(&end, 100, 128), expected);
    }

    #[test]
    fn what_is_not_counted_or_has_gone_is_not_guessed() {
        let start = reading(None, (1_500, 2_500), 4);
        let opened = start.until(&reading(None, (61_500, 52_500), 5), 100, 0);
        assert_eq!((opened.bytes, opened.socket_bytes), (None, None));
        let replaced = start.until(&reading(None, (500, 52_500), 4), 100, 0);
        assert_eq!((replaced.socket_bytes, replaced.segments), (None, None));
    }

    #[test]
    fn in_the_clear_the_sockets_say_it() {
        let start = reading(None, (0, 0), 1).in_the_clear();
        let end = reading(None, (5_000, 3_000), 1).in_the_clear();
        let found = start.until(&end, 10, 128);
        assert_eq!(
            (found.bytes, found.overhead_bytes),
            (Some(800.0), Some(544.0))
        );
    }
}
