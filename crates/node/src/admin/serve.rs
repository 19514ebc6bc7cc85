//! Both admin servers: HTTP/1.1, one request per connection.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use heddle_telemetry::Seldom;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::geteuid;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::places::{Entered, Places};
use super::{Answer, Ask, Asks, Question};

/// From accept to the last byte of the answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// From accept to the end of the request's head.
const HEAD_DEADLINE: Duration = Duration::from_secs(5);
/// Largest request head, in bytes; the smallest limit that hyper allows.
const MAX_HEAD_BYTES: usize = 8 * 1024;
/// Longest order, in bytes. One with a certificate request has about 20 KiB.
const MAX_ORDER_BYTES: usize = 64 * 1024;
/// Pause after a failed accept, whose usual cause is a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The set of paths that a server offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Surface {
    /// All paths.
    Operator,
    /// Metrics and readiness.
    Network,
}

/// Serves the operator's socket until the runtime ends.
pub async fn serve_unix(listener: UnixListener, asks: Asks) {
    let server = Server::new(Surface::Operator, asks);
    let mut said = Seldom::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                accept_failed("admin socket", &error, &mut said).await;
                continue;
            }
        };
        match stream.peer_cred() {
            Ok(peer) if may_operate(peer.uid(), geteuid().as_raw()) => {
                server.connected(stream, Peer::Process(peer.pid())).await;
            }
            Ok(peer) => tracing::warn!(uid = peer.uid(), "refused at the admin socket"),
            Err(error) => {
                tracing::warn!(%error, "refused at the admin socket: no credentials");
            }
        }
    }
}

/// Serves metrics and readiness over TCP until the runtime ends.
pub async fn serve_tcp(listener: TcpListener, asks: Asks) {
    let server = Server::new(Surface::Network, asks);
    let mut said = Seldom::new();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => server.connected(stream, Peer::Host(peer.ip())).await,
            Err(error) => accept_failed("metrics listener", &error, &mut said).await,
        }
    }
}

/// Serves one connection as the operator's socket does, or as the metrics listener. For fuzz targets only.
#[cfg(feature = "fuzzing")]
pub async fn serve_one(stream: impl AsyncRead + AsyncWrite + Unpin, is_operator: bool, asks: Asks) {
    let surface = match is_operator {
        true => Surface::Operator,
        false => Surface::Network,
    };
    let room = Server::new(surface, asks.clone()).room;
    connection(stream, surface, asks, Arc::new(Seat { id: 0, room })).await;
}

/// The peer of a connection; connections are counted by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// A process of this machine by its id; `None` if it is in a PID namespace that is not visible from here.
    Process(Option<i32>),
    Host(IpAddr),
}

/// State of one of the two servers.
struct Server {
    surface: Surface,
    asks: Asks,
    room: Room,
}

/// The places, and the tasks of their connections.
type Room = Arc<Mutex<(Places<Peer>, HashMap<u64, AbortHandle>)>>;

impl Server {
    fn new(surface: Surface, asks: Asks) -> Server {
        let room = Arc::new(Mutex::new((Places::new(), HashMap::new())));
        Server {
            surface,
            asks,
            room,
        }
    }

    /// Serves a connection, or closes it when no place is free.
    async fn connected(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: Peer,
    ) {
        if self.let_in(stream, peer) {
            // Lets the aborted task run once, so that it closes its descriptor.
            tokio::task::yield_now().await;
        }
    }

    /// Returns whether another connection is closed for this one.
    fn let_in(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: Peer,
    ) -> bool {
        let mut room = lock(&self.room);
        let (places, tasks) = &mut *room;
        let Some(Entered { id, instead }) = places.enter(peer, Instant::now()) else {
            return false;
        };
        let gives_way = instead.and_then(|instead| tasks.remove(&instead));
        if let Some(task) = &gives_way {
            task.abort();
        }
        let place = Arc::new(Seat {
            id,
            room: Arc::clone(&self.room),
        });
        let task = tokio::spawn(connection(stream, self.surface, self.asks.clone(), place));
        tasks.insert(id, task.abort_handle());
        gives_way.is_some()
    }
}

/// The place of one connection; dropping it frees the place.
struct Seat {
    id: u64,
    room: Room,
}

impl Seat {
    fn asked(&self) {
        lock(&self.room).0.asked(self.id);
    }

    fn answered(&self) {
        lock(&self.room).0.answered(self.id, Instant::now());
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut room = lock(&self.room);
        room.0.leave(self.id);
        room.1.remove(&self.id);
    }
}

fn lock(room: &Room) -> MutexGuard<'_, (Places<Peer>, HashMap<u64, AbortHandle>)> {
    // Each change of the places is complete in itself, so a poisoned lock can still be used.
    room.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a peer is this process's own user, or root.
pub(super) fn may_operate(peer_uid: u32, own_uid: u32) -> bool {
    peer_uid == own_uid || peer_uid == 0
}

async fn accept_failed(whose: &str, error: &std::io::Error, said: &mut Seldom) {
    if said.is_due(error, Instant::now()) {
        tracing::warn!(%error, "cannot accept at the {whose}; trying again");
    }
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    surface: Surface,
    asks: Asks,
    place: Arc<Seat>,
) {
    let service = service_fn(|request| respond(request, surface, asks.clone(), Arc::clone(&place)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(MAX_HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(DEADLINE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "admin connection failed"),
        Err(_) => tracing::debug!("admin connection was too slow"),
    }
}

/// Answers one request. A body is read only for orders, up to a limit.
async fn respond(
    request: Request<Incoming>,
    surface: Surface,
    asks: Asks,
    place: Arc<Seat>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let asked = match route(request.method(), request.uri().path(), surface) {
        Ok(Route::Question(question)) => Ok(question),
        Ok(Route::Order) => order(request.into_body()).await,
        Err(refusal) => return Ok(refusal.response()),
    };
    place.asked();
    let answer = match asked {
        Ok(question) => ask(question, &asks).await,
        Err(answer) => answer,
    };
    place.answered();
    Ok(response(answer))
}

/// Reads an order; the error is the answer to the client.
async fn order(body: Incoming) -> Result<Question, Answer> {
    let body = Limited::new(body, MAX_ORDER_BYTES).collect().await;
    let body = body.map_err(|error| match error.is::<LengthLimitError>() {
        true => Answer::text(413, format!("more than {MAX_ORDER_BYTES} bytes")),
        false => Answer::text(400, error.to_string()),
    })?;
    let order = serde_json::from_slice(&body.to_bytes());
    let order = order.map_err(|error| Answer::text(400, format!("no order: {error}")))?;
    Ok(Question::Order(order))
}

async fn ask(question: Question, asks: &Asks) -> Answer {
    let (sender, answer) = oneshot::channel();
    if asks
        .send(Ask {
            question,
            answer: sender,
        })
        .await
        .is_err()
    {
        return Answer::text(503, "shutting down");
    }
    answer
        .await
        .unwrap_or_else(|_| Answer::text(503, "shutting down"))
}

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    NotFound,
    /// The path exists only for this method.
    Only(&'static str),
}

impl Refusal {
    fn response(&self) -> Response<Full<Bytes>> {
        match self {
            Refusal::NotFound => response(Answer::text(404, "no such path")),
            Refusal::Only(method) => {
                let mut response = response(Answer::text(405, format!("only {method}")));
                response
                    .headers_mut()
                    .insert(ALLOW, HeaderValue::from_static(method));
                response
            }
        }
    }
}

enum Route {
    Question(Question),
    /// The order is in the body.
    Order,
}

fn route(method: &Method, path: &str, surface: Surface) -> Result<Route, Refusal> {
    if surface == Surface::Operator && path == "/order" {
        return match *method {
            Method::POST => Ok(Route::Order),
            _ => Err(Refusal::Only("POST")),
        };
    }
    let (question, is_write) = match (surface, path) {
        (_, "/metrics") => (Question::Metrics, false),
        (_, "/ready") => (Question::Ready, false),
        (Surface::Operator, "/status") => (Question::Status, false),
        (Surface::Operator, "/workers") => (Question::Workers, false),
        (Surface::Operator, "/latencies") => (Question::Latencies, false),
        (Surface::Operator, "/config") => (Question::Config, false),
        (Surface::Operator, "/log-reopen") => (Question::LogReopen, true),
        _ => return Err(Refusal::NotFound),
    };
    match (is_write, method) {
        (false, &Method::GET | &Method::HEAD) | (true, &Method::POST) => {
            Ok(Route::Question(question))
        }
        (false, _) => Err(Refusal::Only("GET, HEAD")),
        (true, _) => Err(Refusal::Only("POST")),
    }
}

fn response(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(answer.body)));
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    response
}
