//! Access of operators and of monitoring to a running process.
//!
//! Operator commands use a Unix socket: mode 0600 in a folder of the user's own, and a client must be the same user or
//! root. TCP serves only `/metrics` and `/ready`. Both servers have limits: on the number of connections, one request
//! per connection, its length, and a deadline for all of it. When no place is free, a connection that has not sent its
//! request yet may be closed for a new one.
//!
//! The server knows nothing about the mesh. It turns requests into [`Ask`]s, which the process's main loop answers
//! between two events, so no state is shared and locked.

mod client;
mod places;
mod serve;
mod socket;
#[cfg(test)]
mod tests;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

pub use client::{ClientError, Limits, Reply, get, get_within, post, reply_within};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use serve::serve_one;
pub use serve::{serve_tcp, serve_unix};
pub use socket::{AdminSocket, Location, SocketError};

/// A request to the admin server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// `GET /workers`: the status of each Worker, as JSON.
    Workers,
    /// `GET /latencies`: [`crate::status::Latencies`] as JSON.
    Latencies,
    /// `GET /status`: [`crate::status::Status`] as JSON.
    Status,
    /// `GET /config`: [`crate::status::ConfigDump`] as JSON.
    Config,
    /// `GET /metrics`: Prometheus text.
    Metrics,
    /// `GET /ready`: 200 once requests are served as the manifests say, else 503.
    Ready,
    /// `POST /log-reopen`: reopen the access log's file.
    LogReopen,
    /// `POST /order`: an operator's order to a control plane, as JSON.
    Order(Value),
}

/// A question, and the channel for its answer.
#[derive(Debug)]
pub struct Ask {
    pub question: Question,
    /// Channel for the answer. If it is dropped, the client is told that the process is shutting down.
    pub answer: oneshot::Sender<Answer>,
}

/// Content of an HTTP response.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status code.
    pub status: u16,
    /// Value of the `content-type` header.
    pub content_type: &'static str,
    /// The whole body.
    pub body: String,
}

impl Answer {
    /// A plain-text answer; a line feed is added.
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Answer {
            status,
            content_type: "text/plain; charset=utf-8",
            body: body.into() + "\n",
        }
    }

    /// An answer of status 200 with a JSON document, or 500 if it cannot be serialised.
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

/// Channel of questions to the main loop.
pub type Asks = mpsc::Sender<Ask>;
