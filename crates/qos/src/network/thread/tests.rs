use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use heddle_model::ControlGroup;

use super::{Message, Thread};
use crate::counts::Counts;
use crate::network::{OfflinePod, Snapshot};

fn snapshot(writes: u64) -> Snapshot {
    Snapshot {
        counts: Counts {
            writes,
            ..Counts::default()
        },
        changes: BTreeMap::new(),
        interfaces: Vec::new(),
        not_done: Vec::new(),
    }
}

fn pods(name: &str) -> Vec<OfflinePod> {
    vec![OfflinePod {
        name: name.to_owned(),
        group: ControlGroup::new(name).expect("a group"),
    }]
}

/// A thread that takes a message only when the test lets it, and tells which pods it was sent. Its answers count up from 8.
fn gated() -> (Thread, SyncSender<()>, Receiver<String>) {
    let (gate, opened) = sync_channel::<()>(64);
    let (tell, told) = sync_channel(64);
    let work = move |messages: &Receiver<Message>| {
        let mut writes = 7;
        while opened.recv().is_ok() {
            match messages.recv() {
                Ok(Message::Pods(pods)) => tell.send(pods[0].name.clone()).expect("told"),
                Ok(Message::Snapshot(answer)) => {
                    writes += 1;
                    let _gone = answer.send(snapshot(writes));
                }
                Err(_) => return true,
            }
        }
        true
    };
    let thread = Thread::of(snapshot(7), work).expect("a thread");
    (thread, gate, told)
}

/// What it says once an answer is there.
fn eventually(thread: &mut Thread, writes: u64) {
    let began = Instant::now();
    loop {
        let said = thread.snapshot().counts.writes;
        if said >= writes {
            assert_eq!(said, writes);
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{said}");
        park_timeout(Duration::from_millis(1));
    }
}

#[test]
fn a_thread_that_is_blocked_holds_up_neither_pods_nor_questions() {
    let (mut thread, gate, told) = gated();
    let began = Instant::now();
    for turn in 0..1_000 {
        thread.set_pods(pods(&format!("pod{turn}")));
        assert_eq!(thread.snapshot(), &snapshot(7));
    }
    // One question waits 50 ms, the others not at all.
    assert!(began.elapsed() < Duration::from_secs(5), "it waited");

    // The pods that were sent first, the question that stays open, and what is wanted now.
    gate.send(()).expect("open");
    assert_eq!(told.recv().as_deref(), Ok("pod0"));
    gate.send(()).expect("open");
    let began = Instant::now();
    let wanted = pods("pod999");
    while thread.pods != wanted {
        thread.set_pods(wanted.clone());
        assert!(began.elapsed() < Duration::from_secs(10), "never sent");
    }
    gate.send(()).expect("open");
    assert_eq!(told.recv().as_deref(), Ok("pod999"));
    assert!(!thread.is_busy);

    // The late answer counts, and the next question is asked.
    let said = thread.snapshot().counts.writes;
    assert_eq!(said, 8);
    gate.send(()).expect("open");
    eventually(&mut thread, 9);
    drop(gate);
    assert!(thread.stop());
}

#[test]
fn what_was_said_last_stays_when_the_thread_has_ended() {
    let (mut thread, gate, _told) = gated();
    gate.send(()).expect("open");
    eventually(&mut thread, 8);
    drop(gate);
    for _ in 0..3 {
        assert_eq!(thread.snapshot(), &snapshot(8));
    }
}

#[test]
fn a_thread_that_is_blocked_does_not_hold_up_the_end() {
    let (mut thread, gate, _told) = gated();
    thread.set_pods(pods("pod"));
    assert!(!thread.stop_within(Duration::from_millis(50)));
    drop(gate);
    let (thread, gate, _told) = gated();
    gate.send(()).expect("open");
    assert!(thread.stop());
}
