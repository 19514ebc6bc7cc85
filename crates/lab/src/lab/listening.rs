//! Whether programs of pods listen on their declared ports, found out without connecting to them.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::plan::PodPlan;
use super::process::{Note, pause};

#[cfg(test)]
mod tests;

/// Timeout until a program listens.
const LISTEN_LIMIT: Duration = Duration::from_secs(20);
/// A program without ports that still runs after this time is taken to have started well.
const ENDS_AT_ONCE: Duration = Duration::from_millis(300);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Lines of a log quoted in an error.
const LAST_LINES: usize = 8;
/// The state of a listening socket (include/net/tcp_states.h).
const LISTEN: &str = "0A";

/// Waits until each program listens on every port that its pod declares.
///
/// # Errors
/// A program has ended before, or does not listen in time; the error quotes the end of its log.
pub(super) fn wait(programs: &[(&PodPlan, Note)]) -> anyhow::Result<()> {
    let deadline = Instant::now() + LISTEN_LIMIT;
    let mut programs = programs.iter();
    programs.try_for_each(|(plan, note)| wait_until(note, &plan.ports, deadline))
}

/// Waits until a process listens on these ports.
///
/// # Errors
/// As for [`wait`].
pub(super) fn wait_for(note: &Note, ports: &[u16]) -> anyhow::Result<()> {
    wait_until(note, ports, Instant::now() + LISTEN_LIMIT)
}

fn wait_until(note: &Note, ports: &[u16], deadline: Instant) -> anyhow::Result<()> {
    while let Some(port) = missing(ports, note.pid) {
        let state = match note.runs() {
            true if Instant::now() < deadline => {
                pause(LOOK_EVERY);
                continue;
            }
            true => format!("does not listen on port {port} within {LISTEN_LIMIT:?}"),
            false => "has ended".to_owned(),
        };
        bail!("{} {state}:\n{}", note.what, note.last_words(LAST_LINES));
    }
    Ok(())
}

/// The programs that declare no port and have ended already. That may be intended, so `up` only reports it.
pub(super) fn ended<'p>(programs: &'p [(&'p PodPlan, Note)]) -> Vec<&'p Note> {
    let silent = programs.iter().filter(|(plan, _)| plan.ports.is_empty());
    let notes: Vec<&Note> = silent.map(|(_, note)| note).collect();
    let deadline = Instant::now() + ENDS_AT_ONCE;
    // A program whose file or module is missing ends within that time; one that runs longer is not watched any more.
    while notes.iter().any(|note| note.runs()) && Instant::now() < deadline {
        pause(LOOK_EVERY);
    }
    notes.into_iter().filter(|note| !note.runs()).collect()
}

/// The message about a program that has ended.
pub(super) fn said_of_ended(note: &Note) -> String {
    let log = note.log.display();
    match note.last_words(LAST_LINES) {
        words if words.is_empty() => format!("{} has ended already, without output", note.what),
        words => format!("{} has ended already ({log}):\n{words}", note.what),
    }
}

/// A declared port on which no program listens.
fn missing(ports: &[u16], pid: i32) -> Option<u16> {
    if ports.is_empty() {
        return None;
    }
    // Sockets of the process's network namespace.
    let table = |name| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let tables = table("tcp") + &table("tcp6");
    let listening: Vec<u16> = tables.lines().filter_map(listens_on).collect();
    let mut ports = ports.iter().copied();
    ports.find(|port| !listening.contains(port))
}

/// The port in a line of /proc/net/tcp or tcp6, if its socket listens (proc_net_tcp(5)).
fn listens_on(line: &str) -> Option<u16> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, _remote, state) = (fields.next()?, fields.next()?, fields.next()?);
    let (_, port) = local.rsplit_once(':')?;
    (state == LISTEN).then(|| u16::from_str_radix(port, 16).ok())?
}
