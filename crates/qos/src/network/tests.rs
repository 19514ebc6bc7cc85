use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use heddle_model::{ControlGroup, PacketMark};

use super::held::Part;
use super::kernel::{Filter, Limited};
use super::testing::{Fake, Records, qdisc};
use super::{Network, OfflinePod, Settings};
use crate::controllers::bandwidth;
use crate::now::Now;

const LINK: u64 = 100_000_000;

fn settings() -> Settings {
    Settings {
        interfaces: vec!["eth0".to_owned()],
        rates: bandwidth::Settings {
            waterline: 20 << 20,
            low: 20 << 20,
            high: 1 << 30,
            link: Some(LINK),
        },
        mark: PacketMark::OFFLINE,
        replace: BTreeSet::new(),
    }
}

/// A node with a pod at veth1, and its network as an agent sees it.
struct Node {
    fake: Fake,
    network: Network<Fake, Records>,
    now: Duration,
}

fn pod() -> OfflinePod {
    OfflinePod {
        name: "batch/crunch".to_owned(),
        group: ControlGroup::new("pods/crunch").expect("a group"),
    }
}

impl Node {
    fn new() -> Self {
        let fake = Fake::default();
        fake.add(2, "eth0", qdisc("fq_codel", 0));
        fake.add(9, "veth1", qdisc("noqueue", 0));
        fake.pods.borrow_mut().insert(pod().group, 9);
        let records = Records::default();
        Node {
            network: Network::new(settings(), fake.clone(), records, BTreeMap::new()),
            fake,
            now: Duration::ZERO,
        }
    }

    fn tick(&mut self) -> Duration {
        self.network.tick(Now {
            since: self.now,
            unix_s: 7,
        })
    }

    /// Ticks for some time, while each class sends at a rate, and the pod receives at one.
    fn run(&mut self, ms: u64, online: u64, offline: u64) -> Duration {
        let end = self.now + Duration::from_millis(ms);
        let mut pause = self.tick();
        while self.now < end {
            self.now += pause;
            let bytes = |rate: u64| rate * u64::try_from(pause.as_millis()).expect("short") / 1_000;
            self.fake.edit(2, |link| {
                link.classes.online += bytes(online);
                link.classes.offline += bytes(offline);
            });
            self.fake
                .edit(9, |link| link.bytes.received += bytes(offline));
            pause = self.tick();
        }
        pause
    }

    fn rate(&self, index: u32) -> u64 {
        self.fake.edit(index, |link| link.filled.expect("ours").1)
    }
}

#[test]
fn an_offline_pod_is_marked_and_shares_what_is_left() {
    let mut node = Node::new();
    assert_eq!(node.tick(), Duration::from_secs(1), "nothing to do");
    assert!(node.network.held().is_empty());
    node.network.set_pods(vec![pod()]);
    node.tick();
    let limited = node.fake.edit(2, |link| link.filled.expect("ours").0);
    assert_eq!(limited, Limited::Marked(PacketMark::OFFLINE));
    assert_eq!(
        node.fake.edit(9, |link| link.filled.expect("ours").0),
        Limited::All
    );
    assert!(
        node.fake
            .edit(9, |link| link.filters.iter().any(Filter::is_ours))
    );

    assert_eq!(node.run(500, 0, 90_000_000), Duration::from_millis(10));
    assert!(node.rate(2) > LINK / 100 * 94, "{}", node.rate(2));
    node.run(30, 60_000_000, 40_000_000);
    assert!(node.rate(2) <= LINK / 50, "{}", node.rate(2));
    node.run(1_000, 50_000_000, 30_000_000);
    let rate = node.rate(2);
    assert!((LINK / 100 * 44..LINK / 100 * 48).contains(&rate), "{rate}");

    // A steady load costs no change, and silence fewer looks.
    let set = node.fake.set.get();
    node.run(1_000, 50_000_000, 30_000_000);
    assert_eq!(node.fake.set.get(), set);
    assert_eq!(node.run(1_200, 50_000_000, 0), Duration::from_millis(100));

    node.network.set_pods(vec![]);
    node.tick();
    assert!(node.network.held().is_empty());
    assert!(node.fake.edit(2, |link| link.filled.is_none()));
    assert!(
        node.fake
            .edit(9, |link| link.filters.is_empty() && link.ingress.is_none())
    );
}

#[test]
fn what_a_pod_receives_follows_too() {
    let mut node = Node::new();
    node.network.set_pods(vec![pod()]);
    let ticks = |node: &mut Node, count: u32, online: u64, offline: u64| {
        for _ in 0..count {
            node.tick();
            node.now += Duration::from_millis(10);
            node.fake
                .edit(2, |link| link.bytes.received += (online + offline) / 100);
            node.fake.edit(9, |link| link.bytes.sent += offline / 100);
        }
        node.tick();
        node.rate(9)
    };
    assert!(ticks(&mut node, 30, 0, 90_000_000) > LINK / 100 * 94);
    assert!(ticks(&mut node, 3, 60_000_000, 40_000_000) <= LINK / 50);
    // Bytes from a pod of the same node come over no interface, and hide none of another's.
    node.fake.edit(9, |link| link.bytes.sent += 500_000_000);
    assert!(ticks(&mut node, 3, 60_000_000, 2_000_000) <= LINK / 50);
}

#[test]
fn what_others_change_is_left_alone_for_a_minute() {
    let mut node = Node::new();
    node.network.set_pods(vec![pod()]);
    node.run(50, 0, 1_000);
    let theirs = qdisc("pfifo", 9);
    let replaced = theirs.clone();
    node.fake
        .edit(2, |link| (link.root, link.filled) = (Some(replaced), None));
    node.fake.edit(9, |link| link.filters.clear());
    node.run(11_000, 0, 1_000);
    assert_eq!(
        node.fake.edit(2, |link| link.root.clone()),
        Some(theirs.clone())
    );
    assert!(node.fake.edit(9, |link| link.filters.is_empty()));
    let root = node
        .network
        .held()
        .keys()
        .find(|key| key.part == Part::Root && key.link.index == 2);
    assert_eq!(root, None);
    // Another program's root stays for good, but a filter that was lost comes back.
    node.run(61_000, 0, 1_000);
    assert_eq!(node.fake.edit(2, |link| link.root.clone()), Some(theirs));
    assert!(
        node.fake
            .edit(9, |link| link.filters.iter().any(Filter::is_ours))
    );

    // The pod is gone, and with it its interface.
    node.fake.links.borrow_mut().remove(&9);
    node.now += Duration::from_secs(1);
    node.tick();
    assert!(node.network.held().is_empty());
}

#[test]
fn what_is_done_is_counted_and_seen() {
    let mut node = Node::new();
    node.network.set_pods(vec![pod()]);
    node.run(500, 10_000_000, 1_000_000);
    let seen = node.network.snapshot();
    let of_offline = |part| seen.changes.get(&("offline", part)).copied();
    let wanted = (Some(2), Some(1), Some(1));
    let found = (
        of_offline("qdisc"),
        of_offline("mark"),
        of_offline("clsact"),
    );
    assert_eq!(found, wanted);
    assert!(seen.counts.writes > 3, "{seen:?}");
    assert_eq!((seen.counts.foreign, seen.counts.failed), (0, 0));
    assert_eq!(seen.not_done, []);
    let [eth0] = &seen.interfaces[..] else {
        panic!("one interface: {seen:?}");
    };
    assert_eq!((eth0.name.as_str(), eth0.limit), ("eth0", node.rate(2)));
    assert!((eth0.online - 10_000_000.0).abs() < 500_000.0, "{eth0:?}");

    // Another program replaces the root of the interface.
    node.fake
        .edit(2, |link| link.root = Some(qdisc("fq", 0x8001)));
    node.run(2_000, 0, 0);
    let foreign = node.network.snapshot();
    assert_eq!((foreign.counts.foreign, foreign.interfaces.len()), (1, 0));
    let [left_alone] = &foreign.not_done[..] else {
        panic!("the interface: {foreign:?}");
    };
    assert_eq!(left_alone.setting, "qdisc of eth0");
    assert!(
        left_alone.why.contains("add eth0 to qos.network.replace"),
        "{left_alone:?}"
    );
    assert!(node.network.restore());
    let after = node.network.snapshot();
    assert!(after.changes.is_empty() && after.counts.writes > foreign.counts.writes);
}
