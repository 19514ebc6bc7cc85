//! The listeners. With one Worker, that Worker accepts from them itself; with more, the Manager does.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::{AbortHandle, spawn_local};

use super::crew::Crew;
use crate::door::Door;
use crate::listener::{BACK_OFF_MS, Socket};
use crate::mailbox::Mailbox;
use crate::worker::Command;

/// Limit of the batches in which the rest of a listener's backlog is accepted: more than any backlog holds.
const MOST_BATCHES: usize = 4_096;
/// Limit of the attempts to register a socket that another task has not released yet.
const MOST_TRIES: u32 = 1_000;
/// Interval at which it is checked whether a socket is released, or whether a Worker has room again.
const LOOK: Duration = Duration::from_millis(1);

pub(super) struct Entrance {
    crew: Rc<RefCell<Crew>>,
    doors: HashMap<u64, (Arc<TcpListener>, Arc<Door>)>,
    acceptor: Acceptor,
    /// Tasks of listeners that are being drained.
    closing: Vec<AbortHandle>,
    /// What the gauge of listeners includes of these.
    shown: i64,
}

/// The thread that accepts connections.
enum Acceptor {
    Worker(Mailbox<Command>),
    /// With a task for each listener.
    Manager(HashMap<u64, AbortHandle>),
}

impl Entrance {
    pub(super) fn new(crew: Rc<RefCell<Crew>>) -> Self {
        Entrance {
            crew,
            doors: HashMap::new(),
            acceptor: Acceptor::Manager(HashMap::new()),
            closing: Vec::new(),
            shown: 0,
        }
    }

    /// Whether there is no listener, not even one that is being drained.
    pub(super) fn is_empty(&self) -> bool {
        self.doors.is_empty() && self.closing.iter().all(AbortHandle::is_finished)
    }

    /// The listeners whose door `is_chosen`, taken out, to be [adopted](Self::adopt) by another entrance. Their sockets
    /// stay open: no client is lost.
    pub(super) fn release(
        &mut self,
        is_chosen: impl Fn(&Door) -> bool,
    ) -> Vec<(u64, Arc<TcpListener>, Arc<Door>)> {
        let chosen = self.doors.iter().filter(|(_, (_, door))| is_chosen(door));
        let chosen: Vec<u64> = chosen.map(|(id, _)| *id).collect();
        let mut released = Vec::new();
        for id in chosen {
            if let Some((socket, door)) = self.doors.get(&id).cloned() {
                self.unlisten(id);
                released.push((id, socket, door));
            }
        }
        released
    }

    /// Whether this entrance has the listener.
    pub(super) fn has(&self, id: u64) -> bool {
        self.doors.contains_key(&id)
    }

    /// Moves the listeners to the thread that has to accept for the current number of Workers. No client is lost in
    /// between: the kernel's backlog belongs to the socket, which stays open here.
    pub(super) fn follow(&mut self) {
        let only = self.crew.borrow().only();
        match (&mut self.acceptor, only) {
            (Acceptor::Manager(tasks), None) if tasks.len() == self.doors.len() => return,
            // A listener could not be registered: it is tried again.
            (Acceptor::Manager(_), None) => {}
            (Acceptor::Worker(before), Some(now)) if before.is(&now) => return,
            (Acceptor::Worker(before), now) => {
                for id in self.doors.keys() {
                    before.send(Command::Unlisten { id: *id });
                }
                self.acceptor = match now {
                    Some(mailbox) => Acceptor::Worker(mailbox),
                    None => Acceptor::Manager(HashMap::new()),
                };
            }
            (Acceptor::Manager(tasks), Some(mailbox)) => {
                tasks.drain().for_each(|(_, task)| task.abort());
                self.acceptor = Acceptor::Worker(mailbox);
            }
        }
        for (id, (socket, door)) in &self.doors {
            begin(&mut self.acceptor, &self.crew, *id, socket, door);
        }
        self.show();
    }

    /// Updates the gauge of listeners that the Manager accepts from.
    fn show(&mut self) {
        let count = match &self.acceptor {
            Acceptor::Worker(_) => 0,
            Acceptor::Manager(tasks) => tasks.len(),
        };
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let before = std::mem::replace(&mut self.shown, count);
        let crew = self.crew.borrow();
        crew.stats().listeners.add(count - before);
    }

    /// Accepts from a socket, from which another thread may have been accepting a moment ago. If `id` is in use, the new
    /// listener replaces the old one.
    pub(super) fn adopt(&mut self, id: u64, socket: Arc<TcpListener>, door: Arc<Door>) {
        self.unlisten(id);
        begin(&mut self.acceptor, &self.crew, id, &socket, &door);
        self.doors.insert(id, (socket, door));
        self.show();
    }

    /// Stops accepting. Connections that were accepted continue.
    pub(super) fn unlisten(&mut self, id: u64) {
        self.doors.remove(&id);
        match &mut self.acceptor {
            Acceptor::Worker(mailbox) => mailbox.send(Command::Unlisten { id }),
            Acceptor::Manager(tasks) => {
                if let Some(task) = tasks.remove(&id) {
                    task.abort();
                }
            }
        }
        self.show();
    }

    /// Stops accepting once `grace` is over and the backlog is empty, and then reports on `done`: connections that the
    /// kernel accepts until then are served. The Manager accepts them, whichever thread did before.
    pub(super) fn unlisten_drained(&mut self, id: u64, grace: Duration, done: oneshot::Sender<()>) {
        self.closing.retain(|task| !task.is_finished());
        let Some((socket, door)) = self.doors.remove(&id) else {
            // `done` is dropped, which tells the waiting caller that the listener is closed.
            return;
        };
        match &mut self.acceptor {
            Acceptor::Worker(mailbox) => mailbox.send(Command::Unlisten { id }),
            Acceptor::Manager(tasks) => {
                if let Some(task) = tasks.remove(&id) {
                    task.abort();
                }
            }
        }
        let crew = Rc::clone(&self.crew);
        let task = spawn_local(async move {
            let until = tokio::time::Instant::now() + grace;
            match register(&socket).await {
                Ok(listening) => {
                    let serving = accept(Rc::clone(&crew), &listening, &door);
                    let _over = tokio::time::timeout_at(until, serving).await;
                    take_rest(&crew, &listening, &door).await;
                }
                Err(error) => tracing::error!(%error, "a listener cannot be drained"),
            }
            // A Worker that accepted from the socket releases it within one of its turns.
            while Arc::strong_count(&socket) > 1 {
                tokio::time::sleep(LOOK).await;
            }
            drop(socket);
            // The caller may be gone.
            let _ = done.send(());
        });
        self.closing.push(task.abort_handle());
        self.show();
    }

    /// Closes all listeners.
    pub(super) fn close(&mut self) {
        self.closing.drain(..).for_each(|task| task.abort());
        self.doors.clear();
        if let Acceptor::Manager(tasks) = &mut self.acceptor {
            tasks.drain().for_each(|(_, task)| task.abort());
        }
        self.show();
    }
}

fn begin(
    acceptor: &mut Acceptor,
    crew: &Rc<RefCell<Crew>>,
    id: u64,
    socket: &Arc<TcpListener>,
    door: &Arc<Door>,
) {
    let (socket, door) = (Arc::clone(socket), Arc::clone(door));
    match acceptor {
        Acceptor::Worker(mailbox) => mailbox.send(Command::Listen { id, socket, door }),
        Acceptor::Manager(tasks) if tasks.contains_key(&id) => {}
        Acceptor::Manager(tasks) => match Socket::new(socket) {
            Ok(socket) => {
                let crew = Rc::clone(crew);
                let task = spawn_local(async move { accept(crew, &socket, &door).await });
                tasks.insert(id, task.abort_handle());
            }
            // Its old task has not released it yet: `follow` tries again.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => tracing::error!(%error, "a listener cannot be served"),
        },
    }
}

/// Registers a socket from which another task accepted a moment ago and may not have released yet.
async fn register(socket: &Arc<TcpListener>) -> io::Result<Socket> {
    let mut tries = 0;
    loop {
        match Socket::new(Arc::clone(socket)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < MOST_TRIES => {
                tries += 1;
                tokio::time::sleep(LOOK).await;
            }
            registered => return registered,
        }
    }
}

/// Why accepting pauses.
enum Pause {
    /// No Worker has room for another batch.
    Full,
    /// The kernel has no descriptor or no memory left.
    Failed(io::Error),
}

/// Accepts and places connections until the task is aborted. Each batch wakes the Workers once. If no Worker has room,
/// clients wait in the kernel's backlog.
async fn accept(crew: Rc<RefCell<Crew>>, socket: &Socket, door: &Arc<Door>) {
    loop {
        let error = match poll_fn(|cx| poll_accept(cx, &crew, socket, door)).await {
            Pause::Full => {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            Pause::Failed(error) => error,
        };
        // All listeners fail in the same way, each many times a second.
        let due = crew
            .borrow_mut()
            .cannot_accept
            .is_due(&error, Instant::now());
        if due {
            tracing::warn!(%error, source = %door.source, "cannot accept; trying again");
        }
        tokio::time::sleep(Duration::from_millis(BACK_OFF_MS)).await;
    }
}

fn poll_accept(
    cx: &mut Context<'_>,
    crew: &RefCell<Crew>,
    socket: &Socket,
    door: &Arc<Door>,
) -> Poll<Pause> {
    let mut wake = Vec::new();
    let mut crew = crew.borrow_mut();
    if !crew.has_room() {
        return Poll::Ready(Pause::Full);
    }
    let mut abandoned = 0;
    let batch = socket.poll_batch(cx, &mut abandoned, |client, peer| {
        wake.extend(crew.accepted(door, client, peer));
    });
    crew.stats().connections_abandoned.add(abandoned);
    drop(crew);
    wake.drain(..).for_each(|intake| intake.wake());
    batch.map(Pause::Failed)
}

/// Accepts the connections that are in the backlog, without waiting for more.
async fn take_rest(crew: &RefCell<Crew>, socket: &Socket, door: &Arc<Door>) {
    // The kernel limits the backlog, and this is more than it holds.
    for _ in 0..MOST_BATCHES {
        while !crew.borrow().has_room() {
            tokio::time::sleep(LOOK).await;
        }
        let mut wake = Vec::new();
        let mut crew = crew.borrow_mut();
        let mut abandoned = 0;
        let batch = socket.accept_batch(&mut abandoned, |client, peer| {
            wake.extend(crew.accepted(door, client, peer));
        });
        crew.stats().connections_abandoned.add(abandoned);
        drop(crew);
        wake.drain(..).for_each(|intake| intake.wake());
        if !matches!(batch, Ok(1..)) {
            return;
        }
    }
}
