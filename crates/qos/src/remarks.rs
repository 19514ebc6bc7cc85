//! What an agent has to say beside what it changes: a file beside the journal, for `heddle qos status`.
//!
//! It is written when that changes, and says nothing about an agent that no longer runs.

use std::io;
use std::path::Path;

use heddle_model::shortened;
use serde::{Deserialize, Serialize};

use crate::controllers::eviction::Advice;
use crate::state;

#[cfg(test)]
mod tests;

/// The file, in the folder of the journal.
const FILE: &str = "remarks";
/// Most bytes that are read of it.
const MAX_FILE: u64 = 256 * 1024;
/// Most characters of a text in it: an error may quote a long one. The log has all.
const MAX_TEXT: usize = 300;

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
    /// What the agent with the journal in `folder` says; `None` if it has not said anything.
    ///
    /// # Errors
    /// When the file cannot be read, is too long, or is not understood.
    pub fn look(folder: &Path) -> io::Result<Option<Self>> {
        let path = folder.join(FILE);
        let Some(text) = state::read(&path, MAX_FILE)? else {
            return Ok(None);
        };
        let understood = serde_json::from_slice(&text);
        understood
            .map(Some)
            .map_err(|error| state::wrong(&path, error))
    }

    /// Writes the file, with the beginning of each text. A full disk does not hold that up, if there is a file already.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let mut short = self.clone();
        let advice = short.advice.iter_mut();
        let advice = advice.flat_map(|one| [&mut one.pod, &mut one.why]);
        let evicted = short.evicted.iter_mut();
        let evicted = evicted.flat_map(|one| [&mut one.pod, &mut one.why]);
        let not_done = short.not_done.iter_mut();
        let not_done = not_done.flat_map(|one| [&mut one.setting, &mut one.why]);
        for text in advice.chain(evicted).chain(not_done) {
            *text = shortened(text, MAX_TEXT).into_owned();
        }
        state::overwrite_when_full(&folder.join(FILE), &serde_json::to_vec(&short)?)
    }

    /// Removes the file, if it is there.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn remove(folder: &Path) -> io::Result<()> {
        state::remove(&folder.join(FILE))
    }
}
