//! The packet filter rules of a pod, in the syntax of nft(8).

use std::fmt::{Display, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use heddle_model::Cidr;

use crate::hooks::Range;
use crate::routes::{MARK, OWN_MARK};
use crate::{Exclude, Fate, PortRange};

#[cfg(test)]
mod tests;

/// What the rules do with a pod's traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Connections are steered to the listeners.
    Steered,
    /// Traffic is refused.
    Refused,
    /// Traffic passes untouched.
    Released,
}

impl From<Fate> for State {
    fn from(fate: Fate) -> Self {
        match fate {
            Fate::Refuse => State::Refused,
            Fate::Pass => State::Released,
        }
    }
}

/// The address ranges of the mesh as disjoint intervals that do not touch, both ends included.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mesh {
    v4: Vec<(u128, u128)>,
    v6: Vec<(u128, u128)>,
}

/// The fixed inputs for a pod's rules.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) outbound_port: u16,
    pub(super) inbound_port: u16,
    pub(super) exclude: Exclude,
}

impl Mesh {
    pub(super) fn new(ranges: &[Range]) -> Self {
        let of = |is_v4: bool| {
            let family = ranges
                .iter()
                .filter(|range| range.network.network().is_ipv4() == is_v4);
            intervals(family)
        };
        Mesh {
            v4: of(true),
            v6: of(false),
        }
    }
}

/// Converts nested ranges to intervals. Two networks are either nested or disjoint. So, sorted by first address with
/// wider ones first, each network lies within the networks that are still open on a stack.
fn intervals<'a>(ranges: impl Iterator<Item = &'a Range>) -> Vec<(u128, u128)> {
    let mut ranges: Vec<_> = ranges
        .map(|range| (ends(range.network), range.inside))
        .collect();
    ranges.sort_by_key(|((first, last), _)| (*first, u128::MAX - last));
    let mut done = Vec::new();
    // Last addresses of the open networks, and whether they belong to the mesh.
    let mut open: Vec<(u128, bool)> = Vec::new();
    // All addresses below this one are done.
    let mut from = 0;
    for ((first, last), is_inside) in ranges {
        close(&mut open, &mut from, &mut done, |end| end < first);
        if let Some((_, true)) = open.last()
            && from < first
        {
            add(&mut done, from, first - 1);
        }
        from = first;
        open.push((last, is_inside));
    }
    close(&mut open, &mut from, &mut done, |_| true);
    done
}

/// Closes the open networks whose end `is_over`.
fn close(
    open: &mut Vec<(u128, bool)>,
    from: &mut u128,
    done: &mut Vec<(u128, u128)>,
    is_over: impl Fn(u128) -> bool,
) {
    while let Some((end, is_inside)) = open.pop_if(|(end, _)| is_over(*end)) {
        if is_inside && *from <= end {
            add(done, *from, end);
        }
        *from = (*from).max(end.saturating_add(1));
    }
}

/// Appends an interval, or extends the last one if they touch.
fn add(done: &mut Vec<(u128, u128)>, first: u128, last: u128) {
    match done.last_mut() {
        Some((_, end)) if end.checked_add(1) == Some(first) => *end = last,
        _ => done.push((first, last)),
    }
}

/// The first and the last address of a network.
fn ends(cidr: Cidr) -> (u128, u128) {
    let (first, bits) = match cidr.network() {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32),
        IpAddr::V6(v6) => (u128::from(v6), 128),
    };
    let free = bits - u32::from(cidr.prefix()).min(bits);
    (
        first,
        first | u128::MAX.checked_shr(128 - free).unwrap_or(0),
    )
}

impl Rules {
    /// The rules for a state. They replace the existing ones in one transaction.
    pub(super) fn write(&self, mesh: &Mesh, state: State) -> String {
        let mut text =
            String::from("table inet heddle\ndelete table inet heddle\ntable inet heddle {\n");
        match state {
            State::Steered => self.steer(&mut text, mesh),
            State::Refused => self.refuse(&mut text, mesh),
            State::Released => text.push_str(STAY),
        }
        text.push_str("}\n");
        text
    }

    fn steer(&self, text: &mut String, mesh: &Mesh) {
        let port = self.outbound_port;
        let _ = writeln!(text, "chain dial {{\ntype nat hook output priority -100");
        let _ = writeln!(text, "meta l4proto != tcp return");
        self.except_outbound(text);
        for daddr in of_mesh(mesh, "daddr") {
            let _ = writeln!(text, "{daddr} meta l4proto tcp redirect to :{port}");
        }
        let _ = writeln!(
            text,
            "}}\nchain arrive {{\ntype filter hook prerouting priority -150"
        );
        self.except_inbound(text);
        let port = self.inbound_port;
        // Packets of the pod's outbound connections are not marked, so the rules below do not match them.
        let _ = writeln!(text, "{OPENS} ct mark set {MARK}");
        for family in ["ip", "ip6"] {
            let _ = writeln!(
                text,
                "ct mark {MARK} meta l4proto tcp tproxy {family} to :{port} accept"
            );
        }
        // Reached when the listener is gone: the connection must not reach the pod's program then.
        let _ = writeln!(text, "{OPENS} reject with tcp reset\n}}");
    }

    fn refuse(&self, text: &mut String, mesh: &Mesh) {
        text.push_str(STAY);
        let _ = writeln!(text, "chain refuse {{\ntype filter hook output priority 0");
        let _ = writeln!(text, "meta l4proto tcp ct state != new return");
        self.except_outbound(text);
        for daddr in of_mesh(mesh, "daddr") {
            let _ = writeln!(text, "{daddr} meta l4proto tcp reject with tcp reset");
        }
        // Other protocols have no connections: their packets are refused whatever was sent before.
        let _ = writeln!(text, "{CONNECTIONS} return\nudp dport 53 return");
        // Replies from an excluded inbound port must pass.
        except(
            text,
            "th sport",
            ports(&self.exclude.inbound_ports),
            "return",
        );
        for daddr in of_mesh(mesh, "daddr") {
            let _ = writeln!(text, "{daddr} reject");
        }
        let _ = writeln!(
            text,
            "}}\nchain arrive {{\ntype filter hook prerouting priority -150"
        );
        self.except_inbound(text);
        let _ = writeln!(text, "{OPENS} reject with tcp reset\n}}");
        self.deafen(text, mesh);
    }

    /// Drops datagrams that arrive, except replies to allowed requests of the pod.
    fn deafen(&self, text: &mut String, mesh: &Mesh) {
        let _ = writeln!(text, "chain hear {{\ntype filter hook input priority -150");
        let _ = writeln!(text, "iifname lo return\n{CONNECTIONS} return");
        let _ = writeln!(text, "udp sport 53 {ASKED}");
        except(
            text,
            "th dport",
            ports(&self.exclude.inbound_ports),
            "return",
        );
        except(text, "th sport", ports(&self.exclude.outbound_ports), ASKED);
        self.except_networks(text, "saddr");
        for saddr in of_mesh(mesh, "saddr") {
            let _ = writeln!(text, "{saddr} drop");
        }
        text.push_str("}\n");
    }

    /// Exempts outbound traffic that is not to be intercepted.
    fn except_outbound(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "oifname lo return\nmeta mark {{ {MARK}, {OWN_MARK} }} return"
        );
        except(
            text,
            "th dport",
            ports(&self.exclude.outbound_ports),
            "return",
        );
        self.except_networks(text, "daddr");
    }

    /// Exempts excluded networks. `end` is `saddr` or `daddr`.
    fn except_networks(&self, text: &mut String, end: &str) {
        let networks = &self.exclude.outbound_networks;
        let (v4, v6): (Vec<Cidr>, Vec<Cidr>) =
            networks.iter().partition(|cidr| cidr.network().is_ipv4());
        // One rule each, because the elements of a set must not overlap.
        for (family, networks) in [("ip", v4), ("ip6", v6)] {
            for network in networks {
                let _ = writeln!(text, "{family} {end} {network} return");
            }
        }
    }

    /// Exempts inbound traffic that is not to be intercepted.
    fn except_inbound(&self, text: &mut String) {
        let _ = writeln!(text, "iifname lo return\nmeta l4proto != tcp return");
        except(
            text,
            "tcp dport",
            ports(&self.exclude.inbound_ports),
            "return",
        );
        // Matches the addresses that the pod has at that time. Link-local addresses are exempt, as with BPF programs.
        text.push_str("fib daddr type != local return\n");
        text.push_str("ip daddr 169.254.0.0/16 return\nip6 daddr fe80::/10 return\n");
    }
}

/// Matches the first packet (SYN) of a connection.
const OPENS: &str = "tcp flags & (fin | syn | rst | ack) == syn";

/// Redirected connections are only translated further while a nat chain exists, and a rule that uses connection
/// tracking.
const STAY: &str =
    "chain dial {\ntype nat hook output priority -100\nct state established return\n}\n";

/// TCP, which is decided when a connection begins, and ICMP, which carries no data of programs.
const CONNECTIONS: &str = "meta l4proto { tcp, icmp, ipv6-icmp }";

/// Passes packets of flows that the pod has started.
const ASKED: &str = "ct state established return";

/// Writes one rule for each range, because the elements of a set must not overlap.
fn except(text: &mut String, what: &str, ranges: impl Iterator<Item = String>, then: &str) {
    for range in ranges {
        let _ = writeln!(text, "{what} {range} {then}");
    }
}

fn ports(ranges: &[PortRange]) -> impl Iterator<Item = String> {
    ranges.iter().map(PortRange::to_string)
}

/// Matches for packets to the mesh (`daddr`) or from it (`saddr`), one for each address family of the mesh.
fn of_mesh(mesh: &Mesh, end: &str) -> impl Iterator<Item = String> {
    let v4 = mesh.v4.iter().map(|(first, last)| {
        let address = |bits: u128| Ipv4Addr::from(u32::try_from(bits).unwrap_or(u32::MAX));
        interval(address(*first), address(*last))
    });
    let v6 = mesh
        .v6
        .iter()
        .map(|(first, last)| interval(Ipv6Addr::from(*first), Ipv6Addr::from(*last)));
    let families = [("ip", v4.collect::<Vec<_>>()), ("ip6", v6.collect())];
    families
        .into_iter()
        .filter(|(_, intervals)| !intervals.is_empty())
        .map(move |(family, intervals)| format!("{family} {end} {{ {} }}", intervals.join(", ")))
}

fn interval<T: Display + PartialEq + Copy>(first: T, last: T) -> String {
    match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    }
}
