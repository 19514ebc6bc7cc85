//! What an agent has to say beside what it changes: a file beside the journal, for `heddle qos status`.
//!
//! It is written when that changes, and says nothing about an agent that no longer runs.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::controllers::eviction::Advice;

#[cfg(test)]
mod tests;

/// The file, in the folder of the journal.
const FILE: &str = "remarks";
/// Most bytes that are read of it.
const MAX_FILE: u64 = 64 * 1024;

/// What there is to say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Remarks {
    /// Evictions that are advised.
    pub advice: Vec<Advice>,
    /// The last eviction that this agent has made.
    pub evicted: Option<Evicted>,
    /// What the settings ask for and this machine does not do, and why.
    pub not_done: Vec<NotDone>,
}

/// An eviction that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evicted {
    /// The offline pod.
    pub pod: String,
    /// The reason.
    pub why: String,
    /// When it began, in seconds since 1970.
    #[serde(rename = "at")]
    pub at_s: u64,
}

/// Something that is not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotDone {
    /// The setting that asks for it, such as `qos.io`.
    pub setting: String,
    /// The reason.
    pub why: String,
}

impl Remarks {
    /// What the agent with the journal in `folder` says; nothing if it has not said anything.
    ///
    /// # Errors
    /// When the file cannot be read, is too long, or is not understood.
    pub fn look(folder: &Path) -> io::Result<Self> {
        let path = folder.join(FILE);
        let file = match fs::File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Remarks::default()),
            file => file?,
        };
        let mut text = Vec::new();
        file.take(MAX_FILE).read_to_end(&mut text)?;
        serde_json::from_slice(&text).map_err(|error| {
            let what = format!("{}: {error}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, what)
        })
    }

    /// Writes the file, in one step.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let next = folder.join(format!("{FILE}.next"));
        fs::write(&next, serde_json::to_vec(self)?)?;
        fs::rename(next, folder.join(FILE))
    }

    /// Removes the file, if it is there.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn remove(folder: &Path) -> io::Result<()> {
        match fs::remove_file(folder.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}
