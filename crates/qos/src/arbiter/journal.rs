//! The journal: what the arbiter holds, on the disk, so that the next start can put it back.
//!
//! A file of lines, each a record in JSON. Every line is written before what it says is done. The file belongs to one
//! boot of the machine, since control groups do not survive that. What is done to the network has a file of its own
//! beside it, under the same lock.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
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
    /// Which lines could not be read, and where they are kept.
    damage: Option<String>,
    _of: PhantomData<(K, H)>,
}

/// What a journal says.
struct Contents<K, H> {
    held: BTreeMap<K, H>,
    records: usize,
    /// Numbers of the lines that cannot be read. What they say is not known, so that it cannot be put back.
    damaged: Vec<usize>,
    /// Whether further records may be appended: the file is of this boot, and ends with a whole line.
    is_whole: bool,
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
        let Contents {
            held,
            records,
            damaged,
            is_whole,
        } = read(folder, &boot)?;
        let damage = match damaged.is_empty() {
            true => None,
            false => Some(keep_damaged::<K>(folder, &damaged)?),
        };
        let mut journal = Log {
            folder: folder.to_owned(),
            file: OpenOptions::new()
                .create(true)
                .append(true)
                .open(folder.join(K::FILE))?,
            records,
            boot,
            lock,
            damage,
            _of: PhantomData,
        };
        // A line that was cut off must not be continued. A whole file is left alone: the disk may be full.
        if !is_whole || journal.damage.is_some() {
            journal.replace(&held)?;
        }
        Ok((journal, held))
    }

    /// Which lines could not be read when it was opened, and where they are kept; `None` if there were none. What they
    /// say stays changed.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// What a process holds, or held when it was killed, without taking the lock.
    ///
    /// # Errors
    /// As for [`Log::open`], except for the lock.
    pub fn look(folder: &Path) -> io::Result<BTreeMap<K, H>> {
        Ok(read(folder, &boot()?)?.held)
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

/// Keeps a copy of a journal of which lines cannot be read. Returns what to tell the operator.
fn keep_damaged<K: Entry>(folder: &Path, lines: &[usize]) -> io::Result<String> {
    let path = folder.join(K::FILE);
    let kept = folder.join(format!("{}.damaged", K::FILE));
    fs::copy(&path, &kept)?;
    let numbers: Vec<String> = lines.iter().map(usize::to_string).collect();
    let said = format!(
        "{} cannot be read at line {}: what these lines say stays changed; the file is kept as {}",
        path.display(),
        numbers.join(", "),
        kept.display()
    );
    tracing::error!("{said}");
    Ok(said)
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
                "{} is not a folder of this user that only this user can write to: run this as its owner, or chmod 0700",
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
fn read<K: Entry, H: DeserializeOwned>(folder: &Path, boot: &str) -> io::Result<Contents<K, H>> {
    let mut contents = Contents {
        held: BTreeMap::new(),
        records: 0,
        damaged: Vec::new(),
        is_whole: false,
    };
    let file = match File::open(folder.join(K::FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(contents),
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
        // Empty: the process was killed before it wrote the first line, which is written with the file, never in parts.
        return match lines.get_ref().metadata()?.len() {
            0 => Ok(contents),
            _ => Err(wrong("the first line is not whole".to_owned())),
        };
    };
    let header: Header = serde_json::from_slice(&first)
        .map_err(|_| wrong("the first line is not that of a journal".to_owned()))?;
    if header.version != VERSION {
        let (theirs, ours) = (header.version, VERSION);
        return Err(wrong(format!(
            "it has version {theirs}, this program reads {ours}: run heddle qos restore of the version that wrote it"
        )));
    }
    if header.boot != boot {
        return Ok(contents);
    }
    while let Some(line) = line(&mut lines)? {
        contents.records += 1;
        match serde_json::from_slice(&line) {
            Ok(Record::Set(key, of)) => drop(contents.held.insert(key, of)),
            Ok(Record::Drop(key)) => drop(contents.held.remove(&key)),
            // The first line is the header.
            Err(_) => contents.damaged.push(contents.records + 1),
        }
    }
    if lines.stream_position()? < lines.get_ref().metadata()?.len() {
        // It is longer than any of ours, and nothing behind it is read.
        contents.damaged.push(contents.records + 2);
    }
    // The last line may have been cut off: what it says was not done.
    contents.is_whole = ends_a_line(lines.get_mut())?;
    Ok(contents)
}

/// Whether the last byte of a file ends a line.
fn ends_a_line(file: &mut File) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// A line without its end; none at the end of the file, or when it is cut off there.
fn line(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let limit = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
    Read::take(&mut *from, limit).read_until(b'\n', &mut line)?;
    Ok((line.pop() == Some(b'\n')).then_some(line))
}
