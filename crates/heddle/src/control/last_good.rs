//! The last good versions of the folder's objects, in the state folder.

use std::io;
use std::path::Path;

use heddle_compile::Watcher;
use heddle_transport::secrets::{Folder, FolderError};

/// The file.
const FILE: &str = "manifests.jsonl";
/// Most bytes of it: a folder of manifests has 64 MiB at most.
const MAX_BYTES: usize = 256 << 20;

/// What an earlier process has saved; `None` if there is nothing.
///
/// # Errors
/// When it cannot be read: it would be overwritten.
pub(super) fn saved(state: &Path) -> Result<Option<Vec<u8>>, FolderError> {
    // To open the folder would make it.
    if !state.exists() {
        return Ok(None);
    }
    let saved = Folder::open(state)?.read(FILE, MAX_BYTES)?;
    Ok(saved.map(|saved| saved.to_vec()))
}

/// Saves them from now on. `state` is this process's, and locked.
pub(super) fn save(watcher: &mut Watcher, state: &Path) {
    let path = state.to_owned();
    let saving = watcher.save_by(move |text| {
        let other = |error: FolderError| io::Error::other(error.to_string());
        let folder = Folder::open(&path).map_err(other)?;
        folder.write(FILE, text).map_err(other)
    });
    if let Err(error) = saving {
        tracing::warn!("the last good versions of manifests cannot be saved: {error}");
    }
}
