//! Connections on their way from one Worker to another that have more state than a client's socket.

use std::sync::Arc;
use std::time::Instant;

use heddle_wire::link::Hello;

use crate::authorize::Carried;
use crate::io::Packed;
use crate::place::Place;
use crate::rooms::RequestPermit;

/// The origin of a flow: what the log shows of it beside its byte counts.
#[derive(Debug)]
pub(crate) struct Origin {
    /// Name of the Service's port, in metrics and log.
    pub(crate) destination: Arc<str>,
    /// When the client was accepted; after HTTP requests, when the last one was answered.
    pub(crate) began: Instant,
    /// Number of endpoints that were tried.
    pub(crate) attempts: u32,
    /// What policies judge: the request with which it began, or bytes.
    pub(crate) carried: Carried,
    /// Path and route of the request that was upgraded, as the log shows them.
    pub(crate) path: Vec<u8>,
    pub(crate) route: Option<Arc<str>>,
    /// The host that the request named.
    pub(crate) authority: Vec<u8>,
    /// The access log already shows that it is open.
    pub(crate) is_told: bool,
}

/// An opaque connection: what moves with the client's socket.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) endpoint: Place,
    /// The workload behind it, by which the flow is counted: the configuration may not name it any more.
    pub(crate) workload: Option<Arc<str>>,
    /// Its permit for the endpoint, on any Worker.
    pub(crate) permit: Option<RequestPermit>,
    pub(crate) upstream: Packed,
    pub(crate) up: Half,
    pub(crate) down: Half,
    /// When a byte moved last.
    pub(crate) moved: Instant,
    pub(crate) origin: Origin,
    pub(crate) carried: (u64, u64),
}

/// One direction of a flow.
#[derive(Debug)]
pub(crate) struct Half {
    /// Bytes read and not yet written: at most a window, since a pump that has something to write reads nothing.
    pub(crate) in_hand: Vec<u8>,
    /// The source has ended, and the sink was told.
    pub(crate) ended: bool,
}

/// A socket on which another node wants a link that another Worker has, or shall have.
#[derive(Debug)]
pub(crate) struct LinkSocket {
    /// The caller's first frame.
    pub(crate) hello: Hello,
    /// The bytes that were read from it, that frame among them.
    pub(crate) read: Vec<u8>,
    /// Whether the link is to be begun, not resumed.
    pub(crate) is_new: bool,
}

#[cfg(test)]
impl Moving {
    /// A flow that has carried no byte.
    pub(crate) fn fresh(upstream: std::net::TcpStream) -> Self {
        let half = || Half {
            in_hand: Vec::new(),
            ended: false,
        };
        Moving {
            endpoint: Place::here(([127, 0, 0, 1], 1).into()),
            workload: None,
            permit: None,
            upstream: Packed::plain(upstream),
            up: half(),
            down: half(),
            moved: Instant::now(),
            origin: Origin {
                destination: "test/echo".into(),
                began: Instant::now(),
                attempts: 1,
                carried: Carried::Bytes,
                path: Vec::new(),
                route: None,
                authority: Vec::new(),
                is_told: false,
            },
            carried: (0, 0),
        }
    }
}
