//! A store that is written, emptied and compacted, behind a network that fails, page by page and change by change.
//! Invariants: once every message was received, exactly the live, valid providers are known; while nothing is received,
//! no provider is removed.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

/// One event of the simulation.
#[derive(Debug, Clone)]
enum Step {
    /// A key is written: its number, whether the value is valid, and the lease.
    Put(u8, bool, i64),
    Delete(u8),
    /// etcd compacts: the watch fails, and a new list is needed.
    Compact,
    /// The connection fails, or is restored.
    Lose,
    /// The store loses all data.
    Empty,
    /// This many messages are received.
    Hear(u8),
    /// Time passes, in quarters of the grace.
    Wait(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..6_u8, prop::bool::weighted(0.8), 1..3_i64)
            .prop_map(|(name, is_right, lease)| Step::Put(name, is_right, lease)),
        3 => (0..6_u8).prop_map(Step::Delete),
        1 => Just(Step::Compact),
        1 => Just(Step::Lose),
        1 => Just(Step::Empty),
        6 => (1..4_u8).prop_map(Step::Hear),
        1 => (0..5_u8).prop_map(Step::Wait),
    ]
}

type Store = BTreeMap<Vec<u8>, Kv>;

struct World {
    core: Core,
    now: Instant,
    next: Next,
    connected: bool,
    store: Store,
    revision: i64,
    /// The store's content at each revision.
    at: BTreeMap<i64, Store>,
    /// Changes that the watch has not delivered yet.
    pending: VecDeque<(i64, Change)>,
    was_compacted: bool,
    /// The content that was passed on last.
    passed_on: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Every valid value that a key ever had, with its lease and the revision that created the key.
    ever: Vec<(Vec<u8>, Vec<u8>, i64, i64)>,
    was_emptied: bool,
}

impl World {
    fn new() -> Self {
        let mut core = Core::new(Layout::default());
        World {
            next: core.begin(),
            core,
            now: Instant::now(),
            connected: true,
            store: Store::new(),
            revision: 1,
            at: BTreeMap::from([(1, Store::new())]),
            pending: VecDeque::new(),
            was_compacted: false,
            passed_on: BTreeMap::new(),
            ever: Vec::new(),
            was_emptied: false,
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Put(name, is_right, lease) => self.put(*name, *is_right, *lease),
            Step::Delete(name) => {
                let key = key(&format!("k{name}"));
                if self.store.remove(&key).is_some() {
                    let modified = self.revision + 1;
                    self.commit(Change::Delete { key, modified });
                }
            }
            Step::Compact => self.was_compacted = true,
            Step::Lose => {
                let before = self.passed_on.clone();
                self.connected = !self.connected;
                self.reconnect();
                self.pass_on();
                let is_same = before == self.passed_on;
                assert!(is_same || self.was_emptied, "silence removes nothing");
            }
            Step::Empty => {
                self.store.clear();
                self.revision = 1;
                self.at = BTreeMap::from([(1, Store::new())]);
                self.pending.clear();
                self.was_emptied = true;
                // An emptied store was restarted, so the connection is lost, too.
                self.reconnect();
            }
            Step::Hear(messages) => (0..*messages).for_each(|_| self.hear()),
            Step::Wait(parts) => self.now += GRACE / 4 * u32::from(*parts),
        }
        self.core.expire(self.now);
        self.core.check_invariants();
        self.pass_on();
    }

    fn reconnect(&mut self) {
        self.core.lost();
        if self.connected {
            self.next = self.core.begin();
        }
    }

    fn put(&mut self, name: u8, is_right: bool, lease: i64) {
        let modified = self.revision + 1;
        let key = key(&format!("k{name}"));
        let created = self.store.get(&key).map_or(modified, |kv| kv.created);
        let port = u16::try_from(modified).expect("few revisions");
        let value = match is_right {
            true => value(port),
            false => b"{}".to_vec(),
        };
        if is_right {
            let right = (key.clone(), value.clone(), lease, created);
            self.ever.push(right);
        }
        let kv = Kv {
            key: key.clone(),
            value,
            lease,
            created,
            modified,
        };
        self.store.insert(key, kv.clone());
        self.commit(Change::Put(kv));
    }

    fn commit(&mut self, change: Change) {
        self.revision += 1;
        self.at.insert(self.revision, self.store.clone());
        self.pending.push_back((self.revision, change));
    }

    /// One answer of etcd.
    fn hear(&mut self) {
        if !self.connected {
            return;
        }
        match self.next.clone() {
            Next::List { from, revision } => {
                let revision = match revision {
                    0 => self.revision,
                    revision => revision,
                };
                let store = self.at.get(&revision).expect("what was listed before");
                let mut kvs = store.range(from..).map(|(_, kv)| kv.clone());
                let page = Page {
                    cluster: CLUSTER,
                    revision,
                    kvs: kvs.by_ref().take(2).collect(),
                    more: kvs.next().is_some(),
                };
                self.next = self.core.page(self.now, page);
            }
            Next::Watch { .. } if std::mem::take(&mut self.was_compacted) => {
                self.next = self.core.begin();
            }
            Next::Watch { revision } => {
                self.pending.retain(|(at, _)| *at >= revision);
                if let Some((at, change)) = self.pending.pop_front() {
                    // A change delivered twice has no further effect.
                    self.core.changed(at, vec![change.clone(), change]);
                }
            }
        }
    }

    fn pass_on(&mut self) {
        let Some(providers) = self.core.providers() else {
            return;
        };
        let layout = Layout::default();
        let entries = providers.entries.iter();
        let known = entries.map(|entry| (layout.key(&entry.key).into_bytes(), entry.value.clone()));
        self.passed_on = known.collect();
    }

    /// Receives every pending message.
    fn settle(&mut self) {
        if !self.connected {
            self.take(&Step::Lose);
        }
        // Each answer is a page of two keys, a compaction, or a change.
        for _ in 0..1_000 {
            self.hear();
        }
        assert!(matches!(self.next, Next::Watch { .. }) && self.pending.is_empty());
        self.pass_on();
    }

    fn check(&self) {
        for (key, value) in &self.passed_on {
            match self.store.get(key) {
                Some(kv) if kv.value == *value => {}
                Some(kv) => {
                    assert_eq!(
                        kv.value, b"{}",
                        "a right value takes the place of any other"
                    );
                    let earlier = (key.clone(), value.clone(), kv.lease, kv.created);
                    let is_earlier = self.ever.contains(&earlier);
                    assert!(is_earlier, "the last good value has its lease's life");
                }
                None => assert!(self.was_emptied, "who is gone is gone"),
            }
        }
        for (key, kv) in self.store.iter().filter(|(_, kv)| kv.value != b"{}") {
            assert_eq!(
                self.passed_on.get(key),
                Some(&kv.value),
                "who lives is known"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_living_provider_is_known_and_no_other(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
        }
        world.settle();
        world.check();
        // Entries that a store has lost expire in the end.
        world.take(&Step::Wait(8));
        for key in world.passed_on.keys() {
            prop_assert!(world.store.contains_key(key), "who is gone is gone in the end");
        }
    }
}
