use std::os::fd::OwnedFd;
use std::path::Path;

use heddle_model::WorkloadName;
use rustix::event::poll;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use rustix::process::geteuid;

use super::Guests;
use crate::request::{PodState, PodStatus, Reply, Request, ask};
use crate::{Fate, PodId};

fn pod(number: u32) -> PodStatus {
    PodStatus {
        pod: Some(PodId(number)),
        workload: WorkloadName::parse("shop/reviews").unwrap(),
        netns: format!("/run/netns/{}", "n".repeat(200)).into(),
        addresses: Vec::new(),
        state: PodState::Serving,
        fate: Fate::Refuse,
        reason: None,
    }
}

/// User ID of a proxy, other than that of this test.
const PROXY: u32 = 65_521;

fn listen_at(path: &Path) -> OwnedFd {
    let listener: OwnedFd = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    bind(&listener, &SocketAddrUnix::new(path).unwrap()).unwrap();
    listen(&listener, 1).unwrap();
    listener
}

#[test]
fn a_proxy_may_not_ask_whatever_user_it_runs_as() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("holder.sock");
    // The proxy's user is refused even if it is root.
    let mut guests = Guests::new(listen_at(&path), geteuid().as_raw()).unwrap();
    let asked = std::thread::spawn(move || ask(&path, &Request::List, None));
    while !asked.is_finished() {
        guests.serve(|request, _| panic!("{request:?}"));
        std::thread::yield_now();
    }
    let why = asked.join().unwrap().unwrap_err().to_string();
    assert!(why.contains("never the proxy's user"), "{why}");
    assert!(guests.guests.is_empty());
}

#[test]
fn a_list_arrives_whole_however_long_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("holder.sock");
    let listener = listen_at(&path);
    let mut guests = Guests::new(listener, PROXY).unwrap();

    let asked = std::thread::spawn(move || ask(&path, &Request::List, None));
    while !asked.is_finished() {
        let mut polled: Vec<_> = guests.polled().collect();
        poll(
            &mut polled,
            Some(&rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: 1_000_000,
            }),
        )
        .unwrap();
        guests.serve(|request, _| {
            assert_eq!(request, Request::List);
            let pods = (0..4_096).map(|number| Reply::Pod(pod(number)));
            pods.chain([Reply::Done]).collect()
        });
    }
    let answer = asked.join().unwrap().unwrap();
    assert_eq!(answer.pods, (0..4_096).map(pod).collect::<Vec<_>>());
    assert!(guests.guests.is_empty());
}
