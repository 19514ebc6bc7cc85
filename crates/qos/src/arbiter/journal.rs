//! The journal: what the arbiter holds, on the disk, so that the next start can put it back.
//!
//! A file of lines, each a record in JSON. Every line is written before what it says is done. The file belongs to one
//! boot of the machine, since control groups do not survive that. What is done to the network has a file of its own
//! beside it, under the same lock.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Held, Key};
pub use crate::state::StateFolder;
use crate::state::{self, wrong};

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

/// Tells the journal that `key` is not among what is `held` any more. A full disk leaves a record that is out of date: the
/// next start finds that the value is not ours, or is as it was found.
pub(crate) fn dropped<K: Clone, H>(store: &mut impl Store<K, H>, key: &K, held: &BTreeMap<K, H>) {
    let noted = match held.is_empty() {
        // That takes no space.
        true => store.replace(held),
        false => store.append(&Record::Drop(key.clone())),
    };
    if let Err(error) = noted {
        tracing::warn!("the journal still has what was put back: {error}");
    }
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

/// A journal of this machine, in a folder that is locked by this process. A file of no bytes says that nothing is held;
/// its first line comes with the first record.
#[derive(Debug)]
pub struct Log<K, H> {
    path: PathBuf,
    /// Why it cannot be written to, if that is so.
    file: Result<File, String>,
    /// Length of the file, in bytes.
    len: u64,
    records: usize,
    boot: String,
    /// Held until the process ends.
    _lock: File,
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
    /// Bytes of the lines that are of this boot and whole.
    whole: u64,
}

impl<K: Entry, H: Serialize + DeserializeOwned + Clone> Log<K, H> {
    /// Opens the journal of a kind of things, and returns what an earlier process held. Writes nothing, unless lines are
    /// damaged: the disk may be full.
    ///
    /// # Errors
    /// `InvalidData` when it is of another version, or its first line is damaged; or the disk's.
    pub fn open(folder: &StateFolder) -> io::Result<(Self, BTreeMap<K, H>)> {
        let boot = boot()?;
        let path = folder.path().join(K::FILE);
        // A lock of flock(2) is held until the last copy of its descriptor is closed.
        let lock = folder.lock().try_clone()?;
        // Before it is read: what another user has written is not done.
        let file = state::for_appending(&path)?.map_err(|error| error.to_string());
        let contents = read(&path, &boot)?;
        let mut journal = Log {
            path,
            file,
            len: contents.whole,
            records: contents.records,
            boot,
            _lock: lock,
            damage: None,
            _of: PhantomData,
        };
        journal.mend(&contents)?;
        Ok((journal, contents.held))
    }

    /// Writes the file anew without the lines that cannot be read, once there is a copy of it.
    fn mend(&mut self, contents: &Contents<K, H>) -> io::Result<()> {
        let len = match &self.file {
            Ok(file) => file.metadata()?.len(),
            Err(_) => contents.whole,
        };
        if !contents.damaged.is_empty() {
            let (said, is_kept) = keep_damaged(&self.path, &contents.damaged);
            tracing::error!("{said}");
            self.damage = Some(said);
            match is_kept {
                true => self.replace(&contents.held)?,
                false => self.len = len,
            }
        } else if len > contents.whole {
            // A line that was cut off must not be continued.
            self.set_len(contents.whole)?;
        }
        Ok(())
    }

    fn file(&mut self) -> io::Result<&mut File> {
        let why = |why: &mut String| io::Error::new(io::ErrorKind::ReadOnlyFilesystem, &**why);
        self.file.as_mut().map_err(why)
    }

    /// An error of the disk, with the file that it is about.
    fn about(&self, error: &io::Error) -> io::Error {
        let what = format!("the journal {}: {error}", self.path.display());
        io::Error::new(error.kind(), what)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        let done = self.file()?.set_len(len);
        done.map_err(|error| self.about(&error))
    }

    /// The first line.
    fn header(&self) -> io::Result<String> {
        let header = Header {
            version: VERSION,
            boot: self.boot.clone(),
        };
        Ok(serde_json::to_string(&header)? + "\n")
    }

    /// Which lines could not be read when it was opened, and where they are kept; `None` if there were none. What they
    /// say stays changed.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// What a process holds, or held when it was killed, without taking the lock.
    ///
    /// # Errors
    /// As for [`Log::open`].
    pub fn look(folder: &Path) -> io::Result<Left<K, H>> {
        let contents = read(&folder.join(K::FILE), &boot()?)?;
        Ok(Left {
            held: contents.held,
            damaged: contents.damaged,
        })
    }
}

/// What a journal says, as it is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left<K, H> {
    /// What is held.
    pub held: BTreeMap<K, H>,
    /// Numbers of the lines that cannot be read.
    pub damaged: Vec<usize>,
}

impl<K: Entry, H: Serialize + DeserializeOwned + Clone> Store<K, H> for Log<K, H> {
    fn append(&mut self, record: &Record<K, H>) -> io::Result<()> {
        let mut text = match self.len {
            0 => self.header()?,
            _ => String::new(),
        };
        text += &serde_json::to_string(record)?;
        text.push('\n');
        // In one write, so that a kill does not cut it.
        if let Err(error) = self.file()?.write_all(text.as_bytes()) {
            // A full disk may have taken a part of it.
            self.set_len(self.len)?;
            return Err(self.about(&error));
        }
        self.len += text.len() as u64;
        self.records += 1;
        Ok(())
    }

    fn replace(&mut self, held: &BTreeMap<K, H>) -> io::Result<()> {
        if held.is_empty() {
            // A full disk can do that, too.
            self.set_len(0)?;
            (self.len, self.records) = (0, 0);
            return Ok(());
        }
        let mut text = self.header()?;
        for (key, held) in held {
            text += &serde_json::to_string(&Record::Set(key.clone(), held.clone()))?;
            text.push('\n');
        }
        self.file()?;
        let replaced = state::replace(&self.path, text.as_bytes());
        replaced
            .and_then(|()| state::for_appending(&self.path))
            .map(|file| {
                self.file = file.map_err(|error| error.to_string());
                (self.len, self.records) = (text.len() as u64, held.len());
            })
    }

    fn is_long(&self, held: usize) -> bool {
        self.records > 4 * held + SLACK
    }
}

/// The random id of this boot of the machine (`random(4)`).
fn boot() -> io::Result<String> {
    let at = "/proc/sys/kernel/random/boot_id";
    let id = std::fs::read_to_string(at).map_err(|error| wrong(Path::new(at), error))?;
    Ok(id.trim().to_owned())
}

/// Keeps a copy of a journal of which lines cannot be read. Returns what to tell the operator, and whether there is a copy.
fn keep_damaged(path: &Path, lines: &[usize]) -> (String, bool) {
    let mut kept = path.as_os_str().to_owned();
    kept.push(state::DAMAGED);
    let kept = PathBuf::from(kept);
    let (end, is_kept) = match state::copy(path, &kept) {
        Ok(()) => (format!("the file is kept as {}", kept.display()), true),
        Err(error) => (format!("no copy of it could be made: {error}"), false),
    };
    let numbers: Vec<String> = lines.iter().map(usize::to_string).collect();
    let said = format!(
        "{} cannot be read at line {}: what these lines say stays changed; {end}",
        path.display(),
        numbers.join(", "),
    );
    (said, is_kept)
}

/// What the records say. Records of an earlier boot say nothing.
fn read<K: Entry, H: DeserializeOwned>(path: &Path, boot: &str) -> io::Result<Contents<K, H>> {
    let mut contents = Contents {
        held: BTreeMap::new(),
        records: 0,
        damaged: Vec::new(),
        whole: 0,
    };
    let Some(file) = state::for_reading(path)? else {
        return Ok(contents);
    };
    // What is appended from now on is not looked at.
    let len = file.metadata()?.len();
    let mut lines = BufReader::new(file.take(len));
    let not_ours = |what: &str| {
        wrong(
            path,
            format!(
                "{what}: move the file away to go on; what it said stays changed: see the agent's log"
            ),
        )
    };
    let Some(first) = line(&mut lines)? else {
        // The first line is written with the first record, in one write.
        return match len {
            0 => Ok(contents),
            _ => Err(not_ours("the first line is not whole")),
        };
    };
    let header: Header = serde_json::from_slice(&first)
        .map_err(|_| not_ours("the first line is not that of a journal"))?;
    if header.version != VERSION {
        let (theirs, ours) = (header.version, VERSION);
        return Err(wrong(
            path,
            format!(
                "it has version {theirs}, this program reads {ours}: run heddle qos restore of the version that wrote it"
            ),
        ));
    }
    if header.boot != boot {
        return Ok(contents);
    }
    let bytes = |line: &[u8]| line.len() as u64 + 1;
    contents.whole = bytes(&first);
    while let Some(line) = line(&mut lines)? {
        contents.whole += bytes(&line);
        contents.records += 1;
        match serde_json::from_slice(&line) {
            Ok(Record::Set(key, of)) => drop(contents.held.insert(key, of)),
            Ok(Record::Drop(key)) => drop(contents.held.remove(&key)),
            // The first line is the header.
            Err(_) => contents.damaged.push(contents.records + 1),
        }
    }
    if !lines.fill_buf()?.is_empty() {
        // It is longer than any of ours, and nothing behind it is read.
        contents.damaged.push(contents.records + 2);
    }
    Ok(contents)
}

/// A line without its end; none at the end of the file, or when it is cut off there: what such a line says was not done.
fn line(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let limit = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
    Read::take(&mut *from, limit).read_until(b'\n', &mut line)?;
    Ok((line.pop() == Some(b'\n')).then_some(line))
}
