//! What a holder is given at its start.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use heddle_model::WorkloadName;

use super::Claim;
use crate::exclude::Exclude;
use crate::hooks;

/// Configuration of a holder.
#[derive(Debug)]
pub struct Config {
    /// Path of the proxy program.
    pub program: PathBuf,
    /// Arguments of the proxy. Its standard input is its end of the channel.
    pub arguments: Vec<OsString>,
    /// ID of the user to which the proxy switches before it reads anything from a network. This user may not make
    /// requests of operators.
    pub proxy: u32,
    /// Socket for requests of operators: a listening `SOCK_SEQPACKET` socket, not accessible to other users.
    pub requests: OwnedFd,
    /// Exclusive claim on the pods of this node, with the file in which they are stored for a restarted holder.
    pub claim: Claim,
    /// Settings of the hooks.
    pub hooks: hooks::Options,
    /// The network namespace of the machine, if known. It cannot be enrolled as a pod.
    pub host: Option<File>,
    /// Timeout in seconds for the proxy's answers to pings, after which it is killed and restarted. Only time in
    /// which the holder itself runs counts. `None`: no timeout.
    pub proxy_timeout: Option<u32>,
    /// A pod in the holder's own namespace, enrolled from the start: one proxy for one pod.
    pub own: Option<Own>,
    /// Called in every turn of the main loop.
    pub each_turn: EachTurn,
}

/// A function that is called in every turn of a holder's main loop, at least once a second.
pub struct EachTurn(pub Box<dyn FnMut(Turn)>);

/// State of a holder at a turn of its main loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// No proxy has started up yet.
    Starting,
    /// It holds pods. Now and then there is no proxy for a moment, while it is replaced.
    Holding,
    /// It was told to stop.
    Stopping,
}

impl fmt::Debug for EachTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EachTurn")
    }
}

/// A pod in the holder's own namespace.
#[derive(Debug, Clone)]
pub struct Own {
    /// The workload that runs in the pod.
    pub workload: WorkloadName,
    /// Traffic that is not intercepted.
    pub exclude: Exclude,
}
