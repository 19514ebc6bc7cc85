//! Whether the disks of this machine use weights of groups (Documentation/block/bfq-iosched.rst; `io.cost.qos` in
//! Documentation/admin-guide/cgroup-v2.rst).

use std::fs;
use std::io::Read;
use std::path::Path;

use super::mounts::{Hierarchy, Version};
use super::{Knob, System, Value};

/// Most bytes that are read of a file about disks: some 40 for each disk.
const MAX_FILE: u64 = 64 * 1024;

impl System {
    /// The least weight that the kernel takes.
    pub fn least_weight(&self, knob: Knob) -> Value {
        let version = self.io().map(|mount| mount.version);
        match (knob, version) {
            (Knob::IoWeight, Ok(Version::V1)) => Value::Amount(10),
            _ => Value::Amount(1),
        }
    }

    /// Whether a disk of this machine uses weights: by its scheduler (bfq, or cfq before Linux 5.0), or by the cost model
    /// of version 2.
    pub fn are_weights_used(&self) -> bool {
        let mut disks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        disks.any(|disk| uses_weights(&bounded(&disk.path().join("queue/scheduler"))))
            || matches!(self.io(), Ok(mount) if has_cost_model(mount))
    }
}

fn has_cost_model(mount: &Hierarchy) -> bool {
    mount.version == Version::V2 && bounded(&mount.at.join("io.cost.qos")).contains("enable=1")
}

/// Whether the scheduler that a disk has, in brackets among those it could have, knows weights.
fn uses_weights(schedulers: &str) -> bool {
    ["[bfq]", "[cfq]"]
        .iter()
        .any(|one| schedulers.contains(one))
}

/// The text of a file; nothing if there is none.
fn bounded(path: &Path) -> String {
    let mut text = String::new();
    let file = fs::File::open(path);
    match file.and_then(|file| file.take(MAX_FILE).read_to_string(&mut text)) {
        Ok(_) => text,
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::uses_weights;

    #[test]
    fn only_the_scheduler_in_force_counts() {
        assert!(uses_weights("none mq-deadline [bfq]\n"));
        assert!(uses_weights("noop deadline [cfq]\n"));
        assert!(!uses_weights("[none] mq-deadline kyber bfq\n"));
        assert!(!uses_weights(""));
    }
}
