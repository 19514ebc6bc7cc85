//! A folder, as it is read.

use std::path::Path;
use std::sync::Arc;

use crate::manifest::{Object, Written};
use crate::source::good::Good;

/// The objects of a folder, each read alone.
#[derive(Debug, Default)]
pub(in crate::source) struct Folder {
    /// Those that are valid on their own.
    pub(in crate::source) valid: Vec<Arc<Object>>,
    /// Those with faults.
    pub(in crate::source) faulty: Vec<Written>,
    /// Files with something that may be any object.
    pub(in crate::source) unreadable: Vec<UnreadableFile>,
}

impl Folder {
    /// Notes in each object how it compares with its last good version.
    pub(in crate::source) fn note_in_force(&mut self, good: &Good) {
        let valid = self.valid.iter_mut().filter_map(Arc::get_mut);
        let valid = valid.map(|object| &mut object.written);
        for written in valid.chain(&mut self.faulty) {
            if let Some(good) = good.objects.get(&written.key) {
                written.note_in_force(&good.written);
            }
        }
    }
}

/// A file with something that may be any object.
#[derive(Debug)]
pub(in crate::source) struct UnreadableFile {
    pub(in crate::source) path: Arc<Path>,
    /// Its text, to see what it may be about.
    pub(in crate::source) bytes: Vec<u8>,
}
