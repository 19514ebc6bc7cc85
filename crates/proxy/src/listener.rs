//! Listeners: sockets with a meaning. What a connection may be is decided by the socket that it
//! came in on, never by an address it came from.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use heddle_model::{Namespace, ServiceName, WorkloadName};
use tokio::net::{TcpListener, TcpStream};

use crate::collaborator::Connection;
use crate::worker::{Millis, WorkKey, Worker};

/// Connections accepted before other work gets its turn.
const BATCH: usize = 32;
/// How long to wait when the kernel has no descriptor or memory for another connection, in
/// milliseconds.
const BACK_OFF_MS: Millis = 100;

/// What a listener is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// One port of one Service, whatever host a request names.
    Service {
        /// Whose listener it is; `None` serves everybody, unidentified.
        caller: Option<WorkloadName>,
        /// The Service.
        service: ServiceName,
        /// Its port.
        port: u16,
    },
    /// A forward proxy: the request names the Service.
    ForwardProxy {
        /// Whose listener it is.
        caller: WorkloadName,
    },
}

impl Entry {
    /// The workload whose listener it is.
    pub fn caller(&self) -> Option<&WorkloadName> {
        match self {
            Entry::Service { caller, .. } => caller.as_ref(),
            Entry::ForwardProxy { caller } => Some(caller),
        }
    }
}

/// An open listener of a Worker.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) entry: Entry,
    /// The source in metrics and logs.
    pub(crate) source: Arc<str>,
    /// The account that its connections work on.
    pub(crate) key: WorkKey,
    closed: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

impl Listener {
    /// Starts accepting.
    ///
    /// # Errors
    /// When the socket cannot be used with the runtime.
    pub(crate) fn open(
        worker: &Rc<Worker>,
        socket: std::net::TcpListener,
        entry: Entry,
    ) -> io::Result<Rc<Listener>> {
        socket.set_nonblocking(true)?;
        let socket = TcpListener::from_std(socket)?;
        let source: Arc<str> = match entry.caller() {
            Some(caller) => caller.to_string().into(),
            None => "unidentified".into(),
        };
        let listener = Rc::new(Listener {
            entry,
            key: worker.gate.account(&source),
            source,
            closed: Cell::new(false),
            task: RefCell::new(None),
        });
        worker.gate.spawn(
            WorkKey::OWN,
            accept(Rc::clone(worker), Rc::clone(&listener), socket),
        );
        Ok(listener)
    }

    /// Stops accepting and closes the socket.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        if let Some(task) = self.task.borrow_mut().take() {
            task.wake();
        }
    }

    /// The namespace by which names are looked up and consumer routes chosen.
    pub(crate) fn namespace(&self) -> Option<&Namespace> {
        self.entry.caller().map(|caller| &caller.namespace)
    }
}

/// Accepts until the listener is closed.
async fn accept(worker: Rc<Worker>, listener: Rc<Listener>, socket: TcpListener) {
    loop {
        match poll_fn(|cx| poll_batch(cx, &worker, &listener, &socket)).await {
            Ok(()) => return,
            Err(error) => {
                // All listeners fail alike, and each of them many times a second.
                let now = worker.clock.now();
                if worker.cannot_accept.borrow_mut().is_due(&error, now) {
                    tracing::warn!(%error, source = %listener.source, "cannot accept; trying again");
                }
                let due = worker.clock.now_ms() + BACK_OFF_MS;
                worker.alarms.alarm().wait_until(due).await;
            }
        }
    }
}

/// Takes what waits in the socket's queue. Ready with `Ok` when the listener is closed.
fn poll_batch(
    cx: &mut Context<'_>,
    worker: &Rc<Worker>,
    listener: &Rc<Listener>,
    socket: &TcpListener,
) -> Poll<io::Result<()>> {
    *listener.task.borrow_mut() = Some(cx.waker().clone());
    for _ in 0..BATCH {
        if listener.closed.get() {
            return Poll::Ready(Ok(()));
        }
        match socket.poll_accept(cx) {
            Poll::Ready(Ok((stream, peer))) => admit(worker, listener, stream, peer),
            Poll::Ready(Err(error)) if is_about_one_connection(&error) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        }
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// A connection that was gone before it was accepted says nothing about the listener.
fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

fn admit(worker: &Rc<Worker>, listener: &Rc<Listener>, stream: TcpStream, peer: SocketAddr) {
    if worker.connections() >= worker.settings.bounds.connections {
        worker.stats.connections_refused.inc();
        return;
    }
    // Failing to set it costs latency, nothing else.
    let _ = stream.set_nodelay(true);
    let connection = Connection::new(Rc::clone(worker), Rc::clone(listener), stream, peer);
    worker.gate.spawn(listener.key, connection.serve());
}
