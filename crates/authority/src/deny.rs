//! The deny-list: identities and certificates that are refused before they expire.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use heddle_model::SpiffeId;
use heddle_transport::secrets::{Folder, FolderError};
use serde::{Deserialize, Serialize};

use super::UnixTime;
use super::certificate::Serial;
use super::error::{AuthorityError, Lost};
use super::roots::{self, State};

/// Largest number of entries.
pub const MAX_DENIED: usize = 10_000;
/// Longest life of an entry: longer than any leaf's. The operator renews an entry by denying again.
pub const MAX_DENY_LIFE: Duration = Duration::from_secs(10 * 366 * 86_400);
/// Longest reason, in bytes.
pub const MAX_REASON_BYTES: usize = 256;

pub(super) const FILE: &str = "deny.json";
const VERSION: u32 = 1;
/// Room for the longest entries: a SPIFFE id has 2048 bytes at most, and ours far fewer.
const MAX_FILE_BYTES: usize = 32 * 1024 * 1024;

/// The subject of a deny-list entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Denied {
    /// One certificate, by its serial number.
    Serial(Serial),
    /// Every certificate of a workload's or a node's identity, present and future.
    Identity(SpiffeId),
}

/// The reason and the end of a denial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DenyEntry {
    /// The operator's note, shown to people who look at the entry.
    pub reason: String,
    /// The entry stops to apply at this time, in seconds since 1970.
    pub expires: u64,
}

/// A whole deny-list, of one generation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DenyList {
    /// Counts the changes, from 0 for the first, empty list.
    pub generation: u64,
    entries: BTreeMap<Denied, DenyEntry>,
}

/// Why the deny-list was not changed.
#[derive(Debug)]
pub enum DenyError {
    /// There are [`MAX_DENIED`] entries.
    Full,
    /// The reason is longer than [`MAX_REASON_BYTES`].
    Reason,
    /// The entry would have expired already, or last for longer than [`MAX_DENY_LIFE`].
    Life,
    /// The entry names the control plane's own identity, which must stay valid.
    Control,
    /// The change could not be made durable.
    Folder(FolderError),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    generation: u64,
    entries: Vec<FileEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileEntry {
    what: Denied,
    reason: String,
    expires: u64,
}

impl DenyList {
    /// The entry that refuses a peer, by its identity or by the serial number of its certificate.
    pub fn denies(
        &self,
        id: &SpiffeId,
        serial: Option<Serial>,
        now: UnixTime,
    ) -> Option<&DenyEntry> {
        if self.entries.is_empty() {
            return None;
        }
        let by_id = self.entries.get(&Denied::Identity(id.clone()));
        let by_serial = serial.and_then(|serial| self.entries.get(&Denied::Serial(serial)));
        let alive = |entry: &&DenyEntry| now.as_secs() < entry.expires;
        by_id.filter(alive).or_else(|| by_serial.filter(alive))
    }

    /// The identities that are denied at this time.
    pub fn identities(&self, now: UnixTime) -> impl Iterator<Item = &SpiffeId> {
        let entries = self.entries.iter();
        let alive = entries.filter(move |(_, entry)| now.as_secs() < entry.expires);
        alive.filter_map(|(what, _)| match what {
            Denied::Identity(id) => Some(id),
            Denied::Serial(_) => None,
        })
    }

    /// Every entry, including those that expired since the last change.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&Denied, &DenyEntry)> {
        self.entries.iter()
    }

    /// Reads the list, if there is one.
    pub(super) fn read(folder: &Folder) -> Result<Option<Self>, AuthorityError> {
        let Some(bytes) = folder.read(FILE, MAX_FILE_BYTES)? else {
            return Ok(None);
        };
        let corrupt = |why: String| AuthorityError::corrupt(folder, FILE, why);
        let file: File =
            serde_json::from_slice(&bytes).map_err(|error| corrupt(error.to_string()))?;
        if file.version != VERSION {
            let why = "it was written by another version of heddle";
            return Err(corrupt(why.to_owned()));
        }
        if file.entries.len() > MAX_DENIED {
            return Err(corrupt(format!("it has more than {MAX_DENIED} entries")));
        }
        let entry = |entry: FileEntry| {
            let FileEntry {
                what,
                reason,
                expires,
            } = entry;
            (what, DenyEntry { reason, expires })
        };
        Ok(Some(Self {
            generation: file.generation,
            entries: file.entries.into_iter().map(entry).collect(),
        }))
    }

    /// The list that was read, or, in a folder that never had one, a new empty list, which is written. From then on the
    /// state records that there is a list, so that a lost list is never taken for an empty one.
    pub(super) fn found_or_first(
        found: Option<Self>,
        folder: &Folder,
        state: &mut State,
    ) -> Result<Self, AuthorityError> {
        if state.has_deny_list {
            let lost = || AuthorityError::Lost(folder.path_of(FILE), Lost::DenyList);
            return found.ok_or_else(lost);
        }
        let list = match found {
            Some(list) => list,
            None => {
                let first = Self::default();
                first.save(folder)?;
                first
            }
        };
        let next = State {
            has_deny_list: true,
            ..state.clone()
        };
        roots::save(folder, &next)?;
        *state = next;
        Ok(list)
    }

    /// The list with one more entry, which replaces an entry for the same subject.
    pub(super) fn with(
        &self,
        what: Denied,
        entry: DenyEntry,
        now: UnixTime,
    ) -> Result<Self, DenyError> {
        if entry.reason.len() > MAX_REASON_BYTES {
            return Err(DenyError::Reason);
        }
        let latest = now.as_secs().saturating_add(MAX_DENY_LIFE.as_secs());
        if entry.expires <= now.as_secs() || entry.expires > latest {
            return Err(DenyError::Life);
        }
        if let Denied::Identity(id) = &what
            && id.subject == heddle_model::Subject::Control
        {
            return Err(DenyError::Control);
        }
        let mut next = self.next(now);
        if next.entries.len() >= MAX_DENIED && !next.entries.contains_key(&what) {
            return Err(DenyError::Full);
        }
        next.entries.insert(what, entry);
        Ok(next)
    }

    /// The list without an entry; `None` when it has no such entry.
    pub(super) fn without(&self, what: &Denied, now: UnixTime) -> Option<Self> {
        self.entries.contains_key(what).then(|| {
            let mut next = self.next(now);
            next.entries.remove(what);
            next
        })
    }

    #[cfg(test)]
    pub(super) fn insert_for_test(&mut self, what: Denied, entry: DenyEntry) {
        self.entries.insert(what, entry);
    }

    /// A copy for the next change, without expired entries.
    fn next(&self, now: UnixTime) -> Self {
        let alive = |(what, entry): (&Denied, &DenyEntry)| {
            (now.as_secs() < entry.expires).then(|| (what.clone(), entry.clone()))
        };
        Self {
            generation: self.generation + 1,
            entries: self.entries.iter().filter_map(alive).collect(),
        }
    }

    pub(super) fn save(&self, folder: &Folder) -> Result<(), FolderError> {
        let entry = |(what, entry): (&Denied, &DenyEntry)| FileEntry {
            what: what.clone(),
            reason: entry.reason.clone(),
            expires: entry.expires,
        };
        let file = File {
            version: VERSION,
            generation: self.generation,
            entries: self.entries.iter().map(entry).collect(),
        };
        // Names, numbers and texts always serialise.
        folder.write(FILE, &serde_json::to_vec_pretty(&file).unwrap_or_default())
    }
}

impl From<FolderError> for DenyError {
    fn from(error: FolderError) -> Self {
        Self::Folder(error)
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serial(serial) => write!(f, "certificate {serial}"),
            Self::Identity(id) => id.fmt(f),
        }
    }
}

impl fmt::Display for DenyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => write!(
                f,
                "the deny-list has {MAX_DENIED} entries already (deny identities instead of \
                 certificates, or remove what is not needed)"
            ),
            Self::Reason => write!(
                f,
                "the reason is longer than {MAX_REASON_BYTES} bytes (write it shorter)"
            ),
            Self::Life => f.write_str(
                "the entry would have expired already or last for more than ten years (choose when it \
                 expires; a leaf's expiry is enough for a certificate)",
            ),
            Self::Control => f.write_str(
                "the control plane's identity cannot be denied (deny its certificate instead)",
            ),
            Self::Folder(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DenyError {}
