//! A pod's address that is added, removed or moved to another pod while the pods are enrolled.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;

use heddle_intercept::request::{self, Request};

use crate::stage::{Scene, Stage, until};

/// An unused address of the pods' network.
fn free(stage: &Stage, last: u8) -> IpAddr {
    let IpAddr::V4(taken) = stage.address("vault") else {
        panic!("the vault has no address of IPv4");
    };
    let [a, b, c, _] = taken.octets();
    Ipv4Addr::new(a, b, c, last).into()
}

/// `ip address add`, or `del`, in a pod.
fn change(stage: &Stage, pod: &str, what: &str, address: IpAddr) {
    let network = stage.pod(pod).network();
    let done = Command::new("nsenter")
        .arg(format!("--net={}", network.display()))
        .args([
            "ip",
            "address",
            what,
            &format!("{address}/32"),
            "dev",
            "eth0",
        ])
        .status();
    assert!(done.expect("nsenter runs").success(), "{what} {address}");
}

/// A pod's addresses as the holder reports them.
fn addresses(stage: &Stage, pod: &str) -> Vec<IpAddr> {
    let of = stage.pod(pod);
    let answer = request::ask(&of.holder_socket(), &Request::List, None).expect("a list");
    let mut own = answer
        .pods
        .iter()
        .filter(|one| one.workload == of.plan().workload);
    own.next_back().expect("enrolled").addresses.clone()
}

#[test]
fn an_address_that_a_pod_gets_later_lets_no_caller_past_its_policies() {
    let scene = Scene::default()
        .strict("vault", "one")
        .pod("clerk", "one")
        .service("vault", "{port: 80, appProtocol: http}")
        .pod("window", "one")
        .pod("guest", "one")
        .outsider("stranger", "one");
    let Some(stage) = scene.up() else { return };
    let _servers = ["vault", "window", "guest"].map(|pod| stage.answer(pod, 80));
    for pod in ["vault", "window", "guest"] {
        stage.until_served(pod);
    }
    // Given a strict pod that gets another address …
    let new = free(&stage, 250);
    let at = SocketAddr::new(new, 80).to_string();
    change(&stage, "vault", "add", new);
    // … when it is called in plaintext, from that moment on, then no client is let in: at first because the proxy does
    // not know the address, then because it is the strict pod's …
    let mut dialled = 0;
    while dialled < 20 || !addresses(&stage, "vault").contains(&new) {
        let outcome = stage.dial("stranger", &at);
        assert!(!outcome.is_good(), "{outcome:?}");
        dialled += 1;
        assert!(dialled < 2000, "it is not followed");
    }
    assert_eq!(stage.dial("stranger", &at).what, "403");
    // … nor is a pod of the mesh, whose proxy also forwards it in plaintext: the workload is known only for addresses
    // in the manifest.
    assert_eq!(stage.dial("clerk", &at).what, "403");
    assert!(stage.dial("clerk", &stage.at("vault", 80)).is_good());

    // When a permissive pod gets an address, then the address is served like its others …
    let moving = free(&stage, 251);
    let at = SocketAddr::new(moving, 80).to_string();
    change(&stage, "window", "add", moving);
    until("it is the window's", || {
        addresses(&stage, "window").contains(&moving)
    });
    assert!(stage.dial("stranger", &at).is_good());
    // … and when another pod gets the same address, then it stays the first pod's …
    change(&stage, "guest", "add", moving);
    until("that is said", || {
        stage.log("one").contains("another enrolled pod's")
    });
    assert!(!addresses(&stage, "guest").contains(&moving));
    // … until the first pod has removed it.
    change(&stage, "window", "del", moving);
    until("it is the guest's", || {
        addresses(&stage, "guest").contains(&moving)
    });
    assert!(!addresses(&stage, "window").contains(&moving));
    // The stranger's ARP cache still has the link address of the first pod; the clerk has not called yet.
    until("it answers", || stage.dial("clerk", &at).is_good());
}
