//! Options of the queueing discipline `htb` (`tc-htb(8)`, include/uapi/linux/pkt_sched.h).

use super::Attributes;

const PARAMETERS: u16 = 1;
const INIT: u16 = 2;
const RATE: u16 = 6;
const CEILING: u16 = 7;
/// The version of the structures.
const VERSION: u32 = 3;
/// `TC_LINKLAYER_ETHERNET`. With it the kernel computes times itself, and needs no table of them.
const ETHERNET: u8 = 1;
/// What a class may send at once after a pause: so many nanoseconds of its rate,
const BURST_NS: u64 = 1_000_000;
/// and at least so many bytes, so that a slow class sends whole packets.
const SHORTEST_BURST: u64 = 16 * 1_024;
/// Bytes that classes of the same order send in turn. There is one class of each.
const QUANTUM: u32 = 60_000;
/// A tick has 64 nanoseconds (`PSCHED_SHIFT`).
const TICK_NS: u64 = 64;

/// Options of a root, with the class of packets that no filter finds (`struct tc_htb_glob`).
pub(super) fn root(default: u32) -> Attributes {
    let numbers = [VERSION, 10, default & 0xffff, 0, 0];
    Attributes::default().with(INIT, &numbers.map(u32::to_ne_bytes).concat())
}

/// Options of a class (`struct tc_htb_opt`). `rate` is in bytes per second; classes of a lower `order` go first.
pub(super) fn class(rate: u64, order: u32) -> Attributes {
    let rate = rate.max(1);
    let of_burst = SHORTEST_BURST.saturating_mul(1_000_000_000) / rate;
    let ticks = (BURST_NS + of_burst) / TICK_NS;
    let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
    let specification = specification(rate);
    let mut options = [specification, specification].concat();
    // What it may send at its rate and at its ceiling, which are the same.
    for number in [ticks, ticks, QUANTUM, 0, order] {
        options.extend_from_slice(&number.to_ne_bytes());
    }
    Attributes::default()
        .with(PARAMETERS, &options)
        .with(RATE, &rate.to_ne_bytes())
        .with(CEILING, &rate.to_ne_bytes())
}

/// `struct tc_ratespec`: no header of the link is added to packets, nor a shortest one assumed.
fn specification(rate: u64) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[1] = ETHERNET;
    let rate = u32::try_from(rate).unwrap_or(u32::MAX);
    bytes[8..].copy_from_slice(&rate.to_ne_bytes());
    bytes
}
