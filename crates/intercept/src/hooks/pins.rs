//! The guard that outlives this process, pinned in a folder of a BPF file system.
//!
//! | name | is |
//! |---|---|
//! | `guard_connect4`, `guard_connect6`, `guard_sendmsg4`, `guard_sendmsg6` | links to the pods' cgroup |
//! | `guard_egress`, `guard_ingress` | the same for packets, on kernels without links to interfaces |
//! | `pod-COOKIE` | a link to the network namespace with that cookie |
//! | `packets-COOKIE-…` | links to the interfaces of that namespace, on kernels that have such links |
//! | `pods`, `addresses` | the tables that the guards read |
//!
//! A new holder replaces each of them with one rename, so that there is no moment without a guard.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use aya::Ebpf;
use aya::maps::{HashMap, Map, MapData};
use aya::programs::links::{FdLink, PinnedLink};
use rustix::fs::FsWord;

use super::error::{HookError, chain};
use super::layout::{Address, PodBytes, orphan, unguarded};
use super::loaded::{GUARDS, PACKET_GUARDS};

mod folder;

/// Flag of bpf(2): update an existing entry, do not add one.
const BPF_EXIST: u64 = 2;

/// Names of the pinned tables.
pub(super) const TABLES: [&str; 2] = ["pods", "addresses"];
/// Name prefix of a link to a namespace, before its cookie.
const POD: &str = "pod-";
/// Name prefix of links to the interfaces of a namespace, before its cookie.
const PACKETS: &str = "packets-";
/// Suffix of a new pin that has not yet replaced the old one.
const NEW: &str = "-new";
/// Magic number of a BPF file system (statfs(2)).
pub(crate) const BPF_FS_MAGIC: FsWord = 0xcafe_4a11;

/// The folder with the pins.
#[derive(Debug)]
pub(super) struct Pins {
    folder: PathBuf,
    /// The table of pods of the earlier holder. Its guards read it while they are attached, which they stay for a
    /// while after they are unpinned.
    before: Option<HashMap<MapData, u64, PodBytes>>,
}

/// The guard of one pod.
#[derive(Debug)]
pub(super) struct Guard {
    pub(super) cookie: u64,
    /// Inode number of the network namespace; `None` when that is gone.
    pub(super) namespace: Option<u64>,
}

/// Guarded pods that an earlier process left.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    /// Cookie of the namespace, and the entry for the new table.
    pub(super) pods: Vec<(u64, PodBytes)>,
    /// Addresses of these pods, with the cookie.
    pub(super) addresses: Vec<(Address, u64)>,
}

impl Pins {
    /// Opens the folder, and creates it if it does not exist.
    ///
    /// # Errors
    /// [`HookError::Lacking`] when there is no BPF file system; another error when other users can write to the
    /// folder.
    pub(super) fn open(folder: &Path) -> Result<Self, HookError> {
        folder::make(folder)?;
        Ok(Pins {
            folder: folder.to_owned(),
            before: None,
        })
    }

    /// Reads the pods that were guarded when their holder ended. Pins of pods that are gone are removed.
    pub(super) fn orphans(&mut self) -> Result<Orphans, HookError> {
        let alive = self.sweep()?;
        let mut orphans = Orphans::default();
        let Some(pods) = self.old_table::<u64, PodBytes>("pods")? else {
            return Ok(orphans);
        };
        for cookie in alive {
            if let Some(pod) = pods.get(&cookie, 0).ok().and_then(orphan) {
                orphans.pods.push((cookie, pod));
            }
        }
        if let Some(addresses) = self.old_table::<Address, u64>("addresses")? {
            let is_orphan = |cookie: &u64| orphans.pods.iter().any(|(orphan, _)| orphan == cookie);
            let entries = addresses.iter().filter_map(Result::ok);
            orphans.addresses = entries.filter(|(_, cookie)| is_orphan(cookie)).collect();
        }
        self.before = Some(pods);
        Ok(orphans)
    }

    /// Returns the cookies of namespaces that still exist, and removes the guards of the others.
    fn sweep(&self) -> Result<Vec<u64>, HookError> {
        for name in names(&self.folder)? {
            if name.ends_with(NEW) {
                remove(&self.folder.join(&name))?;
            }
        }
        let mut alive = Vec::new();
        for guard in self.guards(|_| true)? {
            match guard.namespace {
                Some(_) => alive.push(guard.cookie),
                None => self.remove_pod(guard.cookie)?,
            }
        }
        Ok(alive)
    }

    /// The guards of namespaces whose cookies are `wanted`.
    pub(super) fn guards(&self, wanted: impl Fn(u64) -> bool) -> Result<Vec<Guard>, HookError> {
        let names = names(&self.folder)?.into_iter();
        let cookies = names.filter_map(|name| name.strip_prefix(POD)?.parse().ok());
        // Open all links first, so that one scan of `/proc/self/fdinfo` finds all their namespaces.
        let links: Vec<(u64, Option<FdLink>)> = cookies
            .filter(|cookie| wanted(*cookie))
            .map(|cookie| {
                let link = PinnedLink::from_pin(self.pod(cookie));
                (cookie, link.map(FdLink::from).ok())
            })
            .collect();
        if links.is_empty() {
            return Ok(Vec::new());
        }
        let attached = attached_to_namespaces();
        let namespace = |link: &FdLink| attached.get(&link.info().ok()?.id()).copied();
        let guards = links.iter().map(|(cookie, link)| Guard {
            cookie: *cookie,
            namespace: link.as_ref().and_then(namespace),
        });
        Ok(guards.collect())
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn pod(&self, cookie: u64) -> PathBuf {
        self.folder.join(format!("{POD}{cookie}"))
    }

    /// Opens a table that an earlier process pinned. `None` for a table of another version: its entries are lost, but
    /// the guards of its pods stay attached.
    fn old_table<K: aya::Pod, V: aya::Pod>(
        &self,
        name: &str,
    ) -> Result<Option<HashMap<MapData, K, V>>, HookError> {
        let path = self.folder.join(name);
        if !path.exists() {
            return Ok(None);
        }
        let data = MapData::from_pin(&path).map_err(|error| {
            HookError::path(&path, format!("cannot open it: {}", chain(&error)))
        })?;
        Ok(HashMap::try_from(Map::HashMap(data)).ok())
    }

    /// Pins a link of the guard, in place of the old one. The returned link also keeps it attached.
    pub(super) fn keep(&self, name: &str, link: FdLink) -> Result<FdLink, HookError> {
        let new = self.folder.join(format!("{name}{NEW}"));
        let link = link.pin(&new).map_err(|error| unpinned(&new, &error))?;
        self.replace(name)?;
        Ok(link.into())
    }

    /// Pins the link to the namespace of one pod.
    pub(super) fn keep_pod(&self, cookie: u64, link: FdLink) -> Result<(), HookError> {
        self.keep(&format!("{POD}{cookie}"), link).map(drop)
    }

    /// Pins a link to an interface of one pod, as [`Pins::keep`].
    pub(super) fn keep_packets(
        &self,
        cookie: u64,
        name: &str,
        link: FdLink,
    ) -> Result<FdLink, HookError> {
        self.keep(&format!("{PACKETS}{cookie}-{name}"), link)
    }

    /// Pins the new tables beside the old ones.
    pub(super) fn prepare(&self, object: &Ebpf) -> Result<(), HookError> {
        for name in TABLES {
            let new = self.folder.join(format!("{name}{NEW}"));
            let Some(table) = object.map(name) else {
                return Err(HookError::path(&new, "there is no such table"));
            };
            table.pin(&new).map_err(|error| unpinned(&new, &error))?;
        }
        Ok(())
    }

    /// Replaces the old tables by the prepared ones.
    pub(super) fn complete(&self) -> Result<(), HookError> {
        TABLES.iter().try_for_each(|name| self.replace(name))
    }

    fn replace(&self, name: &str) -> Result<(), HookError> {
        let path = self.folder.join(name);
        fs::rename(self.folder.join(format!("{name}{NEW}")), &path)
            .map_err(|error| HookError::path(&path, format!("cannot be replaced: {error}")))
    }

    /// Removes a pod from the earlier holder's table, so that its guards ignore the pod.
    pub(super) fn take_over(&mut self, cookie: u64) {
        if let Some(before) = &mut self.before {
            // Fails when the earlier holder did not know the pod.
            let _ = before.remove(&cookie);
        }
    }

    /// Removes the guard of one pod, if it has one.
    pub(super) fn remove_pod(&self, cookie: u64) -> Result<(), HookError> {
        let packets = format!("{PACKETS}{cookie}-");
        // An operator may have removed everything.
        let names = match self.folder.exists() {
            true => names(&self.folder)?,
            false => Vec::new(),
        };
        for name in names.iter().filter(|name| name.starts_with(&packets)) {
            remove(&self.folder.join(name))?;
        }
        remove(&self.pod(cookie))
    }
}

fn unpinned(path: &Path, error: &dyn Error) -> HookError {
    HookError::path(path, format!("cannot be pinned: {}", chain(error)))
}

/// Removes all our pins, and the folder. Returns their number.
pub(super) fn remove_all(folder: &Path) -> Result<usize, HookError> {
    let names = match folder::check(folder)? {
        true => names(folder)?,
        false => return Ok(0),
    };
    let stranger = names.iter().find(|name| !is_ours(name));
    if let Some(name) = stranger {
        return Err(HookError::path(
            &folder.join(name),
            "does not belong to Heddle: nothing was removed",
        ));
    }
    // First tell the guards, which stay attached for a while, to refuse nothing. Pods of a holder that still runs
    // remain steered.
    let pods = MapData::from_pin(folder.join("pods"))
        .map(Map::HashMap)
        .ok();
    if let Some(mut pods) = pods.and_then(|map| HashMap::<_, u64, PodBytes>::try_from(map).ok()) {
        let entries: Vec<_> = pods.iter().filter_map(Result::ok).collect();
        for (cookie, pod) in entries {
            // Does nothing when the pod was released meanwhile.
            let _ = pods.insert(cookie, unguarded(pod), BPF_EXIST);
        }
    }
    for name in &names {
        remove(&folder.join(name))?;
    }
    fs::remove_dir(folder)
        .map_err(|error| HookError::path(folder, format!("cannot remove it: {error}")))?;
    Ok(names.len())
}

fn is_ours(name: &str) -> bool {
    let name = name.strip_suffix(NEW).unwrap_or(name);
    name.strip_prefix(POD)
        .is_some_and(|cookie| cookie.parse::<u64>().is_ok())
        || name.starts_with(PACKETS)
        || TABLES.contains(&name)
        || GUARDS
            .iter()
            .chain(&PACKET_GUARDS)
            .any(|(guard, ..)| *guard == name)
}

fn names(folder: &Path) -> Result<Vec<String>, HookError> {
    let unreadable = |error| HookError::path(folder, format!("cannot read it: {error}"));
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        // A name that is not UTF-8 is not one of ours.
        names.push(name.to_string_lossy().into_owned());
    }
    Ok(names)
}

fn remove(path: &Path) -> Result<(), HookError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(HookError::path(path, format!("cannot remove it: {error}")))
        }
        _ => Ok(()),
    }
}

/// Inode numbers of the network namespaces to which our open links are attached, by link ID, from the kernel's
/// description of descriptors (proc(5), fdinfo). Namespaces that are gone have the number 0 there and are left out.
fn attached_to_namespaces() -> BTreeMap<u32, u64> {
    let field = |info: &str, name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| value.trim().parse::<u64>().ok())
    };
    let descriptors = fs::read_dir("/proc/self/fdinfo").into_iter().flatten();
    let infos = descriptors.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    infos
        .filter_map(|info| {
            let namespace = field(&info, "netns_ino:").filter(|number| *number != 0)?;
            Some((field(&info, "link_id:")?.try_into().ok()?, namespace))
        })
        .collect()
}
