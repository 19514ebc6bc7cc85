use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use heddle_model::Class;
use proptest::prelude::*;

use super::journal::{Record, Store};
use super::{Arbiter, Change, Held, Key, Refusal, Restored, Step};
use crate::cgroup::testing::Fake;
use crate::cgroup::{ControlGroup, Knob, Value};

/// Records in memory, which a kill stops together with the groups.
#[derive(Debug, Default, Clone)]
struct Records {
    all: Vec<Record>,
    steps_left: Option<Rc<Cell<u32>>>,
    /// Whether the disk is full: nothing more fits, and a file can only become shorter.
    is_full: bool,
}

impl Records {
    fn held(&self) -> BTreeMap<Key, Held> {
        let mut held = BTreeMap::new();
        for record in &self.all {
            match record.clone() {
                Record::Set(key, of) => drop(held.insert(key, of)),
                Record::Drop(key) => drop(held.remove(&key)),
            }
        }
        held
    }
}

impl Store for Records {
    fn append(&mut self, record: &Record) -> io::Result<()> {
        Fake::step(self.steps_left.as_ref())?;
        if self.is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.all.push(record.clone());
        Ok(())
    }

    fn replace(&mut self, held: &BTreeMap<Key, Held>) -> io::Result<()> {
        Fake::step(self.steps_left.as_ref())?;
        let held = held.clone().into_iter();
        self.all = held.map(|(key, of)| Record::Set(key, of)).collect();
        Ok(())
    }

    fn is_long(&self, held: usize) -> bool {
        self.all.len() > held + 5
    }
}

fn key(group: &str, knob: Knob) -> Key {
    Key {
        group: ControlGroup::new(group).expect("a group"),
        knob,
    }
}

fn step(group: &str, knob: Knob, value: Value) -> Step {
    Step {
        key: key(group, knob),
        value,
    }
}

fn change(steps: &[Step]) -> Change {
    Change {
        pod: "batch/crunch".to_owned(),
        class: Class::Offline,
        why: "a test".to_owned(),
        steps: steps.to_vec(),
    }
}

/// Two pods with a container each.
fn groups() -> Fake {
    let mut groups = Fake::default();
    for (group, quota) in [("p/a", 100), ("p/a/c", 100), ("p/b", 200), ("p/b/c", 150)] {
        let group = ControlGroup::new(group).expect("a group");
        groups.set(&group, Knob::CpuShare, Value::Amount(512));
        groups.set(&group, Knob::CpuQuota, Value::Amount(quota));
        groups.set(&group, Knob::CpuBurst, Value::Amount(0));
    }
    groups
}

fn arbiter(groups: Fake) -> Arbiter<Fake, Records> {
    Arbiter::new(groups, Records::default(), BTreeMap::new())
}

/// The changes that an agent makes over some time, and what other programs do meanwhile.
fn life() -> Vec<Change> {
    use Knob::{CpuBurst, CpuQuota, CpuShare};
    vec![
        change(&[step("p/a", CpuShare, Value::Idle)]),
        change(&[
            step("p/b/c", CpuQuota, Value::Amount(240)),
            step("p/b", CpuQuota, Value::Amount(290)),
        ]),
        change(&[step("p/b/c", CpuBurst, Value::Amount(50))]),
        change(&[
            step("p/b", CpuQuota, Value::Amount(250)),
            step("p/b/c", CpuQuota, Value::Amount(200)),
        ]),
        change(&[step("p/a", CpuShare, Value::Amount(512))]),
        change(&[step("p/b", CpuShare, Value::Idle)]),
    ]
}

#[test]
fn quotas_are_raised_from_the_root_and_lowered_from_the_leaves() {
    let mut arbiter = arbiter(groups());
    for change in life() {
        arbiter.apply(&change, 7).expect("the kernel takes it");
    }
    let quota = |group| {
        arbiter
            .groups()
            .get(&ControlGroup::new(group).expect("a group"), Knob::CpuQuota)
    };
    assert_eq!(quota("p/b"), Value::Amount(250));
    assert_eq!(quota("p/b/c"), Value::Amount(200));
    let held = &arbiter.held()[&key("p/b", Knob::CpuQuota)];
    assert_eq!(held.original, Value::Amount(200));
    assert_eq!(
        (held.since_s, held.ours.as_slice()),
        (7, &[Value::Amount(250)][..])
    );
    assert!(!arbiter.held().contains_key(&key("p/a", Knob::CpuShare)));
}

#[test]
fn a_change_that_the_kernel_refuses_in_part_is_taken_back() {
    let before = groups();
    let mut arbiter = arbiter(before.clone());
    // The container's would be above the pod's.
    let steps = [
        step("p/b", Knob::CpuQuota, Value::Amount(220)),
        step("p/b/c", Knob::CpuQuota, Value::Amount(230)),
    ];
    let refused = arbiter.apply(&change(&steps), 0);
    assert!(matches!(refused, Err(Refusal::Failed(of, _)) if of == steps[1].key));
    assert_eq!(arbiter.groups().values, before.values);
    assert!(arbiter.held().is_empty());
}

#[test]
fn what_another_program_writes_stays_and_counts_as_the_original() {
    let mut arbiter = arbiter(groups());
    let of_b = key("p/b", Knob::CpuQuota);
    let to = |us| change(&[step("p/b", Knob::CpuQuota, Value::Amount(us))]);
    arbiter.apply(&to(300), 0).expect("taken");
    arbiter
        .groups
        .set(&of_b.group, Knob::CpuQuota, Value::Amount(400));
    let refused = arbiter.apply(&to(310), 0);
    assert!(matches!(
        refused,
        Err(Refusal::Foreign(_, Value::Amount(400)))
    ));
    assert_eq!(arbiter.original(&of_b).expect("there"), Value::Amount(400));

    arbiter.apply(&to(420), 0).expect("taken");
    arbiter
        .groups
        .set(&of_b.group, Knob::CpuQuota, Value::Amount(410));
    let given_up = arbiter.begin_sweep();
    arbiter.end_sweep();
    assert!(matches!(
        given_up[..],
        [(_, Restored::Foreign(Value::Amount(410)))]
    ));
    assert!(arbiter.restore_all().is_empty());
    assert_eq!(
        arbiter.groups().get(&of_b.group, Knob::CpuQuota),
        Value::Amount(410)
    );
}

#[test]
fn a_group_that_was_made_anew_is_left_alone() {
    let mut arbiter = arbiter(groups());
    let of_a = key("p/a", Knob::CpuShare);
    let idle = change(&[step("p/a", Knob::CpuShare, Value::Idle)]);
    arbiter.apply(&idle, 0).expect("taken");
    arbiter.groups.inodes.insert(of_a.group.clone(), 2);
    assert!(matches!(arbiter.restore(&of_a), Restored::Gone));
    assert_eq!(
        arbiter.groups().get(&of_a.group, Knob::CpuShare),
        Value::Idle
    );

    arbiter.groups.values.clear();
    assert!(matches!(arbiter.apply(&idle, 0), Err(Refusal::Gone(_))));
}

/// Kills a process at each step of its life, and lets the next one put everything back.
#[test]
fn after_a_kill_at_any_step_everything_is_put_back() {
    let original = groups();
    for steps in 0..200 {
        let left = Rc::new(Cell::new(steps));
        let mut groups = original.clone();
        groups.steps_left = Some(left.clone());
        let records = Records {
            steps_left: Some(left.clone()),
            ..Records::default()
        };
        let mut arbiter = Arbiter::new(groups, records, BTreeMap::new());
        for change in life() {
            let _killed = arbiter.apply(&change, 0);
        }
        let _killed = arbiter.restore_all();
        let was_killed = left.get() == 0;

        left.set(u32::MAX);
        let held = arbiter.store.held();
        let mut next = Arbiter::new(arbiter.groups, arbiter.store, held);
        for (key, _, done) in next.restore_all() {
            assert!(matches!(done, Restored::Done), "{steps}: {key}: {done:?}");
        }
        assert_eq!(next.groups().values, original.values, "after {steps} steps");
        assert!(next.held().is_empty());
        if !was_killed {
            assert!(steps > 40, "there were steps to be killed at");
            return;
        }
    }
    panic!("the process never came to its end");
}

#[derive(Debug, Clone)]
enum Event {
    Apply(usize),
    Foreign(usize, u64),
    Restore,
    Killed(u32),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        (0..6usize).prop_map(Event::Apply),
        (0..4usize, 1..5u64).prop_map(|(group, hundreds)| Event::Foreign(group, hundreds * 100)),
        Just(Event::Restore),
        (0..9u32).prop_map(Event::Killed),
    ];
    prop::collection::vec(event, 0..40)
}

proptest! {
    /// Whatever happens in whatever order: at the end each knob has what was found, or what another program last wrote.
    #[test]
    fn no_value_of_another_program_is_lost(events in events()) {
        let mut groups = groups();
        let left = Rc::new(Cell::new(u32::MAX));
        groups.steps_left = Some(left.clone());
        let mut right = groups.values.clone();
        let records = Records { steps_left: Some(left.clone()), ..Records::default() };
        let mut arbiter = Arbiter::new(groups, records, BTreeMap::new());
        let names = ["p/a", "p/a/c", "p/b", "p/b/c"];
        for event in events {
            match event {
                Event::Apply(number) => drop(arbiter.apply(&life()[number], 0)),
                Event::Foreign(group, us) => {
                    let group = ControlGroup::new(names[group]).expect("a group");
                    // A burst is at most the quota, and quotas of children at most those of parents: any other writer
                    // has to obey the same kernel. Shares are free.
                    if arbiter.groups.get(&group, Knob::CpuShare) != Value::Idle {
                        arbiter.groups.set(&group, Knob::CpuShare, Value::Amount(us + 1));
                        right.insert((group, Knob::CpuShare), Value::Amount(us + 1));
                    }
                }
                Event::Restore => drop(arbiter.restore_all()),
                Event::Killed(steps) => {
                    left.set(steps);
                    for change in life() {
                        drop(arbiter.apply(&change, 0));
                    }
                    left.set(u32::MAX);
                    let held = arbiter.store.held();
                    arbiter = Arbiter::new(arbiter.groups, arbiter.store, held);
                }
            }
        }
        for (key, _, done) in arbiter.restore_all() {
            prop_assert!(!matches!(done, Restored::Failed(_)), "{key}: {done:?}");
        }
        prop_assert_eq!(&arbiter.groups().values, &right);
    }
}

#[test]
fn a_full_disk_holds_up_no_way_back() {
    let found = groups();
    let mut arbiter = arbiter(found.clone());
    for change in life() {
        arbiter.apply(&change, 7).expect("the kernel takes it");
    }
    arbiter.store.is_full = true;
    // Nothing new is changed that the journal could not say.
    let more = change(&[step("p/b/c", Knob::CpuBurst, Value::Amount(60))]);
    let refused = arbiter.apply(&more, 8);
    assert!(matches!(refused, Err(Refusal::Failed(..))), "{refused:?}");
    for (key, _, done) in arbiter.restore_all() {
        assert!(matches!(done, Restored::Done), "{key}: {done:?}");
    }
    assert_eq!(arbiter.groups().values, found.values);
    assert!(arbiter.held().is_empty() && arbiter.store.all.is_empty());
}

#[test]
fn the_first_change_says_since_when() {
    let mut arbiter = arbiter(groups());
    let of_b = key("p/b", Knob::CpuQuota);
    for (us, at_s) in [(250, 7), (260, 8)] {
        let change = change(&[step("p/b", Knob::CpuQuota, Value::Amount(us))]);
        arbiter.apply(&change, at_s).expect("taken");
    }
    assert_eq!(arbiter.held()[&of_b].since_s, 7);
}

#[test]
fn what_is_written_and_refused_is_counted() {
    let mut arbiter = arbiter(groups());
    let counts = |arbiter: &Arbiter<Fake, Records>| {
        let counts = arbiter.counts();
        (counts.writes, counts.foreign, counts.failed)
    };
    let idle = change(&[step("p/a", Knob::CpuShare, Value::Idle)]);
    arbiter.apply(&idle, 7).expect("the kernel takes it");
    // It is there already.
    arbiter.apply(&idle, 8).expect("nothing is written");
    assert_eq!(counts(&arbiter), (1, 0, 0));

    let a = ControlGroup::new("p/a").expect("a group");
    arbiter.groups.set(&a, Knob::CpuShare, Value::Amount(9));
    assert_eq!(arbiter.begin_sweep().len(), 1);
    assert_eq!(counts(&arbiter), (1, 1, 0));

    // A quota of a container above that of its pod.
    let refused = change(&[step("p/b/c", Knob::CpuQuota, Value::Amount(900))]);
    let done = arbiter.apply(&refused, 9);
    assert!(matches!(done, Err(Refusal::Failed(..))), "{done:?}");
    assert_eq!(counts(&arbiter), (1, 1, 1));

    arbiter.apply(&idle, 10).expect("the kernel takes it");
    arbiter.restore_all();
    assert_eq!(counts(&arbiter), (3, 1, 1));
}

/// Plans of a sweep are made of what was read at its start; what is written is compared with the file.
#[test]
fn a_value_that_another_program_writes_within_a_sweep_is_not_overwritten() {
    let mut arbiter = arbiter(groups());
    let of_b = key("p/b", Knob::CpuQuota);
    let to = |us| change(&[step("p/b", Knob::CpuQuota, Value::Amount(us))]);
    arbiter.apply(&to(300), 0).expect("taken");
    assert!(arbiter.begin_sweep().is_empty());
    assert_eq!(arbiter.value(&of_b).expect("there"), Value::Amount(300));
    let theirs = Value::Amount(310);
    arbiter.groups.set(&of_b.group, Knob::CpuQuota, theirs);
    let refused = arbiter.apply(&to(320), 1);
    assert!(matches!(refused, Err(Refusal::Foreign(_, value)) if value == theirs));
    arbiter.end_sweep();
    assert_eq!(arbiter.value(&of_b).expect("there"), theirs);
    // One's own writes are seen within the sweep.
    assert!(arbiter.begin_sweep().is_empty());
    arbiter.apply(&to(330), 2).expect("taken");
    assert_eq!(arbiter.value(&of_b).expect("there"), Value::Amount(330));
}
