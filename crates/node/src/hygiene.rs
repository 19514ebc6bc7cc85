//! Hardening of processes that hold private keys or privileges.

use std::io;

use rustix::process::{
    DumpableBehavior, Gid, Pid, Resource, Rlimit, Signal, Uid, getppid, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use crate::user::User;

mod alone;

pub(crate) use alone::stay_alone;

/// Capabilities that a holder needs: entering the pods' namespaces (`SYS_ADMIN`), hooks and routes (`NET_ADMIN`, `BPF`,
/// `PERFMON`), and dropping the proxy's capabilities (`SETPCAP`).
const HOLDING: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SETPCAP);

/// Further capabilities for a proxy of another user: to change its user, and to send it signals afterwards.
const OF_ANOTHER_USER: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::KILL);

/// Further capabilities that the agent of node QoS may have, which a holder starts: to enter the namespaces of pods by
/// their processes (`SYS_PTRACE`), and to read and write what belongs to other users (`DAC_OVERRIDE`), such as control
/// groups that were delegated. The holder itself does not have them.
const OF_QOS_AGENT: CapabilitySet = CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_OVERRIDE);

/// Reduces the process's capabilities for good to those that a holder needs; with a `proxy` user, also those that
/// another user takes. With an `agent`, programs that it starts may have those that the agent of node QoS takes. Only
/// before there are threads.
///
/// # Errors
/// When a capability is missing.
pub(crate) fn keep_what_holding_takes(proxy: Option<User>, agent: bool) -> Result<(), String> {
    let missing = "interception needs root (CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_BPF): start it as root, or leave \
                   out --intercept";
    let has = rustix::thread::capabilities(None).map_err(|error| error.to_string())?;
    if !has.permitted.contains(HOLDING) {
        return Err(missing.to_owned());
    }
    let kept = match proxy {
        None => HOLDING,
        Some(_) if has.permitted.contains(OF_ANOTHER_USER) => HOLDING.union(OF_ANOTHER_USER),
        Some(user) => {
            return Err(format!(
                "the proxy is to run as user {user}, which needs CAP_SETUID, CAP_SETGID and CAP_KILL: give them to \
                 the holder"
            ));
        }
    };
    let of_programs = match agent {
        true => kept.union(OF_QOS_AGENT),
        false => kept,
    };
    keep(kept, of_programs).map_err(|error| format!("cannot give up privileges: {error}"))
}

/// Changes to another user, if one is given, and drops every privilege for good, also for child processes. Only before
/// there are threads: each thread has its own user and capabilities.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn give_up_privileges(user: Option<User>) -> io::Result<()> {
    // First, while this is allowed: without root, the process has no capabilities any more.
    bound(CapabilitySet::empty())?;
    if let Some(User { uid, gid }) = user {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        set_thread_groups(&[])?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
    }
    keep(CapabilitySet::empty(), CapabilitySet::empty())?;
    set_no_new_privs(true)?;
    Ok(())
}

/// Has the kernel kill this process when its parent ends, in whatever way and whatever this process is doing then. Only
/// after [`give_up_privileges`], since a change of user cancels it (prctl(2)).
///
/// # Errors
/// When the kernel refuses; normally it does not.
pub(crate) fn end_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Has the kernel stop this process by SIGTERM when its parent ends. `parent` is the process that it is meant for.
/// Returns whether that still is the parent.
///
/// # Errors
/// When the kernel refuses; normally it does not.
pub fn stop_with(parent: i32) -> io::Result<bool> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // It may have ended before.
    Ok(getppid().map(Pid::as_raw_pid) == Some(parent))
}

/// Reduces the capabilities of this process, and of programs that it starts.
fn keep(kept: CapabilitySet, of_programs: CapabilitySet) -> io::Result<()> {
    bound(of_programs)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}

/// Limits the capabilities of all programs that this process starts.
fn bound(kept: CapabilitySet) -> io::Result<()> {
    clear_ambient_capability_set()?;
    for capability in CapabilitySet::all().difference(kept).iter() {
        // The kernel may know fewer capabilities than this library.
        if capability_is_in_bounding_set(capability).unwrap_or(false) {
            remove_capability_from_bounding_set(capability)?;
        }
    }
    Ok(())
}

/// Disables core files, and stops other processes of the same user from reading this process's memory, so that no key
/// ends up on a disk or in a crash report. The limit cannot be raised again, and child processes inherit it.
///
/// # Errors
/// When the kernel refuses; normally it does not.
pub fn keep_memory_to_ourselves() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::process::{DumpableBehavior, Resource, dumpable_behavior, getrlimit};

    use super::keep_memory_to_ourselves;

    #[test]
    fn a_process_with_keys_leaves_no_core_file() {
        keep_memory_to_ourselves().expect("the kernel agrees");
        assert_eq!(dumpable_behavior(), Ok(DumpableBehavior::NotDumpable));
        let limit = getrlimit(Resource::Core);
        assert_eq!((limit.current, limit.maximum), (Some(0), Some(0)));
        keep_memory_to_ourselves().expect("and agrees again");
    }
}
