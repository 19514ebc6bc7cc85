use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use heddle_model::PacketMark;

use super::{About, Keeper, Refusal, Restored};
use crate::cgroup;
use crate::network::held::Part;
use crate::network::kernel::{Filter, Kernel, Limited, Link};
use crate::network::system::TrafficControl;
use crate::network::testing::{Fake, FakeLink, Killable, Records, in_namespace, qdisc, run};

const ABOUT: About<'_> = About {
    pod: "a/b",
    why: "a test",
    since_s: 7,
};

fn replace() -> BTreeSet<String> {
    BTreeSet::from(["eth1".to_owned()])
}

/// A node: an uplink with the kernel's root, one with another program's that may be replaced, and a pod.
fn node() -> (Fake, [Link; 3]) {
    let fake = Fake::default();
    let links = [
        fake.add(2, "eth0", qdisc("noqueue", 0)),
        fake.add(3, "eth1", qdisc("fq", 0x8001)),
        fake.add(9, "veth1", qdisc("noqueue", 0)),
    ];
    (fake, links)
}

fn keeper<K: Kernel>(kernel: K, records: &Records) -> Keeper<K, Records> {
    Keeper::new(kernel, records.clone(), records.held(), replace())
}

/// What an agent does to a node in its life. Stops where the process is killed.
fn life<K: Kernel>(
    keeper: &mut Keeper<K, Records>,
    [eth0, eth1, veth]: &[Link; 3],
) -> Result<(), Refusal> {
    let marked = Limited::Marked(PacketMark::OFFLINE);
    keeper.shape(eth0, marked, 1_000, ABOUT)?;
    keeper.shape(eth1, marked, 1_000, ABOUT)?;
    keeper.mark(veth, PacketMark::OFFLINE, ABOUT)?;
    keeper.shape(veth, Limited::All, 1_000, ABOUT)?;
    // The pod becomes another one's.
    for part in [Part::Marker, Part::Clsact, Part::Root] {
        let key = keeper.key(veth, part);
        if let Restored::Failed(error) = keeper.restore(&key) {
            return Err(Refusal::Failed(key, error));
        }
    }
    keeper.mark(veth, PacketMark::OFFLINE, ABOUT)?;
    Ok(())
}

#[test]
fn roots_of_other_programs_stay_unless_they_may_be_replaced() {
    let (fake, [eth0, eth1, veth]) = node();
    let records = Records::default();
    let mut keeper = keeper(fake.clone(), &records);
    for kept in [qdisc("mq", 0), qdisc("fq_codel", 0x8002), qdisc("htb", 1)] {
        fake.edit(2, |link| link.root = Some(kept.clone()));
        let refused = keeper.shape(&eth0, Limited::All, 1, ABOUT);
        let Err(refusal @ Refusal::Foreign(..)) = refused else {
            panic!("{refused:?}")
        };
        assert!(
            refusal.to_string().contains("qos.network.replace"),
            "{refusal}"
        );
        assert_eq!(fake.edit(2, |link| link.root.clone()), Some(kept));
    }
    // What has classes cannot be put back, even if it may be replaced.
    fake.edit(3, |link| link.root = Some(qdisc("htb", 1)));
    assert!(keeper.shape(&eth1, Limited::All, 1, ABOUT).is_err());
    for kept in [qdisc("mq", 0), qdisc("fq", 0x8002)] {
        fake.edit(3, |link| link.root = Some(kept.clone()));
        assert!(
            keeper
                .shape(&eth1, Limited::All, 1, ABOUT)
                .expect("replaced")
        );
        assert!(!keeper.shape(&eth1, Limited::All, 1, ABOUT).expect("there"));
        keeper.restore_all();
        let root = fake.edit(3, |link| link.root.clone()).expect("one");
        assert!(root == kept || root.handle == 0, "{root}");
    }
    assert!(keeper.held().is_empty() && records.held().is_empty());
    assert!(fake.edit(veth.index, |link| link.ingress.is_none()));
}

#[test]
fn a_hook_with_filters_of_another_program_stays() {
    let (fake, [_, _, veth]) = node();
    let records = Records::default();
    let mut keeper = keeper(fake.clone(), &records);
    keeper
        .mark(&veth, PacketMark::OFFLINE, ABOUT)
        .expect("marked");
    let theirs = Filter {
        is_egress: false,
        kind: "bpf".to_owned(),
        priority: 1,
        handle: 1,
        name: "cil_from_container".to_owned(),
    };
    fake.edit(9, |link| link.filters.push(theirs.clone()));
    let done = keeper.restore_all();
    assert!(
        matches!(
            &done[..],
            [(_, _, Restored::Done), (_, _, Restored::Foreign(_))]
        ),
        "{done:?}"
    );
    assert_eq!(fake.edit(9, |link| link.filters.clone()), [theirs]);
    assert!(keeper.held().is_empty());

    // The hook is another program's now: ours alone is removed.
    keeper
        .mark(&veth, PacketMark::OFFLINE, ABOUT)
        .expect("marked");
    fake.edit(9, |link| link.filters.retain(Filter::is_ours));
    keeper.restore_all();
    assert!(fake.edit(9, |link| link.ingress.is_some() && link.filters.is_empty()));
}

#[test]
fn what_is_ours_is_known_without_the_journal() {
    let (fake, links) = node();
    life(&mut keeper(fake.clone(), &Records::default()), &links).expect("done");
    let records = Records::default();
    let mut again = keeper(fake.clone(), &records);
    life(&mut again, &links).expect("done");
    assert_eq!(
        again.held().len(),
        3,
        "the hook counts as another program's"
    );
    again.restore_all();
    let (before, _) = node();
    for (index, link) in before.links.borrow().iter() {
        let mut now = fake.edit(*index, |link| link.clone());
        now.ingress = None;
        let mut wanted = link.clone();
        // Without the journal nothing is known of the root that was replaced.
        if *index == 3 {
            wanted.root = Some(qdisc("noqueue", 0));
        }
        assert_eq!(now, wanted);
    }
}

/// What another program does to an interface.
fn meddle(link: &mut FakeLink, how: u32) {
    let theirs = Filter {
        is_egress: how.is_multiple_of(2),
        kind: "bpf".to_owned(),
        priority: 1,
        handle: 1,
        name: "theirs".to_owned(),
    };
    match how {
        0 => {}
        1 => (link.root, link.filled) = (Some(qdisc("pfifo", 0x9)), None),
        2 => (link.root, link.filled) = (Some(qdisc("noqueue", 0)), None),
        3 => {
            link.ingress = Some(qdisc("clsact", 0xffff));
            link.filters.push(theirs);
        }
        4 => {
            link.ingress = None;
            link.filters.clear();
        }
        _ => {
            link.ingress = Some(qdisc("ingress", 0xffff));
            link.filters = vec![theirs];
        }
    }
}

/// Kills a process at each step of its life, lets another program change something, and starts the next one.
#[test]
fn after_a_kill_at_any_step_everything_is_put_back_and_what_others_did_stays() {
    let mut kills = 0;
    for steps in 0..80 {
        for how in 0..6 {
            let (fake, links) = node();
            let left = Rc::new(Cell::new(steps));
            let mut records = Records::default();
            records.steps_left = Some(Rc::clone(&left));
            let killable = Killable {
                inner: fake.clone(),
                steps_left: Some(left),
            };
            let mut first = keeper(killable, &records);
            if life(&mut first, &links).is_err() {
                kills += 1;
            }
            for index in [2, 3, 9] {
                fake.edit(index, |link| meddle(link, how));
            }
            let meddled = fake.links.borrow().clone();

            records.steps_left = None;
            let mut next = keeper(fake.clone(), &records);
            next.restore_all();
            assert!(next.held().is_empty() && records.held().is_empty());
            let (before, _) = node();
            for (index, now) in fake.links.borrow().iter() {
                let (was, original) = (&meddled[index], &before.links.borrow()[index]);
                let about = format!("step {steps}, {how}: {now:?} after {was:?}");
                let ours = qdisc("htb", 0x4ed1);
                let wanted = match &was.root {
                    Some(root) if *root == ours => &original.root,
                    theirs => theirs,
                };
                assert_eq!(&now.root, wanted, "{about}");
                assert_eq!(now.filled, None, "{about}");
                let theirs = was.filters.iter().filter(|filter| !filter.is_ours());
                let theirs: Vec<Filter> = theirs.cloned().collect();
                assert_eq!(now.filters, theirs, "{about}");
                assert_eq!(now.ingress.is_some(), !theirs.is_empty(), "{about}");
            }
        }
    }
    assert!(kills > 100, "{kills}");
}

/// Kills it 200 times on a real kernel, at a different step each time, while `tc` changes what it has made.
#[test]
fn after_200_kills_the_kernel_is_as_other_programs_left_it() {
    let commands = [
        "ip link add name eth0 type veth peer name p0",
        "ip link add name eth1 type veth peer name p1",
        "ip link add name veth1 type veth peer name p2",
        "ip link set dev eth0 up",
        "ip link set dev eth1 up",
        "ip link set dev veth1 up",
    ];
    in_namespace(&commands, || {
        let mounts = cgroup::Mounts::find().expect("control groups");
        let open = || TrafficControl::open(cgroup::System::new(mounts.clone())).expect("opened");
        let links = ["eth0", "eth1", "veth1"].map(|name| open().link(name).expect("there"));
        for round in 0..200u32 {
            run("tc qdisc replace dev eth1 root handle 8001: pfifo limit 55");
            let left = Rc::new(Cell::new(round % 23));
            let mut records = Records::default();
            records.steps_left = Some(Rc::clone(&left));
            let killable = Killable {
                inner: open(),
                steps_left: Some(left),
            };
            // A life has 23 steps.
            assert!(life(&mut keeper(killable, &records), &links).is_err());
            let meddling = match round / 23 % 4 {
                0 => vec![],
                1 => vec!["tc qdisc replace dev eth0 root handle 9: pfifo limit 66"],
                2 => vec![
                    "tc qdisc replace dev veth1 clsact",
                    "tc filter add dev veth1 ingress prio 1 protocol all u32 match u32 0 0 flowid 1:1",
                ],
                _ => vec!["tc qdisc replace dev eth1 root handle 9: pfifo limit 66"],
            };
            for command in &meddling {
                // `replace` is no way to have a clsact that is there already.
                if *command != "tc qdisc replace dev veth1 clsact"
                    || !run("tc qdisc show dev veth1").contains("clsact")
                {
                    run(command);
                }
            }
            records.steps_left = None;
            let mut next = keeper(open(), &records);
            next.restore_all();
            assert!(records.held().is_empty());

            let shown = run("tc qdisc show");
            let has = |text: &str| shown.contains(text);
            assert!(!has("htb"), "{round}: {shown}");
            assert_eq!(has("clsact"), meddling.len() == 2, "{round}: {shown}");
            assert!(run("tc filter show dev veth1 ingress").contains("u32") == has("clsact"));
            assert!(!run("tc filter show dev veth1 ingress").contains("heddle"));
            let of_eth0 = run("tc qdisc show dev eth0");
            let is_theirs = meddling
                .first()
                .is_some_and(|command| command.contains("dev eth0 "));
            assert_eq!(
                of_eth0.contains("limit 66p"),
                is_theirs,
                "{round}: {of_eth0}"
            );
            let of_eth1 = run("tc qdisc show dev eth1");
            let is_theirs = meddling
                .first()
                .is_some_and(|command| command.contains("dev eth1 "));
            let limit = if is_theirs { "limit 66p" } else { "limit 55p" };
            assert!(of_eth1.contains(limit), "{round}: {of_eth1}");
            if of_eth0.contains("limit 66p") {
                run("tc qdisc delete dev eth0 root");
            }
            if has("clsact") {
                run("tc qdisc delete dev veth1 clsact");
            }
        }
    });
}

#[test]
fn a_rehearsal_changes_nothing() {
    let (fake, links) = node();
    let mut keeper = Keeper::new(fake.clone(), Records::default(), BTreeMap::new(), replace());
    keeper.rehearse();
    life(&mut keeper, &links).expect("said");
    assert_eq!(keeper.held().len(), 3);
    let (before, _) = node();
    assert_eq!(*fake.links.borrow(), *before.links.borrow());
}
