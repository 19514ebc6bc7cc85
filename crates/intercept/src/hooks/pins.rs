//! What outlives this process: the guard, pinned in a folder of a BPF file system.
//!
//! | name | is |
//! |---|---|
//! | `guard_connect4`, `guard_connect6`, `guard_sendmsg4`, `guard_sendmsg6` | links to the pods' cgroup |
//! | `guard_egress`, `guard_ingress` | the same for packets, where there are no links to interfaces |
//! | `pod-COOKIE` | a link to the network namespace of that cookie |
//! | `packets-COOKIE-…` | links to the interfaces there, where there are such links |
//! | `pods`, `addresses` | the tables that the guards read |
//!
//! A new holder puts each in the place of the old one with one rename, so that there is no moment without.

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

/// Changes an entry, and adds none (bpf(2)).
const BPF_EXIST: u64 = 2;

/// Names of the tables.
pub(super) const TABLES: [&str; 2] = ["pods", "addresses"];
/// Before the cookie of a namespace.
const POD: &str = "pod-";
/// The same, of links to its interfaces.
const PACKETS: &str = "packets-";
/// After what has not yet replaced what was there.
const NEW: &str = "-new";
/// Of a BPF file system (statfs(2)).
pub(crate) const BPF_FS_MAGIC: FsWord = 0xcafe_4a11;

/// The folder.
#[derive(Debug)]
pub(super) struct Pins {
    folder: PathBuf,
    /// The pods of the holder before, which its guards look at for as long as they are attached: the kernel takes its
    /// time with what is not pinned any more.
    before: Option<HashMap<MapData, u64, PodBytes>>,
}

/// The guard of one pod.
#[derive(Debug)]
pub(super) struct Guard {
    pub(super) cookie: u64,
    /// The number of its network namespace; `None` when that is gone.
    pub(super) namespace: Option<u64>,
}

/// What another process left.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    /// Pods by the cookie of their namespaces, and what they are to be from now on.
    pub(super) pods: Vec<(u64, PodBytes)>,
    /// Their addresses.
    pub(super) addresses: Vec<(Address, u64)>,
}

impl Pins {
    /// Opens the folder, and makes it when it is not there.
    ///
    /// # Errors
    /// [`HookError::Lacking`] when there is no BPF file system; anything else when the folder is not ours alone.
    pub(super) fn open(folder: &Path) -> Result<Self, HookError> {
        folder::make(folder)?;
        Ok(Pins {
            folder: folder.to_owned(),
            before: None,
        })
    }

    /// What was guarded here when its holder ended. What is left of pods that are gone is removed.
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

    /// The guards of namespaces that are still there; the others go.
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

    /// The guards of those namespaces whose cookies are `wanted`.
    pub(super) fn guards(&self, wanted: impl Fn(u64) -> bool) -> Result<Vec<Guard>, HookError> {
        let names = names(&self.folder)?.into_iter();
        let cookies = names.filter_map(|name| name.strip_prefix(POD)?.parse().ok());
        // All are open before it is asked once where they are attached.
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

    /// A table that another process pinned. One of another version is of no use: what it says of pods is
    /// lost, but their guards stay where they are.
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

    /// Keeps a guard of all pods. The link that is returned keeps it as well, as long as it is held.
    pub(super) fn keep(&self, name: &str, link: FdLink) -> Result<FdLink, HookError> {
        let new = self.folder.join(format!("{name}{NEW}"));
        let link = link.pin(&new).map_err(|error| unpinned(&new, &error))?;
        self.replace(name)?;
        Ok(link.into())
    }

    /// Keeps the guard of one pod.
    pub(super) fn keep_pod(&self, cookie: u64, link: FdLink) -> Result<(), HookError> {
        self.keep(&format!("{POD}{cookie}"), link).map(drop)
    }

    /// Keeps a guard of one pod's packets, as [`Pins::keep`].
    pub(super) fn keep_packets(
        &self,
        cookie: u64,
        name: &str,
        link: FdLink,
    ) -> Result<FdLink, HookError> {
        self.keep(&format!("{PACKETS}{cookie}-{name}"), link)
    }

    /// Pins the tables beside those that are there.
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

    /// Puts the prepared tables in the place of those that were there.
    pub(super) fn complete(&self) -> Result<(), HookError> {
        TABLES.iter().try_for_each(|name| self.replace(name))
    }

    fn replace(&self, name: &str) -> Result<(), HookError> {
        let path = self.folder.join(name);
        fs::rename(self.folder.join(format!("{name}{NEW}")), &path)
            .map_err(|error| HookError::path(&path, format!("cannot be replaced: {error}")))
    }

    /// The holder before has no say in a pod any more.
    pub(super) fn take_over(&mut self, cookie: u64) {
        if let Some(before) = &mut self.before {
            // It may not have known the pod.
            let _ = before.remove(&cookie);
        }
    }

    /// Ends the guard of one pod, if it has one.
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

/// Removes everything of ours, and the folder.
pub(super) fn remove_all(folder: &Path) -> Result<usize, HookError> {
    let names = match folder::check(folder)? {
        true => names(folder)?,
        false => return Ok(0),
    };
    let stranger = names.iter().find(|name| !is_ours(name));
    if let Some(name) = stranger {
        return Err(HookError::path(
            &folder.join(name),
            "is none of Heddle's: nothing was removed",
        ));
    }
    // Said to the guards first, which are not detached at once. Where a holder lives, it goes on.
    let pods = MapData::from_pin(folder.join("pods"))
        .map(Map::HashMap)
        .ok();
    if let Some(mut pods) = pods.and_then(|map| HashMap::<_, u64, PodBytes>::try_from(map).ok()) {
        let entries: Vec<_> = pods.iter().filter_map(Result::ok).collect();
        for (cookie, pod) in entries {
            // Not if it was released meanwhile.
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
        // A name that is no text is not one of ours.
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

/// The numbers of the network namespaces to which we have links open, by the numbers of these links. In what the
/// kernel says of a descriptor (proc(5), fdinfo), a namespace that is gone has no number: it is left out.
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
