use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::Inlet;

#[derive(Default)]
struct RingCount(AtomicUsize);

impl Wake for RingCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl RingCount {
    fn rung(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[cfg(not(feature = "loom"))]
#[test]
fn a_batch_wakes_once_and_is_taken_at_once() {
    let inlet = Inlet::new(8);
    let bell = Arc::new(RingCount::default());
    let waker = Waker::from(Arc::clone(&bell));
    let cx = Context::from_waker(&waker);
    let mut out = Vec::new();
    assert_eq!(inlet.poll_take(&cx, &mut out), Poll::Pending);
    for number in 0..5 {
        assert_eq!(inlet.put(number), Ok(()));
    }
    assert_eq!(bell.rung(), 0);
    inlet.wake();
    inlet.wake();
    assert_eq!(bell.rung(), 1);
    assert_eq!(inlet.poll_take(&cx, &mut out), Poll::Ready(()));
    assert_eq!(out, [0, 1, 2, 3, 4]);
}

#[cfg(not(feature = "loom"))]
#[test]
fn full_and_closed_give_back() {
    let inlet = Inlet::new(2);
    assert_eq!((inlet.put(1), inlet.put(2)), (Ok(()), Ok(())));
    assert_eq!(inlet.put(3), Err(3));
    assert_eq!(inlet.close(), [1, 2]);
    assert_eq!(inlet.put(4), Err(4));
    inlet.open();
    assert_eq!(inlet.put(5), Ok(()));
}

#[cfg(not(feature = "loom"))]
#[test]
fn what_moves_leaves_room_for_what_is_new() {
    let inlet = Inlet::new(3);
    assert_eq!(inlet.put_beside(1, 2), Ok(()));
    assert_eq!(inlet.put_beside(2, 2), Err(2));
    assert_eq!(inlet.room(), 2);
    assert_eq!((inlet.put(2), inlet.put(3)), (Ok(()), Ok(())));
    assert_eq!(inlet.room(), 0);
    inlet.close();
    assert_eq!(inlet.room(), 0);
}

/// Checks every interleaving of two senders and the reader: no item is lost or duplicated, and a sleeping reader is
/// woken for new items.
#[cfg(feature = "loom")]
#[test]
fn nothing_is_lost_between_threads() {
    loom::model(|| {
        let inlet = Inlet::new(2);
        let senders: Vec<_> = (0..2)
            .map(|number| {
                let inlet = inlet.clone();
                loom::thread::spawn(move || {
                    assert_eq!(inlet.put(number), Ok(()));
                    inlet.wake();
                })
            })
            .collect();
        let bell = Arc::new(RingCount::default());
        let waker = Waker::from(Arc::clone(&bell));
        let cx = Context::from_waker(&waker);
        let mut seen = Vec::new();
        let asleep = inlet.poll_take(&cx, &mut seen) == Poll::Pending;
        for sender in senders {
            sender.join().unwrap();
        }
        assert!(!asleep || bell.rung() > 0, "slept through an arrival");
        seen.extend(inlet.close());
        seen.sort_unstable();
        assert_eq!(seen, [0, 1]);
    });
}

#[cfg(feature = "loom")]
#[test]
fn what_comes_while_it_closes_is_given_back_once() {
    loom::model(|| {
        let inlet = Inlet::new(2);
        let other = inlet.clone();
        let sender = loom::thread::spawn(move || {
            let back = other.put(7).err();
            other.wake();
            back
        });
        let left = inlet.close();
        let back = sender.join().unwrap();
        let all: Vec<i32> = left.into_iter().chain(back).collect();
        assert_eq!(all, [7]);
    });
}
