//! Finds the groups of pods by looking at folders, whatever the kubelet's driver. The hierarchy with the `cpu` controller
//! is enough: the paths are the same in all of them.

use std::collections::BTreeMap;

use heddle_model::ControlGroup;

use super::group::{Driver, Layout, PodGroup, PodQos, Uid};

#[cfg(test)]
mod tests;

/// Groups of pods that are remembered. A kubelet has 110 pods unless it is told otherwise.
const MAX_GROUPS: usize = 10_000;

/// The groups of pods that were there at the last look.
#[derive(Debug, Clone)]
pub struct Tree {
    layouts: [Layout; 2],
    groups: BTreeMap<Uid, PodGroup>,
    /// The layout of the groups that were found, for those of pods that have none yet.
    found: Option<Layout>,
}

impl Tree {
    /// `root` is the kubelet's `--cgroup-root`.
    ///
    /// # Errors
    /// When it is no path of a control group.
    pub fn new(root: &str) -> Result<Self, String> {
        Ok(Tree {
            layouts: [
                Layout::new(Driver::Cgroupfs, root)?,
                Layout::new(Driver::Systemd, root)?,
            ],
            groups: BTreeMap::new(),
            found: None,
        })
    }

    /// Looks at the folders. `below` lists the groups directly below one; none where it is not there.
    pub fn look(&mut self, below: impl Fn(&ControlGroup) -> Vec<ControlGroup>) {
        self.groups.clear();
        for layout in &self.layouts {
            let mut is_there = false;
            for qos in PodQos::ALL {
                for group in below(&layout.parent(qos)) {
                    is_there = true;
                    let name = group.as_str().rsplit('/').next().unwrap_or_default();
                    let Some(uid) = layout.uid_of(name, qos) else {
                        continue;
                    };
                    if self.groups.len() < MAX_GROUPS {
                        self.groups.entry(uid).or_insert(PodGroup { group, qos });
                    }
                }
            }
            if is_there && self.found.is_none() {
                self.found = Some(layout.clone());
            }
        }
    }

    /// The pods whose groups are there.
    pub fn uids(&self) -> impl Iterator<Item = &Uid> {
        self.groups.keys()
    }

    /// The group of a pod: where it was found, else where it will be.
    pub fn group(&self, uid: &Uid, qos: Option<PodQos>) -> Option<PodGroup> {
        let later = || Some(self.found.as_ref()?.pod(uid, qos?));
        self.groups.get(uid).cloned().or_else(later)
    }
}
