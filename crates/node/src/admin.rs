//! Who may talk to a running process, and how.
//!
//! Operator commands use a Unix socket: mode 0600 in a folder of the user's own, and a client
//! must be the same user or root. TCP serves `/metrics` and `/ready`, nothing else.
//! Both are bounded: a fixed number of connections, one request each of a bounded length, a deadline for
//! all of it. A connection that has not asked yet gives way when there is no room for another.
//!
//! The server knows nothing about the mesh. It turns requests into [`Ask`]s, which the process's
//! main loop answers between two events, so that there is no shared state to lock.

mod client;
mod places;
mod serve;
mod socket;
#[cfg(test)]
mod tests;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

pub use client::{ClientError, get, post};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use serve::serve_one;
pub use serve::{serve_tcp, serve_unix};
pub use socket::{AdminSocket, Location, SocketError};

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// What each Worker does.
    Workers,
    /// `GET /status`: [`crate::status::Status`] as JSON.
    Status,
    /// `GET /config`: [`crate::status::ConfigDump`] as JSON.
    Config,
    /// `GET /metrics`: Prometheus text.
    Metrics,
    /// `GET /ready`: 200 once requests are served as the manifests say, else 503.
    Ready,
    /// `POST /log-reopen`: open the access log's file anew.
    LogReopen,
    /// `POST /order`: what an operator wants of a control plane, as JSON.
    Order(Value),
}

/// A question and where its answer goes.
#[derive(Debug)]
pub struct Ask {
    /// What is asked.
    pub question: Question,
    /// Where the answer goes; dropped, the client is told that the process is shutting down.
    pub answer: oneshot::Sender<Answer>,
}

/// An HTTP response, not yet HTTP.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// What the body is.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

impl Answer {
    /// A line of text.
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Answer {
            status,
            content_type: "text/plain; charset=utf-8",
            body: body.into() + "\n",
        }
    }

    /// A JSON document.
    pub fn json(value: &impl serde::Serialize) -> Self {
        match serde_json::to_string(value) {
            Ok(body) => Answer {
                status: 200,
                content_type: "application/json",
                body,
            },
            Err(error) => Answer::text(500, error.to_string()),
        }
    }
}

/// Questions on their way to the main loop.
pub type Asks = mpsc::Sender<Ask>;
