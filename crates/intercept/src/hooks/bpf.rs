//! Hooks made of BPF programs.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use aya::Ebpf;
use aya::programs::links::FdLink;
use heddle_model::Cidr;
use rustix::fs::{FsWord, fstatfs};

use super::layout::{self, Address, PodBytes, PodEntry};
use super::pins::Pins;
use super::{FullTables, Guarded, HookError, Options, Pod, loaded};
use crate::sockopt::netns_cookie;
use crate::{Fate, MAX_EXCLUDED, PodId};
pub(super) use packets::Packets;
use tables::{Tables, refused, removed};

mod addresses;
mod packets;
mod tables;

/// Magic number of the cgroup v2 file system (statfs(2)).
const CGROUP2_MAGIC: FsWord = 0x6367_7270;

/// Hooks made of BPF programs, and the pods in their tables.
#[derive(Debug)]
pub struct Bpf {
    object: Ebpf,
    tables: Tables,
    epoch: u32,
    pods: HashMap<PodId, BpfPod>,
    /// Addresses of released pods. They stay in the table until the programs are detached from the namespace.
    leaving: HashMap<PodId, Vec<Address>>,
    pins: Option<Pins>,
    /// Why there are no pins.
    unpinned: Option<String>,
    packets: Packets,
}

/// A pod in the tables of the programs.
#[derive(Debug)]
struct BpfPod {
    cookie: u64,
    entry: PodEntry,
    addresses: Vec<Address>,
    networks: Vec<Cidr>,
    netns: OwnedFd,
    /// Keeps the program for inbound connections attached to its namespace.
    _arrive: Option<FdLink>,
    /// Keeps the packet programs attached to its interfaces, if its fate is to be refused.
    packets: Vec<FdLink>,
    /// Whether its guard is attached completely.
    has_guard: bool,
}

impl BpfPod {
    /// Attaches its guard: for inbound connections, if it can be pinned, and for packets.
    fn guard(
        &mut self,
        object: &mut Ebpf,
        packets: &Packets,
        pins: Option<&Pins>,
    ) -> Result<(), HookError> {
        let netns = self.netns.as_fd();
        if let Some(pins) = pins {
            let guard = loaded::link(object, loaded::GUARD_ARRIVE, netns)?;
            pins.keep_pod(self.cookie, guard)?;
        }
        self.packets = packets.guard(object, pins, netns, self.cookie)?;
        self.has_guard = true;
        Ok(())
    }
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
        let (mut pins, unpinned) = match options.bpffs.as_deref().map(Pins::open).transpose() {
            Err(lacking @ HookError::Lacking { .. }) => {
                unguarded(&lacking);
                (None, Some(lacking.to_string()))
            }
            opened => (opened?, None),
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
            leaving: HashMap::new(),
            pins: None,
            unpinned,
            packets: Packets::default(),
        };
        bpf.tables.set_epoch(bpf.epoch)?;
        bpf.tables.add_ranges(&options.ranges)?;
        bpf.tables.adopt(&orphans.unwrap_or_default())?;
        // The programs that record and report original destinations must be attached before any destination is
        // rewritten.
        for program in loaded::AT_OWN {
            loaded::attach(&mut bpf.object, program, own_cgroup.as_fd())?;
        }
        for program in loaded::AT_PODS {
            loaded::attach(&mut bpf.object, program, pods_cgroup.as_fd())?;
        }
        bpf.packets
            .attach(&mut bpf.object, pins.as_ref(), pods_cgroup.as_fd())?;
        if let Some(pins) = pins {
            bpf.guard(&pins, &pods_cgroup)?;
            bpf.pins = Some(pins);
        }
        Ok(bpf)
    }

    /// Attaches the guards after the programs that rewrite destinations, and replaces those of an earlier process.
    fn guard(&mut self, pins: &Pins, pods_cgroup: &File) -> Result<(), HookError> {
        let (name, what) = loaded::GUARD_ARRIVE;
        loaded::load(&mut self.object, name, what)?;
        for guard in loaded::GUARDS {
            let (name, what) = (guard.0, loaded::GUARDS_PODS);
            loaded::yields(&mut self.object, guard)?;
            loaded::load(&mut self.object, name, what)?;
            let link = loaded::link(&mut self.object, (name, what), pods_cgroup.as_fd())?;
            pins.keep(name, link)?;
        }
        pins.complete()
    }

    /// The folder of the guard, or why there is none.
    pub(super) fn guard_folder(&self) -> Result<&Path, String> {
        match (&self.pins, &self.unpinned) {
            (Some(pins), _) => Ok(pins.folder()),
            (None, Some(why)) => Err(why.clone()),
            (None, None) => Err("no folder was given for it".to_owned()),
        }
    }

    /// The namespaces that the guard of an earlier process refuses, without those of our pods.
    pub(super) fn guarded(&self) -> Vec<Guarded> {
        let is_ours = |cookie: u64| self.pods.values().any(|pod| pod.cookie == cookie);
        let guards = self
            .pins
            .as_ref()
            .map(|pins| pins.guards(|cookie| !is_ours(cookie)));
        let mut found = BTreeMap::new();
        // A folder that cannot be read is reported when it is written to.
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

    pub(super) fn enroll(&mut self, pod: &Pod<'_>) -> Result<(), HookError> {
        let cookie = netns_cookie(pod.outbound)
            .map_err(|error| HookError::lacking("cookies of network namespaces", &error))?;
        self.check(pod, cookie)?;
        let unusable = |error| HookError::pod(pod.id, format!("its descriptors: {error}"));
        let outbound_port = pod.outbound.local_addr().map_err(unusable)?.port();
        let scope = pod.id.0.checked_add(1);
        let scope = scope.ok_or_else(|| HookError::pod(pod.id, "no number is left"))?;
        let enrolled = BpfPod {
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
            packets: Vec::new(),
            has_guard: false,
        };
        // The entry of a pod that the guard of an earlier process refuses.
        let before = self.tables.pods.get(&cookie, 0).ok();
        self.pods.insert(pod.id, enrolled);
        let owned = match before {
            Some(_) => self.disown(pod.id),
            None => Ok(()),
        };
        let steered = owned.and_then(|()| self.steer(pod));
        if steered.is_err() {
            // Undo the steps already made. The first error is the useful one, so an error here is ignored.
            let _ = match before {
                Some(before) => self.put_back(pod.id, before),
                None => self.release(pod.id).and(self.forget(pod.id)),
            };
        }
        steered
    }

    /// Restores the entry of a guarded pod that could not be enrolled: it is refused again, and its guard and
    /// addresses stay.
    fn put_back(&mut self, pod: PodId, before: PodBytes) -> Result<(), HookError> {
        let enrolled = self.pods.remove(&pod).ok_or(HookError::Unknown(pod))?;
        // This comes first, so that nothing is steered to a listener that is about to be closed.
        let done = refused(
            "a guarded pod",
            self.tables.pods.insert(enrolled.cookie, before, 0),
        );
        done.and(self.unsteer(&enrolled))
    }

    /// Checks all preconditions before anything is changed.
    fn check(&self, pod: &Pod<'_>, cookie: u64) -> Result<(), HookError> {
        let wrong = |reason: String| Err(HookError::pod(pod.id, reason));
        if self.pods.contains_key(&pod.id) {
            return wrong("is enrolled already".to_owned());
        }
        if let Some((other, _)) = self.pods.iter().find(|(_, known)| known.cookie == cookie) {
            return wrong(format!("pod {other} has the same network namespace"));
        }
        if pod.addresses.is_empty() {
            return wrong("has no address".to_owned());
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
        self.check_addresses(pod.id, pod.addresses)
    }

    /// Fills the tables and attaches the programs. The entry in `pods` comes last: with it, everything takes effect
    /// at once.
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
        }
        let listener = pod.inbound.as_raw_fd();
        let inserted = tables.listeners.insert(enrolled.cookie, listener, 0);
        refused("a pod's listener", inserted)?;
        let arrive = loaded::link(&mut self.object, loaded::ARRIVE, pod.netns)?;
        enrolled._arrive = Some(arrive);
        // The guard comes before the entry. Without an entry that says so, it guards no pod. If we are killed in
        // between, no operator got the reply that the pod is enrolled. In the other order the pod would be enrolled
        // and unguarded.
        if enrolled.entry.fate == Fate::Refuse {
            let (packets, pins) = (&self.packets, self.pins.as_ref());
            enrolled.guard(&mut self.object, packets, pins)?;
        }
        let entry = enrolled.entry.encode();
        refused("a pod", tables.pods.insert(enrolled.cookie, entry, 0))?;
        let Some(pins) = &mut self.pins else {
            return Ok(());
        };
        if enrolled.entry.fate == Fate::Pass {
            pins.remove_pod(enrolled.cookie)?;
        }
        // Only now that nothing can fail any more: until here the earlier holder's guard refuses the pod.
        pins.take_over(enrolled.cookie);
        Ok(())
    }

    pub(super) fn serve(&mut self, pod: PodId, fate: Fate) -> Result<(), HookError> {
        let enrolled = self.pods.get_mut(&pod).ok_or(HookError::Unknown(pod))?;
        let before = enrolled.entry.fate;
        enrolled.entry.epoch = self.epoch;
        enrolled.entry.fate = fate;
        enrolled.entry.is_guarded = self.pins.is_some() && fate == Fate::Refuse;
        // The guard comes before the entry, as in `steer`. If it fails, the entry is written all the same, and the
        // guard is tried again at the next call.
        let pins = self.pins.as_ref();
        let guarded = match fate {
            Fate::Refuse if !enrolled.has_guard => {
                enrolled.guard(&mut self.object, &self.packets, pins)
            }
            _ => Ok(()),
        };
        let entry = enrolled.entry.encode();
        refused("a pod", self.tables.pods.insert(enrolled.cookie, entry, 0))?;
        if (before, fate) == (Fate::Refuse, Fate::Pass) {
            enrolled.has_guard = false;
            enrolled.packets.clear();
            return pins.map_or(Ok(()), |pins| pins.remove_pod(enrolled.cookie));
        }
        guarded
    }

    pub(super) fn died(&mut self) -> Result<(), HookError> {
        // Skip 0: it is the epoch of adopted pods that this process has not enrolled.
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        self.tables.set_epoch(self.epoch)
    }

    /// Continues after an error and returns the first one.
    pub(super) fn release(&mut self, pod: PodId) -> Result<(), HookError> {
        let enrolled = self.pods.remove(&pod).ok_or(HookError::Unknown(pod))?;
        let mut done = removed("a pod", self.tables.pods.remove(&enrolled.cookie));
        if let Some(pins) = &self.pins {
            done = done.and(pins.remove_pod(enrolled.cookie));
        }
        done = done.and(self.unsteer(&enrolled));
        // Its addresses stay until `forget`: programs that the kernel has not yet detached drop traffic for unknown
        // ones.
        self.leaving.insert(pod, enrolled.addresses);
        done
    }

    /// Removes the entries that only a steered pod has.
    fn unsteer(&mut self, enrolled: &BpfPod) -> Result<(), HookError> {
        let tables = &mut self.tables;
        let done = removed(
            "a pod's listener",
            tables.listeners.remove(&enrolled.cookie),
        );
        let done = done.and(removed(
            "a pod's counter",
            tables.pending.remove(&enrolled.cookie),
        ));
        done.and(tables.remove_networks(enrolled.entry.scope, &enrolled.networks))
    }

    pub(super) fn forget(&mut self, pod: PodId) -> Result<(), HookError> {
        let mut done = Ok(());
        for address in self.leaving.remove(&pod).unwrap_or_default() {
            // By now another pod may have the address, or the same pod enrolled again.
            if self.owner(&address).is_none() {
                let removed = removed("a pod's address", self.tables.addresses.remove(&address));
                done = done.and(removed);
            }
        }
        done
    }

    pub(super) fn full(&self) -> FullTables {
        self.tables.full()
    }

    /// The number of connections in their handshake: rewritten ones that have not reached their listener, and those
    /// of the proxy that have not reached a program.
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

/// Opens a control group of version 2 that is not the root group.
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
    // Only the root group has no file `cgroup.type`.
    if !path.join("cgroup.type").exists() {
        return Err(HookError::path(
            path,
            "is the root of all control groups, where hooks would concern every process: name one beneath it",
        ));
    }
    Ok(file)
}
