//! Weights of disks: which file has one, and whether a disk of this machine heeds it.
//!
//! Sources: Documentation/admin-guide/cgroup-v2.rst (`io.weight`, `io.cost.qos`), Documentation/block/bfq-iosched.rst,
//! Documentation/cgroup-v1/blkio-controller.txt of Linux 4.20 (`blkio.weight`).

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use super::mounts::{Hierarchy, Version};
use super::system::number;
use super::{Knob, System, Value};

/// Most bytes that are read of a file about disks: some 40 for each disk.
const MAX_FILE: u64 = 64 * 1024;

/// The file of a weight.
pub(super) fn file(knob: Knob, version: Version) -> &'static str {
    match (knob, version) {
        (Knob::BfqWeight, Version::V1) => "blkio.bfq.weight",
        (Knob::BfqWeight, Version::V2) => "io.bfq.weight",
        (_, Version::V1) => "blkio.weight",
        (_, Version::V2) => "io.weight",
    }
}

/// The weight for all disks: a number alone, or in a line that begins with `default` before those of single disks.
pub(super) fn read(text: &str) -> io::Result<Value> {
    let first = text.lines().next().unwrap_or_default();
    let weight = first.strip_prefix("default ").unwrap_or(first);
    number(weight).map(Value::Amount)
}

impl System {
    /// The least weight that the kernel takes.
    pub fn least_weight(&self, knob: Knob) -> Value {
        let version = self.io().map(|mount| mount.version);
        match (knob, version) {
            (Knob::IoWeight, Ok(Version::V1)) => Value::Amount(10),
            _ => Value::Amount(1),
        }
    }

    /// Whether a disk of this machine heeds weights: by its scheduler (bfq, or cfq before Linux 5.0), or by the cost model
    /// of version 2.
    pub fn are_weights_heeded(&self) -> bool {
        let mut disks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        disks.any(|disk| is_heeding(&bounded(&disk.path().join("queue/scheduler"))))
            || matches!(self.io(), Ok(mount) if has_cost_model(mount))
    }
}

fn has_cost_model(mount: &Hierarchy) -> bool {
    mount.version == Version::V2 && bounded(&mount.at.join("io.cost.qos")).contains("enable=1")
}

/// Whether the scheduler that a disk has, in brackets among those it could have, knows weights.
fn is_heeding(schedulers: &str) -> bool {
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
    use super::{is_heeding, read};
    use crate::cgroup::Value;

    #[test]
    fn the_weight_for_all_disks_is_read() {
        for text in ["100\n", "default 100\n", "default 100\n8:0 7\n8:16 900\n"] {
            assert_eq!(read(text).expect("read"), Value::Amount(100), "{text}");
        }
        for wrong in ["", "default", "default x", "8:0 7\n", "-1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_the_scheduler_in_force_counts() {
        assert!(is_heeding("none mq-deadline [bfq]\n"));
        assert!(is_heeding("noop deadline [cfq]\n"));
        assert!(!is_heeding("[none] mq-deadline kyber bfq\n"));
        assert!(!is_heeding(""));
    }
}
