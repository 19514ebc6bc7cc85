//! The thread of the network: every 10 ms is more often than the agent, whose writes to control groups may take longer.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::held::{Held, Key};
use super::kernel::Kernel;
use super::{Network, OfflinePod, Snapshot};
use crate::arbiter::journal::Store;
use crate::now::Now;

/// How long the thread may take to say what it does.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// A message to the thread.
#[derive(Debug)]
enum Message {
    Pods(Vec<OfflinePod>),
    Snapshot(SyncSender<Snapshot>),
}

/// A running network.
#[derive(Debug)]
pub struct Thread {
    messages: SyncSender<Message>,
    last: Vec<OfflinePod>,
    thread: JoinHandle<bool>,
}

impl Thread {
    /// Starts it in a network whose earlier changes are put back.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn start<K, S>(network: Network<K, S>) -> io::Result<Self>
    where
        K: Kernel + Send + 'static,
        S: Store<Key, Held> + Send + 'static,
    {
        let (messages, received) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("qos-network".to_owned());
        Ok(Thread {
            messages,
            last: Vec::new(),
            thread: thread.spawn(move || follow(network, &received))?,
        })
    }

    /// The offline pods from now on. Waits for as long as one look at the network takes, when they change often.
    pub fn set_pods(&mut self, pods: Vec<OfflinePod>) {
        if pods != self.last {
            self.last.clone_from(&pods);
            // It ends only when this is dropped, or by a panic that [`Thread::stop`] reports.
            let _ended = self.messages.send(Message::Pods(pods));
        }
    }

    /// What it does now; `None` when it does not say so within a second. Waits for as long as one look at the network takes.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let (answer, snapshot) = mpsc::sync_channel(1);
        self.messages.send(Message::Snapshot(answer)).ok()?;
        snapshot.recv_timeout(ANSWERS_WITHIN).ok()
    }

    /// Has everything put back, and returns whether all of it is.
    pub fn stop(self) -> bool {
        drop(self.messages);
        self.thread.join().unwrap_or(false)
    }
}

fn follow<K: Kernel, S: Store<Key, Held>>(
    mut network: Network<K, S>,
    messages: &Receiver<Message>,
) -> bool {
    let began = Instant::now();
    let mut pause = Duration::ZERO;
    loop {
        match messages.recv_timeout(pause) {
            Ok(Message::Pods(pods)) => network.set_pods(pods),
            Ok(Message::Snapshot(answer)) => {
                // The reader may have given up.
                let _gone = answer.send(network.snapshot());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return network.restore(),
        }
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        pause = network.tick(Now {
            since: began.elapsed(),
            unix_s: unix.unwrap_or_default().as_secs(),
        });
    }
}
