//! Names of a kubelet's control groups. A pod's group has its UID, in the group of its QoS class, below `kubepods`:
//!
//! | driver | group of a burstable pod |
//! |---|---|
//! | `cgroupfs` | `kubepods/burstable/podUID` |
//! | `systemd` | `kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice`, with `_` for each `-` of the UID |
//!
//! A guaranteed pod's is directly below `kubepods`. `--cgroup-root` of the kubelet comes first: `/a/b` is `a/b` or
//! `a.slice/a-b.slice`. `kubepods` is then `a-b-kubepods.slice`. A static pod has the hash of its manifest as its UID.

use std::fmt;

use heddle_model::ControlGroup;

#[cfg(test)]
mod tests;

/// Longest UID that is taken. Kubernetes makes them 32 to 36 characters long.
const MAX_UID: usize = 128;
const TOP: &str = "kubepods";
const SLICE: &str = ".slice";

/// UID of a pod: letters, digits and `-`, so that it is one part of a path, for either driver.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uid(String);

impl Uid {
    /// `None` when it cannot be a part of a group's name that is read back as it was written.
    pub fn new(text: &str) -> Option<Self> {
        let is_fine = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let fits = (1..=MAX_UID).contains(&text.len()) && text.chars().all(is_fine);
        fits.then(|| Uid(text.to_owned()))
    }

    /// As the kubelet writes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The kubelet's QoS class, which follows from requests and limits. It has nothing to do with
/// [`Class`](heddle_model::Class).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodQos {
    /// Limits equal requests.
    Guaranteed,
    /// There are some requests or limits.
    Burstable,
    /// There are none.
    BestEffort,
}

impl PodQos {
    /// Every class.
    pub const ALL: [PodQos; 3] = [PodQos::Guaranteed, PodQos::Burstable, PodQos::BestEffort];

    /// As in `status.qosClass`.
    pub fn as_str(self) -> &'static str {
        match self {
            PodQos::Guaranteed => "Guaranteed",
            PodQos::Burstable => "Burstable",
            PodQos::BestEffort => "BestEffort",
        }
    }

    /// The part of a group's name; a guaranteed pod has none.
    fn part(self) -> Option<&'static str> {
        match self {
            PodQos::Guaranteed => None,
            PodQos::Burstable => Some("burstable"),
            PodQos::BestEffort => Some("besteffort"),
        }
    }
}

/// The kubelet's `cgroupDriver`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Driver {
    /// The kubelet makes groups itself.
    Cgroupfs,
    /// systemd makes them, as slices.
    Systemd,
}

/// The group of a pod, and the class that its place says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodGroup {
    /// Its path.
    pub group: ControlGroup,
    /// The class whose group it is in.
    pub qos: PodQos,
}

/// Names of groups of a kubelet, by its driver and its `--cgroup-root`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    driver: Driver,
    /// Parts of `--cgroup-root`, and `kubepods`.
    parts: Vec<String>,
}

impl Layout {
    /// `root` is the kubelet's `--cgroup-root`; `/` is its default.
    ///
    /// # Errors
    /// When it is no path of a control group.
    pub fn new(driver: Driver, root: &str) -> Result<Self, String> {
        let mut parts: Vec<String> = match root.trim_matches('/') {
            "" => Vec::new(),
            path => ControlGroup::new(path)?
                .as_str()
                .split('/')
                .map(str::to_owned)
                .collect(),
        };
        parts.push(TOP.to_owned());
        Ok(Layout { driver, parts })
    }

    /// Its driver.
    pub fn driver(&self) -> Driver {
        self.driver
    }

    /// The group in which the pods of a class are.
    pub fn parent(&self, qos: PodQos) -> ControlGroup {
        self.path(qos.part().into_iter())
    }

    /// The group of a pod.
    pub fn pod(&self, uid: &Uid, qos: PodQos) -> PodGroup {
        let last = format!("pod{uid}");
        let parts = qos.part().into_iter().chain([last.as_str()]);
        let group = self.path(parts);
        PodGroup { group, qos }
    }

    /// The pod whose group has this name, below [`Layout::parent`] of the class.
    pub fn uid_of(&self, name: &str, qos: PodQos) -> Option<Uid> {
        let text = match self.driver {
            Driver::Cgroupfs => name.strip_prefix("pod")?.to_owned(),
            Driver::Systemd => {
                let name = name.strip_suffix(SLICE)?;
                let parts = self.parts.iter().map(String::as_str).chain(qos.part());
                let name = name.strip_prefix(&slice(parts))?;
                let escaped = name.strip_prefix("-pod")?;
                // A "-" would make it a slice below another one.
                (!escaped.contains('-')).then(|| escaped.replace('_', "-"))?
            }
        };
        Uid::new(&text)
    }

    fn path<'a>(&'a self, more: impl Iterator<Item = &'a str>) -> ControlGroup {
        let parts: Vec<&str> = self.parts.iter().map(String::as_str).chain(more).collect();
        let names: Vec<String> = match self.driver {
            Driver::Cgroupfs => parts.iter().map(|part| (*part).to_owned()).collect(),
            // systemd.slice(5): the name of a slice has those of all slices that it is in.
            Driver::Systemd => (1..=parts.len())
                .map(|upto| slice(parts.iter().take(upto).copied()) + SLICE)
                .collect(),
        };
        ControlGroup::new(&names.join("/")).expect("parts of checked paths are a path")
    }
}

fn slice<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    let escaped: Vec<String> = parts.map(|part| part.replace('-', "_")).collect();
    escaped.join("-")
}
