//! What workloads use, as gateways have reported it, kept in a file.
//!
//! Each line of the file is one fact as JSON: an account uses a Service. A fact is on the disk before it has consequences, so
//! that a control plane that is killed knows it again. A line that was cut off, or that is not understood, is passed over:
//! what it said is learned again. What was not used for long is forgotten; the file is then written anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use heddle_model::{ServiceAccountName, ServiceName};
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// The file in the state folder.
pub const DEPENDENCIES: &str = "dependencies.jsonl";
/// Services that one account uses, at most: a caller that scans would otherwise have all of the mesh.
const MAX_OF_ACCOUNT: usize = 4_096;
/// Longest line that is read, in bytes.
const MAX_LINE: usize = 4_096;

/// What workloads use.
#[derive(Debug, Default)]
pub(crate) struct Dependencies {
    used: BTreeMap<ServiceAccountName, BTreeMap<ServiceName, Used>>,
    /// Where it is kept; `None` if nothing is kept.
    path: Option<PathBuf>,
    /// To append to; `None` also after an error, until the file can be written anew.
    file: Option<File>,
    /// Since when uses are noted, in seconds since 1970: before, the control plane could not hear of any.
    noted_since: u64,
    /// Whether something is known that the file does not have.
    has_more: bool,
}

/// The use of a Service. Times are in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// When it was learned.
    pub learned: u64,
    /// When it was last known to be used, to within the time between two reports of an Envoy.
    pub used: u64,
}

/// One line of the file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Fact {
    Learned {
        account: ServiceAccountName,
        service: ServiceName,
        at: u64,
        /// When it was last used, if that was later.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        used: Option<u64>,
    },
}

impl Dependencies {
    /// Reads what is kept in a folder, and keeps there what is learned. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// Beside what could be read: when the file cannot be read, which is then left as it is, or not be written, which is tried
    /// again.
    pub(crate) fn open(folder: &Path, now: u64) -> (Self, io::Result<()>) {
        let path = folder.join(DEPENDENCIES);
        let mut dependencies = Dependencies {
            noted_since: now,
            ..Dependencies::default()
        };
        let read = match File::open(&path) {
            Ok(file) => dependencies.read(BufReader::new(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(why) = read {
            return (dependencies, Err(because("it cannot be read", &why)));
        }
        let written = dependencies.rewritten(&path);
        dependencies.path = Some(path);
        let written = match written {
            Ok(file) => {
                dependencies.file = Some(file);
                Ok(())
            }
            Err(why) => {
                dependencies.has_more = true;
                let what = "it cannot be written, which is tried again";
                Err(because(what, &why))
            }
        };
        (dependencies, written)
    }

    fn read(&mut self, mut file: impl BufRead) -> io::Result<()> {
        let mut line = Vec::new();
        let mut number = 0;
        loop {
            number += 1;
            line.clear();
            if file.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            let fact = serde_json::from_slice(&line).ok();
            match fact.filter(|_| line.len() <= MAX_LINE) {
                Some(Fact::Learned {
                    account,
                    service,
                    at,
                    used,
                }) => drop(self.put(account, service, (at, used.unwrap_or(at)))),
                None => {
                    tracing::warn!(
                        line = number,
                        "a line of {DEPENDENCIES} is not understood and passed over: what it said is learned again"
                    );
                }
            }
        }
    }

    /// A new file with what is known, in the place of the one before.
    fn rewritten(&self, path: &Path) -> io::Result<File> {
        let partial = path.with_extension("new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&partial)?;
        let mut text = Vec::new();
        for (account, services) in &self.used {
            for (service, used) in services {
                text.extend(line(&Fact::Learned {
                    account: account.clone(),
                    service: service.clone(),
                    at: used.learned,
                    used: (used.used > used.learned).then_some(used.used),
                }));
            }
        }
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&partial, path)?;
        if let Some(folder) = path.parent() {
            File::open(folder)?.sync_all()?;
        }
        OpenOptions::new().append(true).open(path)
    }

    /// Notes uses, and has them on the disk when it returns. Returns the accounts that use something new.
    ///
    /// # Errors
    /// When they are not on the disk. They are noted all the same.
    pub(crate) fn learn(
        &mut self,
        uses: impl IntoIterator<Item = (ServiceAccountName, ServiceName)>,
        now: u64,
    ) -> (BTreeSet<ServiceAccountName>, io::Result<()>) {
        let mut accounts = BTreeSet::new();
        let mut text = Vec::new();
        for (account, service) in uses {
            if self.put(account.clone(), service.clone(), (now, now)) {
                accounts.insert(account.clone());
                text.extend(line(&Fact::Learned {
                    account,
                    service,
                    at: now,
                    used: None,
                }));
            }
        }
        let written = self.append(&text);
        (accounts, written)
    }

    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        let Some(path) = self.path.as_ref().filter(|_| !text.is_empty()) else {
            return Ok(());
        };
        let is_appended = self.file.as_mut().is_some_and(|file| {
            let written = file.write_all(text).and_then(|()| file.sync_data());
            written.is_ok()
        });
        if is_appended {
            return Ok(());
        }
        // A line may be cut off. All that is known is written anew, now or when it is looked for what is not used.
        self.has_more = true;
        self.file = None;
        self.file = Some(self.rewritten(path)?);
        self.has_more = false;
        Ok(())
    }

    /// Whether it was new, and there was room for it.
    fn put(
        &mut self,
        account: ServiceAccountName,
        service: ServiceName,
        (learned, used): (u64, u64),
    ) -> bool {
        let services = self.used.entry(account).or_default();
        if services.len() >= MAX_OF_ACCOUNT || services.contains_key(&service) {
            return false;
        }
        services.insert(service, Used { learned, used });
        true
    }

    /// Notes that workloads of an account use Services at this time.
    pub(crate) fn note_uses<'s>(
        &mut self,
        account: &ServiceAccountName,
        services: impl Iterator<Item = &'s ServiceName>,
        now: u64,
    ) {
        let Some(known) = self.used.get_mut(account) else {
            return;
        };
        for service in services {
            if let Some(used) = known.get_mut(service).filter(|used| now > used.used) {
                used.used = now;
                self.has_more = true;
            }
        }
    }

    /// Forgets what was not used for this many seconds, and writes the file anew if it lacks something. Returns the accounts
    /// of which something is forgotten, and how much.
    ///
    /// # Errors
    /// When the file cannot be written: what is forgotten is known again after a restart.
    pub(crate) fn forget(
        &mut self,
        after: u64,
        now: u64,
    ) -> (BTreeSet<ServiceAccountName>, usize, io::Result<()>) {
        let (mut accounts, mut count) = (BTreeSet::new(), 0);
        let noted_since = self.noted_since;
        for (account, services) in &mut self.used {
            let before = services.len();
            services.retain(|_, used| now.saturating_sub(used.used.max(noted_since)) < after);
            if services.len() < before {
                count += before - services.len();
                accounts.insert(account.clone());
            }
        }
        self.used.retain(|_, services| !services.is_empty());
        let is_complete = !self.has_more && count == 0;
        let Some(path) = self.path.as_ref().filter(|_| !is_complete) else {
            return (accounts, count, Ok(()));
        };
        let written = match self.rewritten(path) {
            Ok(file) => {
                (self.file, self.has_more) = (Some(file), false);
                Ok(())
            }
            Err(why) => {
                self.has_more = true;
                Err(why)
            }
        };
        (accounts, count, written)
    }

    /// What the workloads of an account use.
    pub(crate) fn of(&self, account: &ServiceAccountName) -> BTreeMap<ServiceName, Used> {
        self.used.get(account).cloned().unwrap_or_default()
    }

    /// The accounts of which something is known.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = &ServiceAccountName> {
        self.used.keys()
    }
}

fn because(what: &str, why: &io::Error) -> io::Error {
    io::Error::new(why.kind(), format!("{what}: {why}"))
}

fn line(fact: &Fact) -> Vec<u8> {
    // A fact of names and a number always has a text.
    let mut line = serde_json::to_vec(fact).unwrap_or_default();
    line.push(b'\n');
    line
}
