//! The thread of the network: every 10 ms is more often than the agent, whose writes to control groups may take longer.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::held::{Held, Key};
use super::kernel::Kernel;
use super::{Network, OfflinePod};
use crate::arbiter::journal::Store;
use crate::now::Now;

/// A running network.
#[derive(Debug)]
pub struct Thread {
    pods: SyncSender<Vec<OfflinePod>>,
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
        let (pods, changes) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("qos-network".to_owned());
        Ok(Thread {
            pods,
            last: Vec::new(),
            thread: thread.spawn(move || follow(network, &changes))?,
        })
    }

    /// The offline pods from now on. Waits for as long as one look at the network takes, when they change often.
    pub fn set_pods(&mut self, pods: Vec<OfflinePod>) {
        if pods != self.last {
            self.last.clone_from(&pods);
            // It ends only when this is dropped, or by a panic that [`Thread::stop`] reports.
            let _ended = self.pods.send(pods);
        }
    }

    /// Has everything put back, and returns whether all of it is.
    pub fn stop(self) -> bool {
        drop(self.pods);
        self.thread.join().unwrap_or(false)
    }
}

fn follow<K: Kernel, S: Store<Key, Held>>(
    mut network: Network<K, S>,
    changes: &Receiver<Vec<OfflinePod>>,
) -> bool {
    let began = Instant::now();
    let mut pause = Duration::ZERO;
    loop {
        match changes.recv_timeout(pause) {
            Ok(pods) => network.set_pods(pods),
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
