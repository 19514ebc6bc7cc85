use std::os::fd::AsRawFd;
use std::process::Command;

use rustix::io::Errno;

use super::*;
use crate::PortRange;
use crate::dials::tests::{dial, fate, silence};
use crate::hooks::{Kind, MAX_ADDRESSES, Options};
use crate::namespace::{self, within};

/// The pods of a holder, with hooks that need no control group. `None`, reported as a skip, where they cannot be
/// created.
pub(in crate::holder) fn pods() -> Option<Pods> {
    let made = match rustix::process::geteuid().is_root() {
        true => namespace::create().map_err(|error| error.to_string()),
        false => Err("namespaces are made by root".to_owned()),
    };
    let hooks = made.and_then(|_netns| {
        let options = Options {
            pods_cgroup: PathBuf::new(),
            own_cgroup: PathBuf::new(),
            bpffs: None,
            ranges: ranges(),
            kind: Kind::Nft,
        };
        Hooks::open(&options).map_err(|error| error.to_string())
    });
    match hooks {
        Ok(hooks) => Some(Pods::new(hooks, None, ranges()).unwrap()),
        Err(why) => {
            heddle_skips::skipped(&why);
            None
        }
    }
}

/// The address ranges of Services in these tests.
fn ranges() -> Vec<Range> {
    let inside = |network: &str, inside| Range {
        network: network.parse().unwrap(),
        inside,
    };
    vec![inside("10.96.0.0/16", true), inside("10.96.9.0/24", false)]
}

pub(in crate::holder) fn name(name: &str) -> WorkloadName {
    WorkloadName::parse(&format!("shop/{name}")).unwrap()
}

/// A namespace with these addresses, and its path, which is valid while the file is open.
pub(in crate::holder) fn namespace(addresses: &[&str]) -> (File, PathBuf) {
    let netns = File::from(namespace::create().unwrap());
    for address in addresses {
        ip(&netns, &format!("address add {address}/32 dev lo"));
    }
    let path = format!("/proc/{}/fd/{}", std::process::id(), netns.as_raw_fd());
    (netns, path.into())
}

fn ip(netns: &File, arguments: &str) {
    let arguments = arguments.split(' ');
    let status = within(netns.as_fd(), || {
        Command::new("ip").args(arguments).status()
    });
    assert!(status.unwrap().unwrap().success());
}

fn enroll(
    pods: &mut Pods,
    workload: &str,
    (netns, path): &(File, PathBuf),
) -> Result<PodId, String> {
    let netns = netns.try_clone().unwrap();
    let exclude = Exclude::default();
    let id = pods.enroll(name(workload), path.clone(), netns, exclude, Fate::Refuse)?;
    // There are none; this only clears the deadline for checking them.
    pods.end_dials_of(id);
    Ok(id)
}

#[test]
fn who_cannot_be_a_pod_is_told_why() {
    let Some(mut pods) = pods() else { return };
    let taken = namespace(&["10.0.0.2"]);
    enroll(&mut pods, "first", &taken).unwrap();
    let at = |path: &str| (File::open(path).unwrap(), PathBuf::from(path));
    let cases = [
        (
            at("/proc/self/status"),
            "is no network namespace: name one such as",
        ),
        (
            at("/proc/self/ns/uts"),
            "a namespace of another kind than network",
        ),
        (
            at("/proc/self/ns/net"),
            "is the network of the machine or of the node itself",
        ),
        (namespace(&[]), "it can be enrolled when it has"),
        (namespace(&["127.0.0.9"]), "has no address yet"),
        (taken, "is the namespace of shop/first already"),
        (
            namespace(&["10.0.0.2"]),
            "all its addresses belong to other pods, one to shop/first; if that pod is gone, heddle unenroll \
             shop/first",
        ),
    ];
    for (namespace, said) in cases {
        let refused = enroll(&mut pods, "second", &namespace).unwrap_err();
        assert!(refused.contains(said), "{refused}");
    }
    assert_eq!(pods.all().count(), 1);
    // A request with the first workload's name must not take another pod's address either.
    let other = namespace(&["10.0.0.3"]);
    let second = enroll(&mut pods, "second", &other).unwrap();
    assert_eq!(
        pods.get(second).unwrap().addresses,
        ["10.0.0.3".parse::<IpAddr>().unwrap()]
    );
}

#[test]
fn a_pod_is_found_again_where_it_was_and_no_other_is_taken_for_it() {
    let Some(mut pods) = pods() else { return };
    let at = namespace(&["10.0.0.2"]);
    let id = enroll(&mut pods, "vault", &at).unwrap();
    let remembered = pods.get(id).unwrap().remembered().unwrap();
    assert_eq!(pods.release(&name("vault")), Some(id));
    assert!(pods.get(id).unwrap().remembered().is_none());
    let other = Remembered {
        inode: remembered.inode.map(|inode| inode + 1),
        ..remembered.clone()
    };
    let refused = pods.recall(other).unwrap_err();
    assert!(
        refused.contains("is another namespace than it was"),
        "{refused}"
    );
    let gone = Remembered {
        netns: "/nowhere/vault".into(),
        ..remembered.clone()
    };
    let refused = pods.recall(gone).unwrap_err();
    assert!(refused.starts_with("/nowhere/vault: "), "{refused}");
    ip(&at.0, "address del 10.0.0.2/32 dev lo");
    let refused = pods.recall(remembered.clone()).unwrap_err();
    assert!(refused.contains("has no address yet"), "{refused}");
    ip(&at.0, "address add 10.0.0.2/32 dev lo");
    let again = pods.recall(remembered).unwrap();
    assert_ne!(again, id, "no number is used twice");
    pods.forget(id);
    assert_eq!(pods.of(&name("vault")).map(|pod| pod.id), Some(again));
}

#[test]
fn pods_are_found_again_that_have_addresses_in_common_or_too_many() {
    let Some(mut before) = pods() else { return };
    let bridge = "172.17.0.1";
    let (first, second) = (namespace(&["10.0.0.2"]), namespace(&["10.0.0.3"]));
    let ids = [
        enroll(&mut before, "first", &first).unwrap(),
        enroll(&mut before, "second", &second).unwrap(),
    ];
    for (netns, _) in [&first, &second] {
        ip(netns, &format!("address add {bridge}/32 dev lo"));
    }
    let most = u8::try_from(MAX_ADDRESSES).unwrap();
    for last in 0..most {
        ip(&second.0, &format!("address add 10.0.1.{last}/32 dev lo"));
    }
    let remembered = ids.map(|id| before.get(id).unwrap().remembered().unwrap());
    drop(before);
    let Some(mut after) = pods() else { return };
    let [first, second] = remembered.map(|pod| after.recall(pod).unwrap());
    let [first, second] = [first, second].map(|id| after.get(id).unwrap());
    let parse = |address: &str| address.parse::<IpAddr>().unwrap();
    assert_eq!(first.addresses, [parse("10.0.0.2"), parse(bridge)]);
    assert!(first.others.is_empty());
    assert_eq!(second.addresses.len(), MAX_ADDRESSES);
    assert_eq!(second.addresses.first(), Some(&parse("10.0.0.3")));
    assert_eq!(second.others, [parse(bridge), parse("10.0.1.31")]);
}

#[test]
fn addresses_that_the_hooks_refuse_are_tried_again() {
    let Some(mut pods) = pods() else { return };
    let netns = namespace(&["10.0.0.2"]);
    let id = enroll(&mut pods, "vault", &netns).unwrap();
    let [before, new] = ["10.0.0.2", "10.0.0.3"].map(|one| one.parse::<IpAddr>().unwrap());
    ip(&netns.0, "address add 10.0.0.3/32 dev lo");
    let refused = Err(HookError::Unknown(id));
    pods.readdressed(id, vec![before, new], refused);
    let pod = pods.get(id).unwrap();
    assert_eq!((&*pod.addresses, &*pod.others), (&[before][..], &[new][..]));
    let due = pods.due().unwrap();
    assert!(due > Instant::now(), "not at once");
    pods.follow(due);
    let pod = pods.get(id).unwrap();
    assert_eq!(
        (&*pod.addresses, &*pod.others),
        (&[before, new][..], &[][..])
    );
}

#[test]
fn no_proxy_speaks_with_an_address_of_a_pod_that_has_too_many_to_be_kept() {
    let Some(mut pods) = pods() else { return };
    let most = u8::try_from(MAX_ADDRESSES).unwrap();
    let all: Vec<String> = (0..=2 * most)
        .map(|last| format!("10.0.0.{last}"))
        .collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let id = enroll(&mut pods, "vault", &namespace(&all)).unwrap();
    let pod = pods.get(id).unwrap();
    assert_eq!((pod.others.len(), pod.more), (MAX_ADDRESSES, 1));
    for (source, may) in [
        ("10.0.0.0:40000", false),
        ("10.0.0.32:40000", false),
        ("10.0.0.63:40000", false),
        // This address is not recorded; only the number of further ones is known.
        ("10.0.0.64:40000", false),
        ("10.0.0.65:40000", true),
        ("10.9.0.1:0", true),
    ] {
        let opened = pods.open(id, Family::V4, Some(source.parse().unwrap()));
        let refused = opened.err().and_then(|error| Errno::from_io_error(&error));
        assert_eq!(refused, (!may).then_some(Errno::ACCESS), "{source}");
    }
}

#[test]
fn addresses_are_followed_and_a_pod_gets_what_another_gives_up() {
    let Some(mut pods) = pods() else { return };
    let (first, second) = (namespace(&["10.0.0.2"]), namespace(&["10.0.0.3"]));
    let one = enroll(&mut pods, "first", &first).unwrap();
    let two = enroll(&mut pods, "second", &second).unwrap();
    let has = |pods: &Pods, id, wanted: &[&str]| {
        let wanted = wanted
            .iter()
            .map(|address| address.parse::<IpAddr>().unwrap());
        pods.get(id).unwrap().addresses == wanted.collect::<Vec<_>>()
    };
    // Does the work of the holder's loop until nothing is left to do.
    let follow = |pods: &mut Pods| {
        pods.addresses_changed();
        let mut is_contested = false;
        while let Some(due) = pods.due() {
            is_contested |= pods.follow(due);
            pods.addresses_changed();
        }
        is_contested
    };
    assert!(!follow(&mut pods));
    ip(&first.0, "address add 10.0.0.4/32 dev lo");
    ip(&first.0, "address add 10.0.0.5/32 dev lo");
    assert!(!follow(&mut pods));
    assert!(has(&pods, one, &["10.0.0.2", "10.0.0.4", "10.0.0.5"]));
    ip(&second.0, "address add 10.0.0.4/32 dev lo");
    ip(&second.0, "address del 10.0.0.3/32 dev lo");
    assert!(follow(&mut pods), "it is another's");
    assert!(has(&pods, two, &[]));
    ip(&first.0, "address del 10.0.0.4/32 dev lo");
    assert!(!follow(&mut pods));
    assert!(has(&pods, one, &["10.0.0.2", "10.0.0.5"]));
    assert!(has(&pods, two, &["10.0.0.4"]));
    // An overflow of the netlink socket's buffer does no harm.
    for _ in 0..50 {
        ip(&first.0, "address add 10.0.0.6/32 dev lo");
        ip(&first.0, "address del 10.0.0.6/32 dev lo");
    }
    ip(&first.0, "address add 10.0.0.7/32 dev lo");
    follow(&mut pods);
    assert!(has(&pods, one, &["10.0.0.2", "10.0.0.5", "10.0.0.7"]));
    ip(&second.0, "address add 10.0.0.7/32 dev lo");
    assert!(follow(&mut pods));
    pods.release(&name("first"));
    pods.forget(one);
    assert!(!follow(&mut pods));
    assert!(has(&pods, two, &["10.0.0.4", "10.0.0.7"]));
}

#[test]
fn a_dial_that_began_before_a_pod_was_enrolled_and_has_no_answer_is_ended() {
    let (Some(mut pods), Some(netns)) = (pods(), silence()) else {
        return;
    };
    ip(&netns, "address add 10.96.0.7/32 dev lo");
    let path = format!("/proc/{}/fd/{}", std::process::id(), netns.as_raw_fd());
    // Given a pod with connection attempts to the mesh and to other destinations …
    let lost = dial(&netns, "10.96.0.1:80");
    let left = ["10.96.9.1:80", "10.96.0.1:81", "[fd00::1]:80"];
    let left = left.map(|to| dial(&netns, to));
    // … when it is enrolled …
    let exclude = Exclude {
        outbound_ports: PortRange::one(81).into_iter().collect(),
        ..Exclude::default()
    };
    let known = netns.try_clone().unwrap();
    pods.enroll(name("late"), path.into(), known, exclude, Fate::Pass)
        .unwrap();
    // … then the attempt to the mesh is ended a moment later, and the others are not.
    let due = pods.due().unwrap();
    pods.end_dials(due - Duration::from_millis(1));
    assert_eq!(fate(&lost), Ok(()));
    pods.end_dials(due);
    assert_eq!(fate(&lost), Err(Errno::CONNABORTED));
    assert!(left.iter().all(|dial| fate(dial).is_ok()));
    assert_eq!(pods.due(), None);
}
