//! The groups below others, listed again only when they have changed.
//!
//! The folder of a group has some sixty files: to list it costs many times what a look at it does. The kernel counts the
//! folders below a folder in its links (`kernfs_refresh_inode` in `fs/kernfs/inode.c`): if their number is the same and
//! each of those known is still there, none is new.

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
    /// Links of the folder.
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
        let is_there = |group: &ControlGroup| root.join(group.as_str()).is_dir();
        let is_current = |found: &Found| found.links == links && found.groups.iter().all(is_there);
        if !self.0.get(group).is_some_and(is_current) {
            let groups = listed(root, group)?;
            self.0.insert(group.clone(), Found { links, groups });
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
        listed(&self.cpu()?.at, group)
    }
}

fn listed(root: &Path, group: &ControlGroup) -> io::Result<Vec<ControlGroup>> {
    let all = folders(&root.join(group.as_str()))?;
    // A name that is no name of a group cannot be there.
    let all = all.iter();
    Ok(all.filter_map(|(name, _)| group.child(name).ok()).collect())
}
