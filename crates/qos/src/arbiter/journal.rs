//! The journal: what the arbiter holds, on the disk, so that the next start can put it back.
//!
//! A file of lines, each a record in JSON. Every line is written before what it says is done. The file belongs to one
//! boot of the machine, since control groups do not survive that. What is done to the network has a file of its own
//! beside it, under the same lock.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Held, Key};

#[cfg(test)]
mod tests;

/// A line of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Record<K = Key, H = Held> {
    /// This knob is, or is about to be, as we want it.
    Set(K, H),
    /// This knob is no longer ours.
    Drop(K),
}

/// Where records are kept.
pub trait Store<K = Key, H = Held> {
    /// Adds a record.
    ///
    /// # Errors
    /// When it could not be written; nothing may be done then that it would have said.
    fn append(&mut self, record: &Record<K, H>) -> io::Result<()>;

    /// Replaces all records by one for each knob that is held.
    ///
    /// # Errors
    /// When it could not be written; the old records are still there.
    fn replace(&mut self, held: &BTreeMap<K, H>) -> io::Result<()>;

    /// Whether there are many more records than the `held` knobs need.
    fn is_long(&self, held: usize) -> bool;
}

/// The first line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    /// Version of the format.
    version: u32,
    /// The boot of the machine that the records belong to.
    boot: String,
}

const VERSION: u32 = 1;
const LOCK: &str = "lock";
/// Longest line that is read, in bytes. Ours have a few hundred.
const MAX_LINE: usize = 16 * 1024;
/// Records beyond those that are needed, after which the file is written anew.
const SLACK: usize = 1_024;

/// Keeps nothing: for a rehearsal, which changes nothing.
#[derive(Debug, Default)]
pub struct Nowhere;

impl<K, H> Store<K, H> for Nowhere {
    fn append(&mut self, _: &Record<K, H>) -> io::Result<()> {
        Ok(())
    }

    fn replace(&mut self, _: &BTreeMap<K, H>) -> io::Result<()> {
        Ok(())
    }

    fn is_long(&self, _: usize) -> bool {
        false
    }
}

/// The journal of control groups.
pub type Journal = Log<Key, Held>;

/// A kind of thing of which there is a journal.
pub trait Entry: Serialize + DeserializeOwned + Ord + Clone {
    /// Name of the file, in the folder of all journals.
    const FILE: &'static str;
}

impl Entry for Key {
    const FILE: &'static str = "journal";
}

/// A journal of this machine, in a folder of its own, locked by this process.
#[derive(Debug)]
pub struct Log<K, H> {
    folder: PathBuf,
    file: File,
    records: usize,
    boot: String,
    /// Held until the process ends.
    lock: File,
    _of: PhantomData<(K, H)>,
}

impl<K: Entry, H: Serialize + DeserializeOwned + Clone> Log<K, H> {
    /// Opens the journal in `folder`, which is made if it is missing (mode 0700), and returns what an earlier process
    /// held.
    ///
    /// # Errors
    /// `WouldBlock` when another process has it; `InvalidData` when it is of another version; or the disk's.
    pub fn open(folder: &Path) -> io::Result<(Self, BTreeMap<K, H>)> {
        make(folder)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(folder.join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Log::locked(folder, lock)
    }

    /// Opens the journal of another kind of things, under the lock of this one.
    ///
    /// # Errors
    /// As for [`Log::open`].
    pub fn beside<L: Entry, I: Serialize + DeserializeOwned + Clone>(
        &self,
    ) -> io::Result<(Log<L, I>, BTreeMap<L, I>)> {
        // A lock of flock(2) is held until the last copy of its descriptor is closed.
        Log::locked(&self.folder, self.lock.try_clone()?)
    }

    fn locked(folder: &Path, lock: File) -> io::Result<(Self, BTreeMap<K, H>)> {
        let boot = boot()?;
        let held = read(folder, &boot)?;
        let mut journal = Log {
            folder: folder.to_owned(),
            file: OpenOptions::new()
                .create(true)
                .append(true)
                .open(folder.join(K::FILE))?,
            records: 0,
            boot,
            lock,
            _of: PhantomData,
        };
        // A line that was cut off must not be continued.
        journal.replace(&held)?;
        Ok((journal, held))
    }

    /// What a process holds, or held when it was killed, without taking the lock.
    ///
    /// # Errors
    /// As for [`Log::open`], except for the lock.
    pub fn look(folder: &Path) -> io::Result<BTreeMap<K, H>> {
        read(folder, &boot()?)
    }

    /// Whether a process has the journal.
    ///
    /// # Errors
    /// When the lock cannot be opened.
    pub fn is_in_use(folder: &Path) -> io::Result<bool> {
        let lock = match File::open(folder.join(LOCK)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            lock => lock?,
        };
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
            done => Ok(done.map(|()| false)?),
        }
    }
}

impl<K: Entry, H: Serialize + Clone> Store<K, H> for Log<K, H> {
    fn append(&mut self, record: &Record<K, H>) -> io::Result<()> {
        let mut line = serde_json::to_string(record)?;
        line.push('\n');
        // In one write, so that a kill does not cut it.
        self.file.write_all(line.as_bytes())?;
        self.records += 1;
        Ok(())
    }

    fn replace(&mut self, held: &BTreeMap<K, H>) -> io::Result<()> {
        let mut text = serde_json::to_string(&Header {
            version: VERSION,
            boot: self.boot.clone(),
        })?;
        text.push('\n');
        for (key, held) in held {
            text += &serde_json::to_string(&Record::Set(key.clone(), held.clone()))?;
            text.push('\n');
        }
        let next = self.folder.join(format!("{}.next", K::FILE));
        let mut file = File::create(&next)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&next, self.folder.join(K::FILE))?;
        self.file = OpenOptions::new()
            .append(true)
            .open(self.folder.join(K::FILE))?;
        self.records = held.len();
        Ok(())
    }

    fn is_long(&self, held: usize) -> bool {
        self.records > 4 * held + SLACK
    }
}

/// Makes the folder, and checks that no other user can write to it.
fn make(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};

    // Folders above it, too: root's sockets are in the one that holds it by default.
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let about = fs::symlink_metadata(folder)?;
    let is_ours = about.is_dir()
        && about.uid() == rustix::process::geteuid().as_raw()
        && about.mode() & 0o022 == 0;
    match is_ours {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{} is not a folder that only this user can write to: remove it",
                folder.display()
            ),
        )),
    }
}

/// The random id of this boot of the machine (`random(4)`).
fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

/// What the records say. Records of an earlier boot say nothing.
fn read<K: Entry, H: DeserializeOwned>(folder: &Path, boot: &str) -> io::Result<BTreeMap<K, H>> {
    let file = match File::open(folder.join(K::FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        file => file?,
    };
    let mut lines = BufReader::new(file);
    let wrong = |what: String| {
        let path = folder.join(K::FILE);
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{}: {what}", path.display()),
        )
    };
    let Some(first) = line(&mut lines)? else {
        return Ok(BTreeMap::new());
    };
    let header: Header = serde_json::from_slice(&first)
        .map_err(|_| wrong("the first line is not that of a journal".to_owned()))?;
    if header.version != VERSION {
        let (theirs, ours) = (header.version, VERSION);
        return Err(wrong(format!(
            "it has version {theirs}, this program reads {ours}: run heddle qos restore of the version that wrote it"
        )));
    }
    let mut held = BTreeMap::new();
    if header.boot != boot {
        return Ok(held);
    }
    while let Some(line) = line(&mut lines)? {
        // Only the last line can have been cut off, and what it says was not done.
        match serde_json::from_slice(&line) {
            Ok(Record::Set(key, of)) => drop(held.insert(key, of)),
            Ok(Record::Drop(key)) => drop(held.remove(&key)),
            Err(_) => break,
        }
    }
    Ok(held)
}

/// A line without its end; none at the end of the file, or when it is cut off there.
fn line(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let limit = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
    io::Read::take(&mut *from, limit).read_until(b'\n', &mut line)?;
    Ok((line.pop() == Some(b'\n')).then_some(line))
}
