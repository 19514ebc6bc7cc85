//! For any bytes sent to the admin socket or the metrics listener: a connection asks at most one question, which is the
//! one that a naive parser finds in its first line; only orders have a body, which arrives unchanged; every answer is
//! one response; and the connection ends.
//!
//! The first byte chooses the listener, and the size of the pieces in which the other bytes arrive.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use heddle_node::admin::{Answer, Question, serve_one};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

const ANSWER: &str = "what was asked for";

thread_local! {
    // Its clock stands still: no timeout ends a connection.
    static RUNTIME: Runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
}

/// Checks one input.
pub fn check(data: &[u8]) {
    let Some((&how, data)) = data.split_first() else {
        return;
    };
    let is_operator = how & 1 == 0;
    let piece = match usize::from(how >> 1) {
        0 => usize::MAX,
        piece => piece,
    };
    let (asked, said) = RUNTIME.with(|runtime| {
        let _within = runtime.enter();
        served(data, piece, is_operator)
    });
    if let Some(question) = &asked {
        is_meant(data, is_operator, question);
    }
    if said.is_empty() {
        assert_eq!(asked, None, "a question is answered");
        return;
    }
    let text = String::from_utf8(said).expect("text");
    // Sent before the body of a client that waits for it.
    let text = text.trim_start_matches("HTTP/1.1 100 Continue\r\n\r\n");
    if text.is_empty() {
        assert_eq!(asked, None, "a question is answered");
        return;
    }
    let status = text
        .strip_prefix("HTTP/1.1 ")
        .or(text.strip_prefix("HTTP/1.0 "));
    let status = status.and_then(|rest| rest.get(..3)?.parse::<u16>().ok());
    assert_eq!(text.matches("HTTP/1.").count(), 1, "one response: {text}");
    match asked {
        Some(_) => {
            assert_eq!(status, Some(200), "{text}");
            let is_head = data.trim_ascii_start().starts_with(b"HEAD ");
            assert!(is_head || text.ends_with(&format!("{ANSWER}\n")), "{text}");
        }
        None => {
            let refused = status.is_some_and(|status| (400..500).contains(&status));
            assert!(refused, "{text}");
        }
    }
}

/// Serves a connection to its end. Returns the question and the bytes of the answer.
fn served(data: &[u8], piece: usize, is_operator: bool) -> (Option<Question>, Vec<u8>) {
    let state = Rc::new(RefCell::new(State {
        input: data.to_vec(),
        ..State::default()
    }));
    let stream = Stream {
        state: Rc::clone(&state),
        piece,
    };
    let (sender, mut asks) = mpsc::channel(4);
    let mut asked = None;
    let mut connection = pin!(serve_one(stream, is_operator, sender));
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let before = state.borrow().progress();
        if connection.as_mut().poll(&mut context).is_ready() {
            break;
        }
        let mut has_asked = false;
        while let Ok(ask) = asks.try_recv() {
            assert_eq!(asked, None, "a connection asks once");
            asked = Some(ask.question);
            has_asked = true;
            let _gone = ask.answer.send(Answer::text(200, ANSWER));
        }
        let mut state = state.borrow_mut();
        if !has_asked && before == state.progress() {
            assert!(!state.is_over, "the connection does not end");
            state.is_over = true;
        }
    }
    let said = std::mem::take(&mut state.borrow_mut().output);
    (asked, said)
}

/// Checks that the question matches the request, parsed naively.
fn is_meant(data: &[u8], is_operator: bool, question: &Question) {
    let text = String::from_utf8_lossy(data.trim_ascii_start()).into_owned();
    let line = text.lines().next().unwrap_or_default();
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else {
        panic!("no request line: {line:?}");
    };
    assert!(["HTTP/1.1", "HTTP/1.0"].contains(&version), "{line:?}");
    // An absolute target has the path after the authority.
    let path = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => {
            rest.find('/').map_or("/", |slash| &rest[slash..])
        }
        _ => target,
    };
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let is_read = ["GET", "HEAD"].contains(&method);
    let expected = match path {
        "/metrics" if is_read => Question::Metrics,
        "/ready" if is_read => Question::Ready,
        "/status" if is_read && is_operator => Question::Status,
        "/workers" if is_read && is_operator => Question::Workers,
        "/latencies" if is_read && is_operator => Question::Latencies,
        "/config" if is_read && is_operator => Question::Config,
        "/log-reopen" if method == "POST" && is_operator => Question::LogReopen,
        "/order" if method == "POST" && is_operator => {
            return is_order(data.trim_ascii_start(), question);
        }
        _ => panic!("{line:?} asks {question:?}"),
    };
    assert_eq!(question, &expected, "{line:?}");
}

/// Checks that an order's body with a length is the JSON after the head.
fn is_order(data: &[u8], question: &Question) {
    let Question::Order(order) = question else {
        panic!("an order asks {question:?}");
    };
    let Some(end) = head_length(data) else { return };
    let head = String::from_utf8_lossy(&data[..end]).to_ascii_lowercase();
    if head.contains("transfer-encoding") {
        return;
    }
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length:"));
    let Some(Ok(length)) = length.map(|length| length.trim().parse::<usize>()) else {
        return;
    };
    let body = &data[end..];
    assert!(length <= body.len(), "it waits for all of it");
    let body = serde_json::from_slice::<serde_json::Value>(&body[..length]);
    assert_eq!(
        body.ok().as_ref(),
        Some(order),
        "the order is what was sent"
    );
}

/// Length of a head with its empty line. The admin socket takes a lone LF for the end of a line (RFC 9112 section 2.2).
fn head_length(data: &[u8]) -> Option<usize> {
    let ends = [&b"\n\r\n"[..], b"\n\n"].map(|end| {
        let at = data.windows(end.len()).position(|bytes| bytes == end)?;
        Some(at + end.len())
    });
    ends.into_iter().flatten().min()
}

/// The two directions of a connection.
#[derive(Default)]
struct State {
    input: Vec<u8>,
    read: usize,
    output: Vec<u8>,
    /// The client has closed its direction.
    is_over: bool,
}

impl State {
    fn progress(&self) -> (usize, usize) {
        (self.read, self.output.len())
    }
}

struct Stream {
    state: Rc<RefCell<State>>,
    piece: usize,
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.state.borrow_mut();
        let left = state.input.len() - state.read;
        let length = left.min(self.piece).min(buf.remaining());
        if left == 0 && !state.is_over {
            return Poll::Pending;
        }
        buf.put_slice(&state.input[state.read..state.read + length]);
        state.read += length;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.state.borrow_mut().output.extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
