//! Hooks by BPF programs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use aya::Ebpf;
use aya::programs::links::FdLink;
use rustix::fs::{FsWord, fstatfs};

use super::layout::{self, Address, PodEntry};
use super::pins::Pins;
use super::{Guarded, HookError, MAX_ADDRESSES, Options, Pod, loaded};
use crate::sockopt::netns_cookie;
use crate::{Cidr, Fate, MAX_EXCLUDED, PodId};
use tables::{Tables, refused, removed};

mod tables;

/// Of a control group, version 2 (statfs(2)).
const CGROUP2_MAGIC: FsWord = 0x6367_7270;

/// Hooks by BPF programs, and the pods that they know.
#[derive(Debug)]
pub struct Bpf {
    object: Ebpf,
    tables: Tables,
    epoch: u32,
    pods: HashMap<PodId, Enrolled>,
    pins: Option<Pins>,
    /// Why there are no pins.
    unpinned: Option<String>,
}

/// A pod that the programs know.
#[derive(Debug)]
struct Enrolled {
    cookie: u64,
    entry: PodEntry,
    addresses: Vec<Address>,
    networks: Vec<Cidr>,
    netns: OwnedFd,
    /// Holds the program for what arrives in its namespace.
    _arrive: Option<FdLink>,
}

impl Bpf {
    pub(super) fn open(options: &Options) -> Result<Self, HookError> {
        let pods_cgroup = cgroup(&options.pods_cgroup)?;
        let own_cgroup = cgroup(&options.own_cgroup)?;
        let own_id = own_cgroup
            .metadata()
            .map_err(|error| HookError::path(&options.own_cgroup, error.to_string()))?
            .ino();
        let mut object = loaded::object(own_id)?;
        for (name, what) in loaded::AT_PODS.into_iter().chain(loaded::AT_OWN) {
            loaded::load(&mut object, name, what)?;
        }
        loaded::load(&mut object, loaded::ARRIVE.0, loaded::ARRIVE.1)?;
        let (mut pins, unpinned) = match options.bpffs.as_deref().map(Pins::open) {
            Some(Ok(pins)) => (Some(pins), None),
            Some(Err(error)) => {
                unguarded(&error);
                (None, Some(error.to_string()))
            }
            None => (None, None),
        };
        let orphans = pins.as_mut().map(Pins::orphans).transpose()?;
        if let Some(pins) = &pins {
            pins.prepare(&object)?;
        }
        let mut bpf = Bpf {
            tables: Tables::take(&mut object)?,
            object,
            epoch: 1,
            pods: HashMap::new(),
            pins: None,
            unpinned,
        };
        bpf.tables.set_epoch(bpf.epoch)?;
        bpf.tables.add_ranges(&options.ranges)?;
        bpf.tables.adopt(&orphans.unwrap_or_default())?;
        // Sockets whose destination is to be told must find their hooks before any is rewritten.
        for program in loaded::AT_OWN {
            loaded::attach(&mut bpf.object, program, own_cgroup.as_fd())?;
        }
        for program in loaded::AT_PODS {
            loaded::attach(&mut bpf.object, program, pods_cgroup.as_fd())?;
        }
        if let Some(pins) = pins {
            bpf.guard(&pins, &pods_cgroup)?;
            bpf.pins = Some(pins);
        }
        Ok(bpf)
    }

    /// Puts the guards behind the programs that rewrite, in the place of those of another process.
    fn guard(&mut self, pins: &Pins, pods_cgroup: &File) -> Result<(), HookError> {
        loaded::yields(&mut self.object)?;
        let (name, what) = loaded::GUARD_ARRIVE;
        loaded::load(&mut self.object, name, what)?;
        for (name, ..) in loaded::GUARDS {
            let what = "cgroup programs, which guard pods";
            loaded::load(&mut self.object, name, what)?;
            let link = loaded::link(&mut self.object, (name, what), pods_cgroup.as_fd())?;
            pins.keep(name, link)?;
        }
        pins.complete()
    }

    /// Where the guard is, or why there is none.
    pub(super) fn guard_folder(&self) -> Result<&Path, String> {
        match (&self.pins, &self.unpinned) {
            (Some(pins), _) => Ok(pins.folder()),
            (None, Some(why)) => Err(why.clone()),
            (None, None) => Err("no folder for it was named".to_owned()),
        }
    }

    /// What the guard of a process before refuses, and no pod of ours is.
    pub(super) fn guarded(&self) -> Vec<Guarded> {
        let is_ours = |cookie: u64| self.pods.values().any(|pod| pod.cookie == cookie);
        let guards = self
            .pins
            .as_ref()
            .map(|pins| pins.guards(|cookie| !is_ours(cookie)));
        let mut found = BTreeMap::new();
        // Where the folder cannot be read, that is said when it is written.
        for guard in guards.and_then(Result::ok).into_iter().flatten() {
            if let Some(inode) = guard.namespace {
                let addresses = Vec::new();
                found.insert(guard.cookie, Guarded { inode, addresses });
            }
        }
        if !found.is_empty() {
            for (address, cookie) in self.tables.addresses.iter().filter_map(Result::ok) {
                if let Some(guarded) = found.get_mut(&cookie) {
                    guarded.addresses.push(layout::ip_address(address));
                }
            }
        }
        found.into_values().collect()
    }

    pub(super) fn enrol(&mut self, pod: &Pod<'_>) -> Result<(), HookError> {
        let cookie = netns_cookie(pod.outbound)
            .map_err(|error| HookError::lacking("cookies of network namespaces", &error))?;
        self.check(pod, cookie)?;
        let unusable = |error| HookError::pod(pod.id, format!("its descriptors: {error}"));
        let outbound_port = pod.outbound.local_addr().map_err(unusable)?.port();
        let scope = pod.id.0.checked_add(1);
        let scope = scope.ok_or_else(|| HookError::pod(pod.id, "no number is left"))?;
        let enrolled = Enrolled {
            cookie,
            entry: PodEntry {
                scope,
                epoch: self.epoch,
                fate: pod.fate,
                outbound_port,
                is_guarded: self.pins.is_some() && pod.fate == Fate::Refuse,
                has_networks: !pod.exclude.outbound_networks.is_empty(),
                inbound: pod.exclude.inbound_ports.clone(),
                outbound: pod.exclude.outbound_ports.clone(),
            },
            addresses: pod.addresses.iter().copied().map(layout::address).collect(),
            networks: pod.exclude.outbound_networks.clone(),
            netns: pod.netns.try_clone_to_owned().map_err(unusable)?,
            _arrive: None,
        };
        self.pods.insert(pod.id, enrolled);
        let steered = self.steer(pod);
        if steered.is_err() {
            // What was done already is undone; why it could not be done is the better message.
            let _ = self.release(pod.id);
        }
        steered
    }

    /// Everything that must hold before anything is changed.
    fn check(&self, pod: &Pod<'_>, cookie: u64) -> Result<(), HookError> {
        let wrong = |reason: String| Err(HookError::pod(pod.id, reason));
        if self.pods.contains_key(&pod.id) {
            return wrong("is enrolled already".to_owned());
        }
        if let Some((other, _)) = self.pods.iter().find(|(_, known)| known.cookie == cookie) {
            return wrong(format!("pod {other} has the same network namespace"));
        }
        if pod.addresses.is_empty() || pod.addresses.len() > MAX_ADDRESSES {
            let count = pod.addresses.len();
            return wrong(format!(
                "has {count} addresses: 1 to {MAX_ADDRESSES} are wanted"
            ));
        }
        let exclude = pod.exclude;
        let kinds = [
            exclude.inbound_ports.len(),
            exclude.outbound_ports.len(),
            exclude.outbound_networks.len(),
        ];
        if kinds.iter().any(|count| *count > MAX_EXCLUDED) {
            return wrong(format!(
                "excludes more than {MAX_EXCLUDED} ranges of a kind"
            ));
        }
        let mut seen = BTreeSet::new();
        for address in pod.addresses {
            if address.is_loopback() || address.is_unspecified() || address.is_multicast() {
                return wrong(format!("{address} is no address of a pod"));
            }
            if !seen.insert(layout::address(*address)) {
                return wrong(format!("{address} is named twice"));
            }
            if let Some(other) = self.owner(*address) {
                return wrong(format!("{address} is pod {other}'s"));
            }
        }
        Ok(())
    }

    /// Which enrolled pod has an address.
    fn owner(&self, address: IpAddr) -> Option<PodId> {
        let address = layout::address(address);
        let mut pods = self.pods.iter();
        pods.find_map(|(id, pod)| pod.addresses.contains(&address).then_some(*id))
    }

    /// Tells the programs; the entry in `pods` comes last, and with it everything holds at once.
    fn steer(&mut self, pod: &Pod<'_>) -> Result<(), HookError> {
        let Some(enrolled) = self.pods.get_mut(&pod.id) else {
            return Err(HookError::Unknown(pod.id));
        };
        let tables = &mut self.tables;
        tables.add_networks(enrolled.entry.scope, &enrolled.networks)?;
        let pending = layout::pending(enrolled.entry.scope);
        refused(
            "a pod's counter",
            tables.pending.insert(enrolled.cookie, pending, 0),
        )?;
        for address in &enrolled.addresses {
            let inserted = tables.addresses.insert(address, enrolled.cookie, 0);
            refused("a pod's address", inserted)?;
            let inserted = tables.listeners.insert(address, pod.inbound.as_raw_fd(), 0);
            refused("a pod's listener", inserted)?;
        }
        let arrive = loaded::link(&mut self.object, loaded::ARRIVE, pod.netns)?;
        enrolled._arrive = Some(arrive);
        let entry = enrolled.entry.encode();
        refused("a pod", tables.pods.insert(enrolled.cookie, entry, 0))?;
        let Some(pins) = &mut self.pins else {
            return Ok(());
        };
        pins.take_over(enrolled.cookie);
        if !enrolled.entry.is_guarded {
            return pins.remove_pod(enrolled.cookie);
        }
        let guard = loaded::link(&mut self.object, loaded::GUARD_ARRIVE, pod.netns)?;
        pins.keep_pod(enrolled.cookie, guard)
    }

    pub(super) fn serve(&mut self, pod: PodId, fate: Fate) -> Result<(), HookError> {
        let enrolled = self.pods.get_mut(&pod).ok_or(HookError::Unknown(pod))?;
        let was_guarded = enrolled.entry.is_guarded;
        enrolled.entry.epoch = self.epoch;
        enrolled.entry.fate = fate;
        enrolled.entry.is_guarded = self.pins.is_some() && fate == Fate::Refuse;
        let entry = enrolled.entry.encode();
        refused("a pod", self.tables.pods.insert(enrolled.cookie, entry, 0))?;
        match &self.pins {
            Some(pins) if enrolled.entry.is_guarded && !was_guarded => {
                let netns = enrolled.netns.as_fd();
                let guard = loaded::link(&mut self.object, loaded::GUARD_ARRIVE, netns)?;
                pins.keep_pod(enrolled.cookie, guard)
            }
            Some(pins) if was_guarded && !enrolled.entry.is_guarded => {
                pins.remove_pod(enrolled.cookie)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn died(&mut self) -> Result<(), HookError> {
        // 0 is of those that nobody has served yet.
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        self.tables.set_epoch(self.epoch)
    }

    /// Everything is tried, and the first thing that failed said.
    pub(super) fn release(&mut self, pod: PodId) -> Result<(), HookError> {
        let enrolled = self.pods.remove(&pod).ok_or(HookError::Unknown(pod))?;
        let tables = &mut self.tables;
        let mut done = removed("a pod", tables.pods.remove(&enrolled.cookie));
        if let Some(pins) = &self.pins {
            done = done.and(pins.remove_pod(enrolled.cookie));
        }
        for address in &enrolled.addresses {
            done = done.and(removed(
                "a pod's listener",
                tables.listeners.remove(address),
            ));
            done = done.and(removed("a pod's address", tables.addresses.remove(address)));
        }
        done = done.and(removed(
            "a pod's counter",
            tables.pending.remove(&enrolled.cookie),
        ));
        done.and(tables.remove_networks(enrolled.entry.scope, &enrolled.networks))
    }

    /// How many connections are in their handshake: rewritten and not yet with their listener, or of the proxy
    /// and not yet with a program.
    pub fn handshakes(&self) -> usize {
        let rewritten = self.tables.handshakes.keys().filter_map(Result::ok);
        let visits = self.tables.visits.keys().filter_map(Result::ok);
        rewritten.count() + visits.count()
    }
}

fn unguarded(error: &HookError) {
    let means = "there is no guard: once this process is gone, no pod is refused any more";
    tracing::warn!("{error}. Without it {means}");
}

/// Opens a control group.
fn cgroup(path: &Path) -> Result<File, HookError> {
    let file = File::open(path).map_err(|error| {
        HookError::path(path, format!("cannot open this control group: {error}"))
    })?;
    let system = fstatfs(&file)
        .map_err(|error| HookError::path(path, format!("cannot look at it: {error}")))?;
    if system.f_type != CGROUP2_MAGIC {
        return Err(HookError::path(
            path,
            "is no control group of version 2: name one below a file system of type cgroup2",
        ));
    }
    // The only one without a type.
    if !path.join("cgroup.type").exists() {
        return Err(HookError::path(
            path,
            "is the root of all control groups, where hooks would concern everybody: name one beneath it",
        ));
    }
    Ok(file)
}
