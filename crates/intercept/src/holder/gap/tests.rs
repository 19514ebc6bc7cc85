use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use rustix::process::Signal;

use super::super::tests::{enroll, holder, list};
use super::*;
use crate::Fate;
use crate::dials::tests::silence;
use crate::namespace::within;
use crate::request::PodState;

#[test]
fn a_proxy_is_started_at_once_and_then_ever_later() {
    let waits = std::iter::successors(Some(Duration::ZERO), |wait| Some(longer(*wait)));
    let waits: Vec<u128> = waits.take(10).map(|wait| wait.as_millis()).collect();
    let expected = [0, 50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000];
    assert_eq!(waits, expected);
}

/// A holder with one pod, which is refused without a proxy and which a proxy has served for `age`. `None`, reported
/// as a skip, where it cannot be created.
fn served_for(folder: &Path, age: Duration) -> Option<(RunningHolder, File)> {
    let mut holder = holder(&folder.join("node.pods.json"))?;
    let netns = silence()?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), netns.as_raw_fd());
    enroll(
        &mut holder,
        "vault",
        netns.try_clone().unwrap(),
        path.into(),
    );
    next_proxy(&mut holder);
    let proxy = holder.proxy.as_mut().unwrap();
    proxy.has_served = true;
    proxy.started = Instant::now().checked_sub(age).unwrap();
    Some((holder, netns))
}

fn next_proxy(holder: &mut RunningHolder) {
    next_proxy_by(holder, "exec sleep 600");
}

fn next_proxy_by(holder: &mut RunningHolder, script: &str) {
    let arguments = ["-c", script].map(OsString::from);
    holder.proxy = Some(Proxy::start(Path::new("/bin/sh"), &arguments).unwrap());
}

fn kill_proxy(holder: &mut RunningHolder) {
    holder.proxy.as_ref().unwrap().signal(Signal::KILL);
    assert_eq!(holder.proxy_ended(), None);
}

fn dial(netns: &File) -> io::Result<TcpStream> {
    let to = SocketAddr::from(([10, 96, 0, 1], 80));
    let limit = Duration::from_secs(5);
    within(netns.as_fd(), || TcpStream::connect_timeout(&to, limit)).unwrap()
}

fn assert_refused(holder: &mut RunningHolder, netns: &File) {
    assert_eq!(
        dial(netns).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    assert_eq!(list(holder)[0].state, PodState::Unserved);
    assert_eq!(holder.pods.waits_until(), None);
}

#[test]
fn what_is_dialled_waits_for_the_successor_of_a_proxy_that_worked() {
    let folder = tempfile::tempdir().unwrap();
    let Some((mut holder, netns)) = served_for(folder.path(), SERVED) else {
        return;
    };
    // Given a pod that connects while its proxy is dead and the next one is about to start …
    kill_proxy(&mut holder);
    assert!(holder.next_start.unwrap() <= Instant::now());
    assert_eq!(list(&mut holder)[0].state, PodState::Held);
    let waits = dial(&netns).unwrap();
    // … when the next proxy serves the pod in time …
    next_proxy(&mut holder);
    holder.proxy.as_mut().unwrap().has_served = true;
    let pod = holder.pods.all().next().unwrap().id;
    holder.pods.settle(pod, PodState::Serving, Fate::Refuse);
    let until = holder.pods.waits_until().unwrap();
    assert!(holder.pods.due().unwrap() <= until);
    holder.end_gap(until);
    // … then it finds the connection, and nothing is reset.
    assert_eq!(holder.pods.waits_until(), None);
    waits.set_nonblocking(true).unwrap();
    let kind = waits.peek(&mut [0]).unwrap_err().kind();
    assert_eq!(kind, ErrorKind::WouldBlock);
    let pod = holder.pods.all().next().unwrap();
    assert!(pod.outbound.accept().is_ok(), "it waits");
    dial(&netns).unwrap();
    kill_proxy(&mut holder);
}

#[test]
fn a_proxy_that_served_no_pod_has_worked_once_it_has_lived_for_ten_seconds() {
    for (age, waits) in [(LIVED, true), (LIVED / 2, false)] {
        let folder = tempfile::tempdir().unwrap();
        let Some((mut holder, _netns)) = served_for(folder.path(), age) else {
            return;
        };
        holder.proxy.as_mut().unwrap().has_served = false;
        kill_proxy(&mut holder);
        assert_eq!(holder.pods.waits_until().is_some(), waits, "{age:?}");
    }
}

#[test]
fn a_pod_whose_fate_applies_already_does_not_wait_for_the_next_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let Some((mut holder, netns)) = served_for(folder.path(), LIVED) else {
        return;
    };
    // Given a pod whose fate applies, and a proxy that lived long and served no pod …
    kill_proxy(&mut holder);
    holder.pods.meet_fates();
    next_proxy(&mut holder);
    holder.proxy.as_mut().unwrap().started = Instant::now().checked_sub(LIVED).unwrap();
    // … when that dies …
    kill_proxy(&mut holder);
    assert!(holder.pods.waits_until().is_some());
    // … the kernel still refuses what the pod dials, which its status says.
    assert_eq!(list(&mut holder)[0].state, PodState::Unserved);
    assert_eq!(
        dial(&netns).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
}

#[test]
fn a_proxy_that_hung_up_after_it_served_is_not_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let Some((mut holder, netns)) = served_for(folder.path(), LIVED) else {
        return;
    };
    // Given a proxy whose end is slow …
    holder.begin_gap();
    holder.proxy.as_mut().unwrap().has_hung_up = true;
    dial(&netns).unwrap();
    let until = holder.pods.waits_until().unwrap();
    // … what waits is turned away all the same.
    holder.end_gap(until);
    assert_eq!(holder.pods.waits_until(), None);
    assert_eq!(
        dial(&netns).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    kill_proxy(&mut holder);
}

#[test]
fn a_proxy_that_exits_before_any_has_worked_ends_the_holder_with_its_code() {
    let folder = tempfile::tempdir().unwrap();
    let Some((mut holder, _netns)) = served_for(folder.path(), Duration::ZERO) else {
        return;
    };
    holder.has_worked = false;
    // One that a signal ends is started again.
    kill_proxy(&mut holder);
    next_proxy_by(&mut holder, "exit 3");
    assert_eq!(holder.proxy_ended(), Some(Ended::Proxy(3)));
}

#[test]
fn what_has_waited_too_long_is_turned_away_and_what_is_dialled_then_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some((mut holder, netns)) = served_for(folder.path(), LIVED) else {
        return;
    };
    kill_proxy(&mut holder);
    let mut waits = dial(&netns).unwrap();
    let until = holder.pods.waits_until().unwrap();
    holder.end_gap(until - Duration::from_millis(1));
    assert_eq!(holder.pods.waits_until(), Some(until));
    holder.end_gap(until);
    let kind = waits.read(&mut [0]).unwrap_err().kind();
    assert_eq!(kind, ErrorKind::ConnectionReset);
    assert_refused(&mut holder, &netns);
}

#[test]
fn nothing_waits_for_the_successor_of_a_proxy_that_did_not_work_or_was_told_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let short = SERVED / 10;
    let Some((mut holder, netns)) = served_for(folder.path(), short) else {
        return;
    };
    // After a second proxy that did not work, the next one is started with a delay.
    holder.wait = RESTART.0;
    kill_proxy(&mut holder);
    assert!(holder.next_start.unwrap() > Instant::now());
    assert_refused(&mut holder, &netns);
    drop(holder);
    // After one that worked and then one that did not, waiting connections are reset.
    let Some((mut holder, netns)) = served_for(folder.path(), SERVED) else {
        return;
    };
    kill_proxy(&mut holder);
    let mut waits = dial(&netns).unwrap();
    next_proxy(&mut holder);
    kill_proxy(&mut holder);
    let kind = waits.read(&mut [0]).unwrap_err().kind();
    assert_eq!(kind, ErrorKind::ConnectionReset);
    assert_refused(&mut holder, &netns);
    drop(holder);
    let Some((mut holder, netns)) = served_for(folder.path(), SERVED) else {
        return;
    };
    holder.proxy.as_mut().unwrap().is_stopping = true;
    kill_proxy(&mut holder);
    assert_refused(&mut holder, &netns);
}
