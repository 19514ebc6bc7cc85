//! Names of control groups.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A control group: its path below the root of every hierarchy (`cgroups(7)`), without a `/` at either end. Never the root, never with `..`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ControlGroup(String);

impl ControlGroup {
    /// Checks a path, such as `/kubepods/pod5`, with or without the first `/`.
    ///
    /// # Errors
    /// When it names the root, is not in normal form, has a control character, or is a folder of the hierarchy's mount.
    pub fn new(path: &str) -> Result<Self, String> {
        if path.starts_with("/sys/fs/cgroup/") {
            return Err(format!(
                "{path:?} is a folder of the mount, not the path of a control group as /proc/PID/cgroup has it"
            ));
        }
        let path = path.strip_prefix('/').unwrap_or(path);
        let is_normal = path.split('/').all(|part| !["", ".", ".."].contains(&part));
        match is_normal && !path.contains(|c: char| c.is_control()) {
            true => Ok(ControlGroup(path.to_owned())),
            false => Err(format!("{path:?} is no path of a control group")),
        }
    }

    /// The path, without a first `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A group directly below this one.
    ///
    /// # Errors
    /// When `name` cannot be the name of a group.
    pub fn child(&self, name: &str) -> Result<Self, String> {
        ControlGroup::new(&format!("{}/{name}", self.0))
    }

    /// Whether it is below another group, at any depth.
    pub fn is_below(&self, other: &ControlGroup) -> bool {
        let rest = self.0.strip_prefix(other.as_str());
        rest.is_some_and(|rest| rest.starts_with('/'))
    }

    /// Its path, and those of the groups above it.
    pub fn and_above(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(Some(self.0.as_str()), |path| {
            path.rsplit_once('/').map(|(above, _)| above)
        })
    }

    /// Number of groups above it.
    pub fn depth(&self) -> usize {
        self.0.matches('/').count()
    }
}

impl fmt::Display for ControlGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ControlGroup {
    type Error = String;

    fn try_from(path: String) -> Result<Self, String> {
        ControlGroup::new(&path)
    }
}

impl From<ControlGroup> for String {
    fn from(group: ControlGroup) -> String {
        group.0
    }
}

#[cfg(test)]
mod tests {
    use super::ControlGroup;

    #[test]
    fn paths_of_groups_stay_below_the_root() {
        for good in ["a", "/a/b", "kubepods.slice/x.scope", "a b/c"] {
            let group = ControlGroup::new(good).expect(good);
            assert_eq!(group.as_str(), good.trim_start_matches('/'));
        }
        for bad in [
            "",
            "/",
            "..",
            "a/../b",
            "a/",
            "a//b",
            "//a",
            "./a",
            "a/.",
            "a\n",
            "/sys/fs/cgroup/cpu/a",
        ] {
            assert!(ControlGroup::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(ControlGroup::new("a/b/c").map(|group| group.depth()), Ok(2));
        let group = |path| ControlGroup::new(path).expect(path);
        assert!(group("a/b/c").is_below(&group("a")));
        assert!(group("a/b/c").and_above().eq(["a/b/c", "a/b", "a"]));
        assert!(!group("ab").is_below(&group("a")) && !group("a").is_below(&group("a")));
    }
}
