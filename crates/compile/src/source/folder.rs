//! A folder of files, read as one consistent state.
//!
//! Other programs write to the folder while it is read. A scan therefore walks the folder twice, and starts again when
//! the second walk finds something else than the first one read.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use heddle_model::report::{LeftAside, Origin, Problem, Severity};

#[cfg(test)]
mod tests;

/// Limit of one file, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Limit of all files together, in bytes.
const MAX_TOTAL_BYTES: usize = 64 << 20;
/// Limit of manifest files.
const MAX_FILES: usize = 4_096;
/// Limit of entries in all folders, manifests or not.
const MAX_ENTRIES: usize = 100_000;
/// Limit of nested folders.
const MAX_DEPTH: usize = 8;
/// Limit of symbolic links followed from one name.
const MAX_LINKS: usize = 8;
/// How often a scan is repeated because the folder changed meanwhile.
const MAX_ATTEMPTS: usize = 5;

/// The result of a scan.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The manifest files, sorted by path.
    pub(super) files: Vec<ManifestFile>,
    /// Files and folders that could not be read.
    pub(super) problems: Vec<Problem>,
    /// Ignored files that may be meant as manifests.
    pub(super) left_aside: LeftAside,
    /// Folders to watch, each once, whatever its names.
    pub(super) folders: BTreeMap<Identity, Watched>,
    /// The state of every file and folder used: equal stamps mean an equal scan.
    stamps: BTreeMap<PathBuf, Stamp>,
}

/// A folder to watch, because changes in it can change the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Watched {
    pub(super) path: PathBuf,
    /// The relevant names in it; `None` for all.
    pub(super) names: Option<BTreeSet<OsString>>,
}

#[derive(Debug)]
pub(super) struct ManifestFile {
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
}

/// Device and inode.
pub(super) type Identity = (u64, u64);

/// Identity, length, and the times of the last change of content and of inode.
#[derive(Debug, PartialEq, Eq)]
struct Stamp(Identity, u64, (i64, i64), (i64, i64));

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self(
            identity(metadata),
            metadata.len(),
            (metadata.mtime(), metadata.mtime_nsec()),
            (metadata.ctime(), metadata.ctime_nsec()),
        )
    }
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

impl Scan {
    /// A folder that holds one file.
    pub(super) fn of_text(file: &Path, text: &[u8]) -> Self {
        let mut walk = Walk::default();
        walk.take(file, text.to_vec());
        walk.scan
    }

    /// The folder `/mesh` with these files.
    #[cfg(test)]
    pub(super) fn of_texts(files: &[(&str, &str)]) -> Self {
        let mut walk = Walk::default();
        for (file, text) in files {
            walk.take(&Path::new("/mesh").join(file), text.as_bytes().to_vec());
        }
        walk.scan
    }

    /// A digest of everything that compilation reads.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for file in &self.files {
            (&file.path, &file.bytes).hash(&mut hasher);
        }
        for problem in &self.problems {
            problem.to_string().hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Reads the manifests under `root`. Never fails as a whole: each unreadable file gives a problem.
pub(super) fn scan(root: &Path) -> Scan {
    let mut scan = walk(root, true);
    for _ in 1..MAX_ATTEMPTS {
        if walk(root, false).stamps == scan.stamps {
            break;
        }
        scan = walk(root, true);
    }
    scan
}

fn walk(root: &Path, read: bool) -> Scan {
    let mut walk = Walk {
        read,
        ..Walk::default()
    };
    walk.watch_around(root);
    match fs::metadata(root) {
        Ok(metadata) if metadata.is_dir() => {
            walk.folder(root, &metadata, &mut Vec::new());
        }
        Ok(_) => {
            let remedy = "name a folder; the file of a lab is for heddle-lab validate";
            walk.problem(Severity::Error, root, "this is no folder", remedy);
        }
        Err(error) => walk.problem(Severity::Error, root, &error.to_string(), "name a folder"),
    }
    walk.scan
}

#[derive(Default)]
struct Walk {
    scan: Scan,
    read: bool,
    entries: usize,
    manifests: usize,
    bytes: usize,
    /// Files already read, under any name.
    seen: BTreeSet<Identity>,
}

impl Walk {
    fn problem(&mut self, severity: Severity, file: &Path, reason: &str, remedy: &str) {
        self.scan.problems.push(Problem {
            severity,
            origin: Origin::file(file),
            object: None,
            field: String::new(),
            reason: reason.to_owned(),
            remedy: remedy.to_owned(),
            cause: None,
        });
    }

    fn error(&mut self, file: &Path, reason: &str, remedy: &str) {
        self.problem(Severity::Error, file, reason, remedy);
    }

    /// Watches the folder that contains a name, so that a replaced file or link is noticed; where that folder is
    /// missing, the nearest existing one above it.
    fn watch_around(&mut self, path: &Path) {
        let mut path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        for _ in 0..MAX_LINKS {
            let mut name = path.file_name();
            for folder in path.ancestors().skip(1) {
                if let Some(metadata) = fs::metadata(folder).ok().filter(Metadata::is_dir) {
                    self.watch(folder, &metadata, name);
                    break;
                }
                name = folder.file_name();
            }
            let Ok(target) = fs::read_link(&path) else {
                return;
            };
            path = path.parent().unwrap_or(&path).join(target);
        }
    }

    /// Watches a folder for one name, or for all.
    fn watch(&mut self, folder: &Path, metadata: &Metadata, name: Option<&OsStr>) {
        let path = || std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
        let watched = self
            .scan
            .folders
            .entry(identity(metadata))
            .or_insert_with(|| Watched {
                path: path(),
                names: Some(BTreeSet::new()),
            });
        match (name, &mut watched.names) {
            (Some(name), Some(names)) => {
                names.insert(name.to_owned());
            }
            (Some(_), None) => {}
            (None, _) => watched.names = None,
        }
    }

    fn folder(&mut self, folder: &Path, metadata: &Metadata, above: &mut Vec<Identity>) {
        let id = identity(metadata);
        if above.contains(&id) {
            let reason = "this link leads back to a folder that it is in";
            return self.error(folder, reason, "remove the link");
        }
        if !self.seen.insert(id) {
            let reason = "this link leads to a folder that is already read: it is read once";
            return self.problem(Severity::Warning, folder, reason, "remove the link");
        }
        if above.len() > MAX_DEPTH {
            let reason = format!("this folder is more than {MAX_DEPTH} folders deep");
            return self.error(folder, &reason, "move its files up");
        }
        self.watch(folder, metadata, None);
        let names = match self.names(folder) {
            Ok(names) => names,
            Err(error) => {
                let remedy = remedy(&error, "make it readable, or move it elsewhere");
                return self.error(folder, &error.to_string(), remedy);
            }
        };
        above.push(id);
        for name in names {
            self.entry(&folder.join(name), above);
        }
        above.pop();
    }

    /// The names in a folder, sorted, without those to ignore.
    fn names(&mut self, folder: &Path) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                let reason = format!("there are more than {MAX_ENTRIES} files in all");
                self.error(folder, &reason, "name a folder that holds manifests only");
                break;
            }
            let name = entry?.file_name();
            if !is_ignored(&name.to_string_lossy()) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn entry(&mut self, path: &Path, above: &mut Vec<Identity>) {
        let Ok(own) = fs::symlink_metadata(path) else {
            return;
        };
        let is_manifest = is_manifest(path);
        if own.is_symlink() {
            self.watch_around(path);
        }
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => self.folder(path, &metadata, above),
            Ok(metadata) if is_manifest => self.file(path, &metadata),
            Ok(metadata) => {
                if metadata.is_file() && is_nearly_manifest(path) {
                    let aside = &mut self.scan.left_aside;
                    aside.files += 1;
                    aside.first.get_or_insert_with(|| path.to_path_buf());
                }
            }
            Err(error) if is_manifest && own.is_symlink() => {
                let reason = match error.kind() {
                    io::ErrorKind::NotFound => "this link leads nowhere".to_owned(),
                    _ => format!("this link cannot be followed: {error}"),
                };
                self.error(path, &reason, "correct the link, or remove it");
            }
            // Removed between the two walks: treated as if it had never existed.
            Err(_) => {}
        }
    }

    fn file(&mut self, path: &Path, metadata: &Metadata) {
        if !metadata.is_file() {
            return self.error(path, "this is no regular file", "remove it");
        }
        if !self.seen.insert(identity(metadata)) {
            let reason = "this is another name of a file that is already read: it is read once";
            return self.problem(Severity::Warning, path, reason, "remove one of the two");
        }
        self.manifests += 1;
        if self.manifests > MAX_FILES {
            if self.manifests == MAX_FILES + 1 {
                let reason = format!("there are more than {MAX_FILES} manifest files");
                self.error(path, &reason, "name a folder that holds manifests only");
            }
            return;
        }
        self.scan
            .stamps
            .insert(path.to_path_buf(), Stamp::of(metadata));
        if !self.read {
            return;
        }
        match contents(path) {
            Ok(bytes) => self.take(path, bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let remedy = remedy(&error, "make it readable, or move it");
                self.error(path, &error.to_string(), remedy);
            }
        }
    }

    /// Adds a file's content, within the limits.
    fn take(&mut self, path: &Path, bytes: Vec<u8>) {
        if bytes.len() as u64 > MAX_FILE_BYTES {
            let reason = format!("this file has more than {} MiB", MAX_FILE_BYTES >> 20);
            return self.error(path, &reason, "split it");
        }
        self.bytes += bytes.len();
        if self.bytes > MAX_TOTAL_BYTES {
            let reason = format!("the manifests have more than {} MiB", MAX_TOTAL_BYTES >> 20);
            return self.error(path, &reason, "name a folder that holds manifests only");
        }
        self.scan.files.push(ManifestFile {
            path: path.to_path_buf(),
            bytes,
        });
    }
}

/// The remedy for a file or folder that cannot be read; the cause may be the process's own limit of open files.
fn remedy(error: &io::Error, otherwise: &'static str) -> &'static str {
    let exhausted = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
    if exhausted.contains(&error.raw_os_error()) {
        return "no descriptor is left: raise the limit of open files (ulimit -n), or hold fewer \
                connections";
    }
    otherwise
}

/// Reads at most one byte more than the limit, which detects a file that grows meanwhile. Opened without blocking: a
/// pipe in the file's place would otherwise block the scan.
fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file: File = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|extension| {
        ["yaml", "yml", "json"]
            .iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
    })
}

/// Whether a program has added an extension to a manifest's name, as in `web.yaml.txt` or `web.yml.bak`.
fn is_nearly_manifest(path: &Path) -> bool {
    path.file_stem()
        .is_some_and(|stem| is_manifest(Path::new(stem)))
}

/// Hidden files, and those that editors put beside the edited one: `.x.yaml.swp`, `#x.yaml#`, `~$x.yaml`, `x.yaml~`. A
/// ConfigMap's `..data` is among them; its files are reached through their links.
fn is_ignored(name: &str) -> bool {
    name.starts_with(['.', '#', '~']) || name.ends_with(['~', '#'])
}
