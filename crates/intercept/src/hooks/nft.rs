//! Hooks made of packet filter rules in each pod's namespace.
//!
//! They are for kernels without the hooks for BPF programs. Rules belong to the namespace, not to a process,
//! which leads to these differences:
//!
//! - When this process is killed, pods stay steered to listeners that are gone: the connections of every pod are
//!   refused, whatever its fate, until another process serves it or the rules are removed ([`clear`]).
//! - Every change runs `nft` once for each pod, some milliseconds each, also when the proxy dies.
//! - A released pod keeps an empty chain: without it the kernel would stop translating its redirected connections.

use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{HookError, Options, Pod};
use crate::namespace::within;
use crate::{Fate, PodId};
use ruleset::{Mesh, Rules, State};

mod ruleset;

/// Folders in which `nft` is searched, after PATH: the PATH of services often lacks the `sbin` folders.
const FOLDERS: [&str; 3] = ["", "/usr/sbin/", "/sbin/"];

/// Hooks made of packet filter rules, and the pods that have them.
#[derive(Debug)]
pub struct Nft {
    program: PathBuf,
    mesh: Mesh,
    pods: HashMap<PodId, NftPod>,
}

#[derive(Debug)]
struct NftPod {
    netns: OwnedFd,
    rules: Rules,
    fate: Fate,
    state: State,
}

impl Nft {
    pub(super) fn open(options: &Options) -> Result<Self, HookError> {
        Ok(Nft {
            program: find()?,
            mesh: Mesh::new(&options.ranges),
            pods: HashMap::new(),
        })
    }

    pub(super) fn enroll(&mut self, pod: &Pod<'_>) -> Result<(), HookError> {
        if self.pods.contains_key(&pod.id) {
            return Err(HookError::pod(pod.id, "is enrolled already"));
        }
        let unusable =
            |error: io::Error| HookError::pod(pod.id, format!("its descriptors: {error}"));
        let enrolled = NftPod {
            netns: pod.netns.try_clone_to_owned().map_err(unusable)?,
            rules: Rules {
                outbound_port: pod.outbound.local_addr().map_err(unusable)?.port(),
                inbound_port: pod.inbound.local_addr().map_err(unusable)?.port(),
                exclude: pod.exclude.clone(),
            },
            fate: pod.fate,
            state: State::Released,
        };
        self.pods.insert(pod.id, enrolled);
        let steered = self.set(pod.id, State::Steered);
        if steered.is_err() {
            self.pods.remove(&pod.id);
        }
        steered
    }

    pub(super) fn serve(&mut self, pod: PodId, fate: Fate) -> Result<(), HookError> {
        let enrolled = self.pods.get_mut(&pod).ok_or(HookError::Unknown(pod))?;
        enrolled.fate = fate;
        self.set(pod, State::Steered)
    }

    /// Applies its fate to every pod. Continues after an error and returns the first one.
    pub(super) fn died(&mut self) -> Result<(), HookError> {
        let fates: Vec<_> = self
            .pods
            .iter()
            .map(|(id, pod)| (*id, State::from(pod.fate)))
            .collect();
        let mut done = Ok(());
        for (pod, state) in fates {
            done = done.and(self.set(pod, state));
        }
        done
    }

    pub(super) fn release(&mut self, pod: PodId) -> Result<(), HookError> {
        let released = self.set(pod, State::Released);
        self.pods.remove(&pod);
        released
    }

    /// Replaces a pod's rules by those of another state, in one transaction.
    fn set(&mut self, pod: PodId, state: State) -> Result<(), HookError> {
        let enrolled = self.pods.get_mut(&pod).ok_or(HookError::Unknown(pod))?;
        if enrolled.state == state {
            return Ok(());
        }
        let rules = enrolled.rules.write(&self.mesh, state);
        let mut command = Command::new(&self.program);
        command
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        // A process that is started in a namespace stays there.
        let run = within(enrolled.netns.as_fd(), || {
            let mut process = command.spawn()?;
            if let Some(mut input) = process.stdin.take() {
                // If `nft` does not read all of it, its own error message says why.
                let _ = input.write_all(rules.as_bytes());
            }
            process.wait_with_output()
        });
        let output = run.and_then(|output| output);
        let output = output.map_err(|error| HookError::refused("cannot run nft", &error))?;
        if !output.status.success() {
            return Err(HookError::Refused {
                what: format!("nft has not changed the rules of pod {pod}"),
                reason: first_lines(&output.stderr),
            });
        }
        enrolled.state = state;
        Ok(())
    }
}

/// Removes the rules that a holder left in a namespace. Returns whether there were any.
///
/// # Errors
/// [`HookError::Lacking`] when `nft` is not installed; otherwise the message of `nft`.
pub(super) fn clear(netns: BorrowedFd<'_>) -> Result<bool, HookError> {
    let program = find()?;
    let run = |word: &str| {
        let mut command = Command::new(&program);
        command.args([word, "table", "inet", "heddle"]);
        command.stdin(Stdio::null());
        // A process that is started in a namespace stays there.
        let output = within(netns, || command.output()).and_then(|output| output);
        output.map_err(|error| HookError::refused("cannot run nft", &error))
    };
    if !run("list")?.status.success() {
        return Ok(false);
    }
    let output = run("delete")?;
    match output.status.success() {
        true => Ok(true),
        false => Err(HookError::Refused {
            what: "nft has not removed the rules of a pod".to_owned(),
            reason: first_lines(&output.stderr),
        }),
    }
}

/// The first lines of an error output.
fn first_lines(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    said.lines().take(3).collect::<Vec<_>>().join("; ")
}

impl Drop for Nft {
    /// Applies every pod's fate: pods that are not to be refused pass again.
    fn drop(&mut self) {
        let _ = self.died();
    }
}

/// Finds the `nft` program.
fn find() -> Result<PathBuf, HookError> {
    for folder in FOLDERS {
        let program = format!("{folder}nft");
        let version = Command::new(&program)
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        if version.is_ok_and(|status| status.success()) {
            return Ok(program.into());
        }
    }
    Err(HookError::Lacking {
        what: "nft program".to_owned(),
        reason: "it is not installed. On Debian: apt-get install nftables".to_owned(),
    })
}
