//! Counts writes to files, as the kernel tells of them (`inotify(7)`).

use std::mem::MaybeUninit;
use std::path::Path;

use anyhow::Context;
use rustix::fd::OwnedFd;
use rustix::fs::inotify;
use rustix::io::Errno;

/// Writes to the files of some folders.
pub(super) struct Writes(OwnedFd);

impl Writes {
    /// Begins to watch.
    ///
    /// # Errors
    /// When a folder is missing, or the kernel watches no more folders (`fs.inotify.max_user_watches`).
    pub(super) fn watch<'p>(folders: impl IntoIterator<Item = &'p Path>) -> anyhow::Result<Writes> {
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        for folder in folders {
            inotify::add_watch(&watch, folder, inotify::WatchFlags::MODIFY)
                .with_context(|| format!("cannot watch {}", folder.display()))?;
        }
        Ok(Writes(watch))
    }

    /// Writes since the last call. Several to the same file, one after another, may count as one.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(super) fn take(&mut self) -> anyhow::Result<u64> {
        let mut space = [MaybeUninit::uninit(); 64 << 10];
        let mut events = inotify::Reader::new(&self.0, &mut space);
        let mut count = 0;
        loop {
            match events.next() {
                Ok(_) => count += 1,
                Err(Errno::WOULDBLOCK) => return Ok(count),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_write_is_counted_and_a_read_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "1").expect("written");
        let mut writes = Writes::watch([folder.path()]).expect("watched");
        fs::read(&file).expect("read");
        assert_eq!(writes.take().expect("counted"), 0);
        fs::OpenOptions::new()
            .append(true)
            .open(&file)
            .and_then(|mut file| std::io::Write::write_all(&mut file, b"2"))
            .expect("written");
        assert_eq!(writes.take().expect("counted"), 1);
        assert_eq!(writes.take().expect("counted"), 0);
    }
}
