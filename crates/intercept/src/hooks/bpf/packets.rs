//! Attaches the programs that see packets.

use std::fs;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use aya::Ebpf;
use aya::programs::links::FdLink;

use crate::hooks::pins::Pins;
use crate::hooks::{HookError, loaded};
use crate::namespace::within;

/// The interfaces of this thread's namespace: two header lines, then one line for each (proc(5)).
const INTERFACES: &str = "/proc/thread-self/net/dev";
/// Limit of interfaces of a pod: one with more is not enrolled.
const MAX_INTERFACES: usize = 64;
/// Attempts to list and attach all interfaces. A pod that runs containers adds and removes interfaces, so one can
/// disappear in between.
const TRIES: usize = 16;
/// Pause between two attempts: about the time that the kernel needs to detach the links of a released pod.
const PAUSE: Duration = Duration::from_millis(5);

/// Links of the packet programs, which keep them attached while this process lives, even when their pins are removed.
#[derive(Debug, Default)]
pub(in crate::hooks) struct Packets {
    /// Links to the pods' cgroup. Empty where the programs are attached to interfaces.
    at_cgroup: Vec<FdLink>,
}

impl Packets {
    /// Loads the programs, and attaches those for the pods' cgroup.
    pub(in crate::hooks) fn attach(
        &mut self,
        object: &mut Ebpf,
        pins: Option<&Pins>,
        pods_cgroup: BorrowedFd<'_>,
    ) -> Result<(), HookError> {
        if loaded::has_links_to_interfaces() {
            for (guard, _) in loaded::LINK_GUARDS {
                loaded::yields(object, guard)?;
                loaded::load(object, guard.0, loaded::GUARDS_LINKS)?;
            }
            return Ok(());
        }
        for guard in loaded::PACKET_GUARDS {
            let (name, what) = (guard.0, loaded::GUARDS_PODS);
            loaded::yields(object, guard)?;
            loaded::load(object, name, what)?;
            let link = loaded::link(object, (name, what), pods_cgroup)?;
            self.at_cgroup.push(match pins {
                Some(pins) => pins.keep(name, link)?,
                None => link,
            });
        }
        Ok(())
    }

    /// Attaches the programs to the interfaces that a pod has now, until the returned links are dropped and unpinned.
    pub(in crate::hooks) fn guard(
        &self,
        object: &mut Ebpf,
        pins: Option<&Pins>,
        netns: BorrowedFd<'_>,
        cookie: u64,
    ) -> Result<Vec<FdLink>, HookError> {
        if !self.at_cgroup.is_empty() {
            return Ok(Vec::new());
        }
        let attached = within(netns, || {
            for _ in 0..TRIES {
                if let Some(attached) = attached(object)? {
                    return Ok(attached);
                }
                #[allow(
                    clippy::disallowed_methods,
                    reason = "the kernel does not tell when it has let go"
                )]
                std::thread::sleep(PAUSE);
            }
            Err(HookError::too_many("changes of a pod's interfaces", TRIES))
        });
        let unusable = |error| HookError::refused("a pod's namespace", &error);
        let attached: Vec<_> = attached.map_err(unusable)??;
        let keep = |(name, link): (String, FdLink)| match pins {
            Some(pins) => pins.keep_packets(cookie, &name, link),
            None => Ok(link),
        };
        attached.into_iter().map(keep).collect()
    }
}

/// Attaches the programs to all interfaces of this thread's namespace. `None` when that must be tried again: an
/// interface disappeared meanwhile (or was only renamed), or still has the links of a released pod.
fn attached(object: &mut Ebpf) -> Result<Option<Vec<(String, FdLink)>>, HookError> {
    let mut attached = Vec::new();
    for (number, interface) in interfaces()?.into_iter().enumerate() {
        for ((name, ..), at) in loaded::LINK_GUARDS {
            let Some(link) = loaded::link_to_interface(object, name, at, &interface)? else {
                return Ok(None);
            };
            attached.push((format!("{number}-{name}"), link));
        }
    }
    Ok(Some(attached))
}

/// The interfaces of this thread's namespace without loopback.
fn interfaces() -> Result<Vec<String>, HookError> {
    let text = fs::read_to_string(INTERFACES)
        .map_err(|error| HookError::refused(format!("cannot read {INTERFACES}"), &error))?;
    let names = text
        .lines()
        .skip(2)
        .filter_map(|line| line.split(':').next());
    let names = names.map(str::trim).filter(|name| *name != "lo");
    let names: Vec<String> = names.map(str::to_owned).collect();
    match names.len() > MAX_INTERFACES {
        true => Err(HookError::too_many("interfaces of a pod", MAX_INTERFACES)),
        false => Ok(names),
    }
}
