//! Hooks by BPF programs.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use aya::Ebpf;
use aya::programs::links::FdLink;
use rustix::fs::{FsWord, fstatfs};

use super::layout::{self, Address, PodBytes, PodEntry};
use super::pins::Pins;
use super::{FullTables, Guarded, HookError, Options, Pod, loaded};
use crate::sockopt::netns_cookie;
use crate::{Cidr, Fate, MAX_EXCLUDED, PodId};
pub(super) use packets::Packets;
use tables::{Tables, refused, removed};

mod addresses;
mod packets;
mod tables;

/// Of a control group, version 2 (statfs(2)).
const CGROUP2_MAGIC: FsWord = 0x6367_7270;

/// Hooks by BPF programs, and the pods that they know.
#[derive(Debug)]
pub struct Bpf {
    object: Ebpf,
    tables: Tables,
    epoch: u32,
    pods: HashMap<PodId, BpfPod>,
    /// Addresses of pods that were released, until nothing looks for them any more.
    leaving: HashMap<PodId, Vec<Address>>,
    pins: Option<Pins>,
    /// Why there are no pins.
    unpinned: Option<String>,
    packets: Packets,
}

/// A pod that the programs know.
#[derive(Debug)]
struct BpfPod {
    cookie: u64,
    entry: PodEntry,
    addresses: Vec<Address>,
    networks: Vec<Cidr>,
    netns: OwnedFd,
    /// Holds the program for what arrives in its namespace.
    _arrive: Option<FdLink>,
    /// Holds the programs at its interfaces, if it is refused without a proxy.
    packets: Vec<FdLink>,
    /// Whether its guard is attached, and all of it.
    has_guard: bool,
}

impl BpfPod {
    /// Attaches its guard: of what arrives, where it can be pinned, and of packets.
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
        // Sockets whose destination is to be told must find their hooks before any is rewritten.
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

    /// Puts the guards behind the programs that rewrite, in the place of those of another process.
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
        // Of one that the guard of another process refuses.
        let before = self.tables.pods.get(&cookie, 0).ok();
        self.pods.insert(pod.id, enrolled);
        let owned = match before {
            Some(_) => self.disown(pod.id),
            None => Ok(()),
        };
        let steered = owned.and_then(|()| self.steer(pod));
        if steered.is_err() {
            // What was done already is undone; why it could not be done is the better message.
            let _ = match before {
                Some(before) => self.put_back(pod.id, before),
                None => self.release(pod.id).and(self.forget(pod.id)),
            };
        }
        steered
    }

    /// A pod that could not be enrolled is again what it was, which is refused: its guard and its addresses stay.
    fn put_back(&mut self, pod: PodId, before: PodBytes) -> Result<(), HookError> {
        let enrolled = self.pods.remove(&pod).ok_or(HookError::Unknown(pod))?;
        // First of all, so that nothing is steered to a listener that is gone.
        let done = refused(
            "a guarded pod",
            self.tables.pods.insert(enrolled.cookie, before, 0),
        );
        done.and(self.unsteer(&enrolled))
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
        }
        let listener = pod.inbound.as_raw_fd();
        let inserted = tables.listeners.insert(enrolled.cookie, listener, 0);
        refused("a pod's listener", inserted)?;
        let arrive = loaded::link(&mut self.object, loaded::ARRIVE, pod.netns)?;
        enrolled._arrive = Some(arrive);
        // The guard first: it guards no pod whose entry does not say so, and should we be killed before the entry is
        // there, no operator was told that the pod is enrolled. The other way round it would be, and its door open.
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
        // Not before nothing can fail any more: until then it refuses the pod.
        pins.take_over(enrolled.cookie);
        Ok(())
    }

    pub(super) fn serve(&mut self, pod: PodId, fate: Fate) -> Result<(), HookError> {
        let enrolled = self.pods.get_mut(&pod).ok_or(HookError::Unknown(pod))?;
        let before = enrolled.entry.fate;
        enrolled.entry.epoch = self.epoch;
        enrolled.entry.fate = fate;
        enrolled.entry.is_guarded = self.pins.is_some() && fate == Fate::Refuse;
        // Before the entry, as in `steer`. A guard that fails keeps no pod from its fate, and is tried again the next
        // time.
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
        // 0 is of those that no proxy has served yet.
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        self.tables.set_epoch(self.epoch)
    }

    /// Everything is tried, and the first thing that failed said.
    pub(super) fn release(&mut self, pod: PodId) -> Result<(), HookError> {
        let enrolled = self.pods.remove(&pod).ok_or(HookError::Unknown(pod))?;
        let mut done = removed("a pod", self.tables.pods.remove(&enrolled.cookie));
        if let Some(pins) = &self.pins {
            done = done.and(pins.remove_pod(enrolled.cookie));
        }
        done = done.and(self.unsteer(&enrolled));
        // Not its addresses: the kernel takes its time to detach what drops those that are not known.
        self.leaving.insert(pod, enrolled.addresses);
        done
    }

    /// Removes what only a pod that is steered has.
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
            // It may be another's by now, or the same pod's, which is enrolled again.
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
            "is the root of all control groups, where hooks would concern every process: name one beneath it",
        ));
    }
    Ok(file)
}
