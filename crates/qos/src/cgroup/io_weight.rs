//! Weights of disks: which file has one, and how it is written.
//!
//! Sources: Documentation/admin-guide/cgroup-v2.rst (`io.weight`), Documentation/block/bfq-iosched.rst,
//! Documentation/cgroup-v1/blkio-controller.txt of Linux 4.20 (`blkio.weight`).

use std::io;

use super::mounts::Version;
use super::value::number;
use super::{Knob, Value};

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

#[cfg(test)]
mod tests {
    use super::read;
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
}
