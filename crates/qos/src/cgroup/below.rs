//! The groups below others, listed again only when they have changed.
//!
//! The folder of a group has some sixty files: to list it costs many times what a look at it does. The kernel counts the
//! folders below a folder in its links, beside its name and its own `.` (`kernfs_refresh_inode` in `fs/kernfs/inode.c`):
//! if there are as many as were listed and each of these is still there, none is new.
//!
//! The number that counts is that of the listing, not one read before or after it: a group that goes away between the two would hide
//! one that comes later. Where a file system counts otherwise (btrfs always says 1, and overlayfs may), what was listed is
//! never current, and groups are listed each time.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{ControlGroup, System, folders};

/// The groups directly below groups, as last found.
#[derive(Debug, Default)]
pub struct Below(BTreeMap<ControlGroup, Found>);

#[derive(Debug)]
struct Found {
    /// Links that the folder has with what was listed.
    links: u64,
    /// In the order of their names.
    groups: Vec<ControlGroup>,
}

impl Below {
    /// The groups directly below a group, in the order of their names.
    ///
    /// # Errors
    /// There is no such group.
    pub fn of(&mut self, group: &ControlGroup, system: &System) -> io::Result<&[ControlGroup]> {
        let root = &system.cpu()?.at;
        let links = fs::metadata(root.join(group.as_str()))?.nlink();
        let is_current = |found: &Found| found.is_current(root, links);
        if !self.0.get(group).is_some_and(is_current) {
            self.0.insert(group.clone(), Found::listed(root, group)?);
        }
        Ok(self.0.get(group).map_or(&[], |found| &found.groups))
    }

    /// Forgets groups that are not looked at any more.
    pub fn retain(&mut self, is_wanted: impl Fn(&ControlGroup) -> bool) {
        self.0.retain(|group, _| is_wanted(group));
    }
}

impl System {
    /// The groups directly below a group, in the order of their names.
    ///
    /// # Errors
    /// There is no such group.
    pub fn children(&self, group: &ControlGroup) -> io::Result<Vec<ControlGroup>> {
        Ok(Found::listed(&self.cpu()?.at, group)?.groups)
    }
}

impl Found {
    fn listed(root: &Path, group: &ControlGroup) -> io::Result<Self> {
        let all = folders(&root.join(group.as_str()))?;
        // A name that no group may have here is passed over.
        let groups = all.iter().filter_map(|(name, _)| group.child(name).ok());
        Ok(Found {
            groups: groups.collect(),
            links: all.len() as u64 + 2,
        })
    }

    fn is_current(&self, root: &Path, links: u64) -> bool {
        let is_there = |group: &ControlGroup| root.join(group.as_str()).is_dir();
        self.links == links && self.groups.iter().all(is_there)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Found;
    use crate::cgroup::ControlGroup;

    #[test]
    fn a_group_that_goes_away_before_the_listing_hides_none_that_comes_after_it() {
        let root = tempfile::tempdir().expect("a folder");
        let pod = ControlGroup::new("pod").expect("a group");
        let at = |path: &str| root.path().join(path);
        fs::create_dir_all(at("pod/a")).expect("made");
        // What the folder had when it was looked at: `a`.
        let links = 3;
        fs::remove_dir(at("pod/a")).expect("removed");
        let found = Found::listed(root.path(), &pod).expect("listed");
        assert!(found.is_current(root.path(), 2));
        fs::create_dir(at("pod/b")).expect("made");
        assert!(!found.is_current(root.path(), links));

        // Each folder has a link, also one whose name is not taken for a group's.
        fs::create_dir(at("pod/\u{1}")).expect("made");
        let found = Found::listed(root.path(), &pod).expect("listed");
        assert_eq!(found.groups, [pod.child("b").expect("a group")]);
        assert!(found.is_current(root.path(), 4));
        // A file system that counts no folders.
        assert!(!found.is_current(root.path(), 1));
        fs::remove_dir(at("pod/b")).expect("removed");
        fs::create_dir(at("pod/c")).expect("made");
        assert!(!found.is_current(root.path(), 4));
    }
}
