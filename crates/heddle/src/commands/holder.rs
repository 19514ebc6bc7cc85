//! Messages for operators about a node's holder.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use heddle_intercept::hooks::Guarded;
use heddle_intercept::request::{self, HolderStatus, PodState, Request};
use heddle_model::printable;
use heddle_node::admin::{ClientError, Location};
use heddle_node::status::InterceptionStatus;
use heddle_node::time::duration;
use serde::Serialize;

#[cfg(test)]
mod tests;

/// Folder in which `ip netns` and container runtimes keep named namespaces.
const NAMESPACES: &str = "/run/netns";

/// State of interception: the proxy's view and the holder's.
#[derive(Debug, Serialize)]
pub(super) struct Interception<'a> {
    #[serde(flatten)]
    pods: &'a InterceptionStatus,
    holder: Option<HolderStatus>,
    /// Why the holder did not answer.
    problem: Option<String>,
    /// Problems for the operator.
    problems: Vec<String>,
}

impl<'a> Interception<'a> {
    /// Asks the holder at the socket that the proxy reported.
    pub(super) fn ask(pods: &'a InterceptionStatus) -> Self {
        let (holder, problem) = match request::describe(&pods.holder_socket) {
            Ok(holder) => (Some(holder), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let listed = request::ask(&pods.holder_socket, &Request::List, None);
        let listed = listed.map_or_else(|_| Vec::new(), |answer| answer.pods);
        let lost = listed.iter().filter(|pod| pod.state == PodState::Lost);
        let guarded = holder.as_ref().map_or(0, |holder| holder.guarded.len());
        Interception {
            problems: problems(problem.as_deref(), pods.held, lost.count(), guarded),
            pods,
            holder,
            problem,
        }
    }

    pub(super) fn problems(&self) -> &[String] {
        &self.problems
    }

    pub(super) fn text(&self) -> String {
        let socket = self.pods.holder_socket.display().to_string();
        let how = match (&self.holder, &self.problem) {
            (Some(holder), _) => how(holder),
            (None, problem) => format!(
                "the holder at {} DOES NOT ANSWER: {}",
                printable(&socket),
                printable(problem.as_deref().unwrap_or_default())
            ),
        };
        format!("interception: {}; {how}", pods(self.pods))
    }
}

/// Problems for the operator: pods that are cut off, or will be.
fn problems(silence: Option<&str>, held: u64, lost: usize, guarded: usize) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(why) = silence {
        problems.push(format!("the holder of the pods does not answer: {why}"));
    }
    for (number, state, why) in [
        (held, "held", "the mesh has no such workload on this node"),
        (
            u64::try_from(lost).unwrap_or(u64::MAX),
            "lost",
            "enrolled before the holder was restarted, and not since",
        ),
        (
            u64::try_from(guarded).unwrap_or(u64::MAX),
            "guarded",
            "refused by the guard of a holder before",
        ),
    ] {
        if number > 0 {
            let pods = if number == 1 { "pod is" } else { "pods are" };
            problems.push(format!("{number} {pods} {state}: {why} (heddle pods)"));
        }
    }
    problems
}

/// Numbers of pods, as the proxy reports them.
pub(super) fn pods(status: &InterceptionStatus) -> String {
    let InterceptionStatus { serving, held, .. } = status;
    match (serving, held) {
        (0, 0) => "no pod is enrolled".to_owned(),
        (serving, 0) => format!("{serving} serving"),
        (serving, held) => format!("{serving} serving, {held} HELD"),
    }
}

/// The kind of hooks, and whether there is a guard.
pub(super) fn how(holder: &HolderStatus) -> String {
    let hooks = match &holder.without_bpf {
        None => format!("hooks by {}", holder.hooks.as_str()),
        Some(why) => format!(
            "hooks by {}, since {}",
            holder.hooks.as_str(),
            printable(why)
        ),
    };
    let guard = match (&holder.guard, &holder.without_guard) {
        (Some(folder), _) => format!("guard in {}", printable(&folder.display().to_string())),
        (None, why) => format!(
            "NO GUARD: {}",
            printable(why.as_deref().unwrap_or("unknown"))
        ),
    };
    format!("{hooks}; {guard}")
}

/// Process ids of holder and proxy.
pub(super) fn who(holder: &HolderStatus) -> String {
    let proxy = match &holder.proxy {
        Some(proxy) => format!("proxy process {}, for {}", proxy.pid, duration(proxy.age_s)),
        None => "NO PROXY now: it is started again, and the log says why it ended".to_owned(),
    };
    format!("holder process {}; {proxy}", holder.pid)
}

/// The holder's view when a node's proxy does not answer; `None` without a holder.
pub(super) fn seen(
    error: &ClientError,
    at: &Location,
    holder_socket: Option<PathBuf>,
) -> Option<String> {
    let is_silent = matches!(
        error,
        ClientError::NotRunning(..) | ClientError::Late(..) | ClientError::NoAnswer(..)
    );
    // With another socket than the default, the default holder may be another node's.
    let is_known = !at.is_given || holder_socket.is_some();
    if !is_silent || !is_known {
        return None;
    }
    let holder = Location::holder(holder_socket).path;
    let status = request::describe(&holder).ok()?;
    Some(silent(&status, at, &holder))
}

/// Error message when the holder answers, but its proxy does not.
fn silent(status: &HolderStatus, at: &Location, holder: &Path) -> String {
    let (at, shown) = (at.path.display(), holder.display());
    let lives = format!("the node's holder lives (process {}, {shown})", status.pid);
    let look = "heddle pods says what is in force for each pod, the node's log why";
    match &status.proxy {
        None => format!(
            "no proxy answers at {at}: {lives}, and its proxy has ended and is started again; {look}"
        ),
        Some(proxy) => format!(
            "no proxy answers at {at}: {lives}, and its proxy (process {}, for {}) starts, is stopped or hangs, or \
             has another --socket; {look}. Killed, it is started again",
            proxy.pid,
            duration(proxy.age_s)
        ),
    }
}

/// Path of a guarded namespace, or its number if it has no name.
pub(super) fn place(guarded: &Guarded, known: &BTreeMap<u64, PathBuf>) -> String {
    match known.get(&guarded.inode) {
        Some(path) => path.display().to_string(),
        None => format!("net:[{}]", guarded.inode),
    }
}

/// Paths of named namespaces, by inode number.
pub(super) fn namespaces() -> BTreeMap<u64, PathBuf> {
    let entries = fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    let numbered = entries.filter_map(|entry| {
        let path = entry.path();
        Some((fs::metadata(&path).ok()?.ino(), path))
    });
    numbered.collect()
}
