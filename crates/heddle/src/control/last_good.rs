//! The last good versions of the folder's objects, in the state folder.

use std::io;
use std::path::Path;

use heddle_compile::Watcher;
use heddle_transport::secrets::{Folder, FolderError};

/// The file.
const FILE: &str = "manifests.jsonl";
/// Most bytes of it: a folder of manifests has 64 MiB at most.
const MAX_BYTES: usize = 256 << 20;

/// Goes on with what an earlier process has saved, if there is anything.
///
/// # Errors
/// When it cannot be read: it would be overwritten.
pub(super) fn recall(watcher: &mut Watcher, state: &Path) -> Result<(), FolderError> {
    // To open the folder would make it.
    if !state.exists() {
        return Ok(());
    }
    let saved = Folder::open(state)?.read(FILE, MAX_BYTES)?;
    let wrong = saved.map_or(0, |saved| watcher.recall(&saved));
    if wrong > 0 {
        tracing::warn!(
            lines = wrong,
            "{FILE} in the state folder is damaged: objects of these lines have no last good version, and those with an \
             error are closed or left out"
        );
    }
    Ok(())
}

/// Saves them from now on. `state` is this process's, and locked.
pub(super) fn save(watcher: &mut Watcher, state: &Path) {
    let path = state.to_owned();
    let saving = watcher.save_by(move |text| {
        let other = |error: FolderError| io::Error::other(error.to_string());
        let folder = Folder::open(&path).map_err(other)?;
        folder.write(FILE, text).map_err(|error| {
            // An older version of a policy may protect less than that which is in force: a restart has rather none. A file
            // can be removed from a disk that is full.
            match folder.remove(FILE) {
                Ok(_) => other(error),
                Err(stays) => io::Error::other(format!(
                    "{error}; nor can the older ones, which a restart would take, be removed: {stays}"
                )),
            }
        })
    });
    if let Err(error) = saving {
        tracing::warn!("the last good versions of manifests cannot be saved: {error}");
    }
}
