//! For any packets on the channel between a holder and a proxy: the proxy gets an event for each valid packet and for
//! nothing else, each request for a socket is answered once, and no descriptor leaks.
//!
//! A line of the input is a packet: its first byte is the number of descriptors sent with it; that of the first line
//! also chooses the receiver.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use heddle_intercept::channel::{ToHolder, ToProxy, pair, receive, send};
use heddle_intercept::request::{Reply, Request};
use heddle_intercept::{Client, Event, Family, MAX_EXCLUDED, PodId};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::{Builder, Runtime};

/// Limits of packets in one input, and of descriptors in one packet.
const MAX_PACKETS: usize = 32;
const MAX_DESCRIPTORS: usize = 2;
/// The kernel truncates longer messages.
const MAX_MESSAGE: usize = 8 * 1024;
/// Requests for sockets that wait for an answer.
const ASKED: u64 = 3;
/// A packet whose event shows that all packets before it were received.
const SENTINEL: PodId = PodId(u32::MAX);

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_io().build().expect("a runtime");
}

/// Checks one input.
pub fn check(data: &[u8]) {
    let Some((&who, _)) = data.split_first() else {
        return;
    };
    let (closed, open) = pipe_with(PipeFlags::NONBLOCK).expect("a pipe");
    let packets = data.split(|&byte| byte == b'\n').take(MAX_PACKETS);
    let packets = packets.filter_map(|line| line.split_first());
    let packets: Vec<(usize, &[u8])> = packets
        .map(|(&first, rest)| (usize::from(first % 4), rest))
        .collect();
    match who >> 4 {
        // The digits `0` to `9`.
        3 => RUNTIME.with(|runtime| runtime.block_on(proxy_hears(&packets, &open))),
        6 => packets.iter().for_each(|packet| {
            hears::<ToHolder>(packet, &open, |_| {});
        }),
        7 => packets.iter().for_each(|packet| {
            hears::<Request>(packet, &open, may_be_enrolled);
        }),
        _ => packets.iter().for_each(|packet| {
            hears::<Reply>(packet, &open, |_| {});
        }),
    }
    drop(open);
    let left = rustix::io::read(&closed, &mut [0; 1]);
    assert_eq!(left, Ok(0), "a descriptor stayed open");
}

/// Sends a packet unchanged, with copies of a descriptor.
fn put(channel: &OwnedFd, (count, bytes): &(usize, &[u8]), open: &OwnedFd) -> bool {
    let copies: Vec<BorrowedFd<'_>> = vec![open.as_fd(); *count];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if *count > 0 {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&copies)));
    }
    let buffers = [io::IoSlice::new(bytes)];
    sendmsg(channel, &buffers, &mut ancillary, SendFlags::NOSIGNAL).is_ok()
}

/// Parses a packet as its receiver does; `None` if it is invalid.
fn read<M: DeserializeOwned>((count, bytes): &(usize, &[u8])) -> Option<M> {
    let is_whole = bytes.len() <= MAX_MESSAGE && *count <= MAX_DESCRIPTORS;
    is_whole.then(|| serde_json::from_slice(bytes).ok())?
}

/// Checks that the received message equals the sent one, and can be sent again.
fn hears<M>(packet: &(usize, &[u8]), open: &OwnedFd, check: impl Fn(&M))
where
    M: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let (near, far) = pair().expect("a channel");
    if !put(&near, packet, open) {
        return;
    }
    let (count, bytes) = packet;
    match receive::<M>(&far) {
        Ok(Some((message, descriptors))) => {
            assert_eq!(descriptors.len(), *count);
            assert_eq!(Some(&message), read(packet).as_ref());
            check(&message);
            // A number may have a longer text than in the input, so the message may be too long to send; nothing else
            // grows.
            if send(&near, &message, &[]).is_ok() {
                let again = receive::<M>(&far).expect("it comes").expect("a message");
                assert_eq!(again.0, message);
            }
        }
        Ok(None) => assert!(bytes.is_empty(), "only an empty packet is the end"),
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert_eq!(read::<M>(packet), None);
        }
    }
}

/// Checks that a request accepted by a holder has no more exclusions than the hooks can hold.
fn may_be_enrolled(request: &Request) {
    let Request::Enroll { exclude, .. } = request else {
        return;
    };
    let longest = [
        exclude.inbound_ports.len(),
        exclude.outbound_ports.len(),
        exclude.outbound_networks.len(),
    ];
    let most = longest.into_iter().max();
    assert_eq!(exclude.check().is_ok(), most <= Some(MAX_EXCLUDED));
}

async fn proxy_hears(packets: &[(usize, &[u8])], open: &OwnedFd) {
    let (holder, proxy) = pair().expect("a channel");
    let (mut client, sockets) = Client::new(proxy).expect("a client");
    let mut answers = Vec::new();
    for number in 0..ASKED {
        let mut answer = Box::pin(sockets.open(PodId(7), Family::V4, None));
        assert!(is_pending(answer.as_mut()), "it waits for its answer");
        match receive::<ToHolder>(&holder) {
            Ok(Some((ToHolder::Open { request, .. }, _))) => assert_eq!(request, number),
            other => panic!("{other:?}"),
        }
        answers.push(Some(answer));
    }
    for packet in packets {
        if !put(&holder, packet, open) {
            continue;
        }
        if packet.1.is_empty() {
            assert!(client.next().await.is_none(), "an empty packet is the end");
            break;
        }
        let message = read::<ToProxy>(packet);
        let is_sentinel = matches!(message, Some(ToProxy::Released { pod }) if pod == SENTINEL);
        if !is_sentinel {
            send(&holder, &ToProxy::Released { pod: SENTINEL }, &[]).expect("there is room");
        }
        let mut heard = Vec::new();
        loop {
            match client.next().await.expect("the channel is open") {
                Event::Released { pod } if pod == SENTINEL => break,
                event => heard.push(event),
            }
        }
        assert!(heard.len() <= 1, "a packet is one event");
        is_said(message.as_ref(), packet.0, heard.pop());
        match message {
            Some(ToProxy::Ping { number }) => match receive::<ToHolder>(&holder) {
                Ok(Some((said, _))) => assert_eq!(said, ToHolder::Pong { number }),
                other => panic!("{other:?}"),
            },
            Some(ToProxy::Socket { request, error }) => {
                let asked = usize::try_from(request).ok();
                let asked = asked.and_then(|request| answers.get_mut(request)?.take());
                if let Some(mut answer) = asked {
                    let answer = answer.as_mut().await;
                    is_answered(answer, error, packet.0);
                }
            }
            _ => {}
        }
    }
    drop(holder);
    while client.next().await.is_some() {}
    for answer in answers.into_iter().flatten() {
        let error = answer.await.expect_err("the holder is gone");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}

fn is_pending(future: std::pin::Pin<&mut impl Future>) -> bool {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    matches!(future.as_mut().poll(&mut context), Poll::Pending)
}

/// Checks that an event matches its message and number of descriptors.
fn is_said(message: Option<&ToProxy>, count: usize, heard: Option<Event>) {
    match (message, heard) {
        (
            Some(ToProxy::Enrolled {
                pod,
                workload,
                addresses,
            }),
            heard,
        ) => match heard {
            Some(Event::Enrolled {
                pod: of,
                workload: whose,
                addresses: at,
                ..
            }) => {
                assert_eq!(count, 2, "a pod has two listeners");
                assert_eq!((pod, workload, addresses), (&of, &whose, &at));
            }
            Some(other) => panic!("{other:?}"),
            None => assert_ne!(count, 2, "a pod is not heard of"),
        },
        (Some(ToProxy::Recalled), Some(Event::Recalled)) => {}
        (Some(ToProxy::Full(full)), Some(Event::Full(heard))) => assert_eq!(full, &heard),
        (Some(ToProxy::Released { pod }), Some(Event::Released { pod: heard })) => {
            assert_eq!(pod, &heard);
        }
        (Some(ToProxy::Released { pod }), None) => assert_eq!(*pod, SENTINEL),
        (None | Some(ToProxy::Ping { .. } | ToProxy::Socket { .. }), None) => {}
        (message, heard) => panic!("{message:?} is heard as {heard:?}"),
    }
}

fn is_answered(answer: io::Result<OwnedFd>, error: Option<i32>, count: usize) {
    match (answer, error) {
        (Ok(_), None) => assert!(count > 0, "a socket comes as a descriptor"),
        (Err(answer), Some(error)) => assert_eq!(answer.raw_os_error(), Some(error)),
        (Err(answer), None) => {
            assert_eq!((answer.kind(), count), (io::ErrorKind::InvalidData, 0));
        }
        (Ok(_), Some(error)) => panic!("{}: a socket", Errno::from_raw_os_error(error)),
    }
}
