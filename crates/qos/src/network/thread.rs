//! The thread of the network: every 10 ms is more often than the agent, whose writes to control groups may take longer.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::held::{Held, Key};
use super::kernel::Kernel;
use super::{Network, OfflinePod, Snapshot};
use crate::arbiter::journal::Store;
use crate::now::Now;

#[cfg(test)]
mod tests;

/// How long the thread may take to say what it does: half of the shortest time between two looks of the agent.
const ANSWERS_WITHIN: Duration = Duration::from_millis(50);
/// How long the thread may take to put everything back: it talks to the kernel only.
const STOPS_WITHIN: Duration = Duration::from_secs(30);
/// Messages that wait for the thread: pods, and a question.
const MESSAGES: usize = 2;

/// A message to the thread.
#[derive(Debug)]
enum Message {
    Pods(Vec<OfflinePod>),
    Snapshot(SyncSender<Snapshot>),
}

/// A running network. No method waits long for a thread that the kernel keeps waiting.
#[derive(Debug)]
pub struct Thread {
    messages: SyncSender<Message>,
    /// The pods that were sent.
    pods: Vec<OfflinePod>,
    /// Whether pods could not be sent, which was said.
    is_busy: bool,
    /// What it said last.
    snapshot: Snapshot,
    /// A question that it has not answered.
    asked: Option<Receiver<Snapshot>>,
    /// Whether everything was put back, once the thread has ended.
    ended: Receiver<bool>,
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
        let first = network.snapshot();
        Thread::of(first, move |messages| follow(network, messages))
    }

    fn of(
        snapshot: Snapshot,
        follow: impl FnOnce(&Receiver<Message>) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let (messages, received) = mpsc::sync_channel(MESSAGES);
        let (end, ended) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("qos-network".to_owned());
        thread.spawn(move || {
            // The caller may have given up.
            let _gone = end.send(follow(&received));
        })?;
        Ok(Thread {
            messages,
            pods: Vec::new(),
            is_busy: false,
            snapshot,
            asked: None,
            ended,
        })
    }

    /// The offline pods from now on. To be called again and again: a thread that is busy is told the next time.
    pub fn set_pods(&mut self, pods: Vec<OfflinePod>) {
        if pods == self.pods {
            return;
        }
        match self.messages.try_send(Message::Pods(pods.clone())) {
            // It ends only when this is dropped, or by a panic that [`Thread::stop`] reports.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {
                self.pods = pods;
                if std::mem::take(&mut self.is_busy) {
                    tracing::info!("the network follows the offline pods again");
                }
            }
            Err(TrySendError::Full(_)) => {
                if !std::mem::replace(&mut self.is_busy, true) {
                    tracing::warn!("the network does not follow the offline pods yet: it is busy");
                }
            }
        }
    }

    /// What it does now, or what it said last: counts neither fall nor are missing. Waits for 50 ms at most, and not at all
    /// while an earlier question is open.
    pub fn snapshot(&mut self) -> &Snapshot {
        if let Some(asked) = &self.asked {
            match asked.try_recv() {
                Ok(late) => self.snapshot = late,
                Err(TryRecvError::Empty) => return &self.snapshot,
                // It has ended.
                Err(TryRecvError::Disconnected) => {}
            }
        }
        let (answer, asked) = mpsc::sync_channel(1);
        self.asked = match self.messages.try_send(Message::Snapshot(answer)) {
            Ok(()) => match asked.recv_timeout(ANSWERS_WITHIN) {
                Ok(now) => {
                    self.snapshot = now;
                    None
                }
                Err(_) => Some(asked),
            },
            Err(_) => None,
        };
        &self.snapshot
    }

    /// Has everything put back, and returns whether all of it is. Waits for 30 s at most.
    pub fn stop(self) -> bool {
        self.stop_within(STOPS_WITHIN)
    }

    fn stop_within(self, longest: Duration) -> bool {
        drop(self.messages);
        match self.ended.recv_timeout(longest) {
            Ok(is_back) => is_back,
            Err(RecvTimeoutError::Timeout) => {
                tracing::error!(
                    "the kernel holds up the thread that puts the network back: `heddle qos restore` does it later"
                );
                false
            }
            // It has panicked, which is logged.
            Err(RecvTimeoutError::Disconnected) => false,
        }
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
