use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;

use heddle_model::WorkloadName;

use super::{ToHolder, ToProxy, pair, receive, send};
use crate::{Family, Fate, PodId};

#[test]
fn messages_arrive_whole_and_in_order_with_their_descriptors() {
    let (holder, proxy) = pair().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let enrolled = ToProxy::Enrolled {
        pod: PodId(7),
        workload: WorkloadName::parse("shop/reviews").unwrap(),
        addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
    };
    let released = ToProxy::Released { pod: PodId(7) };
    send(&holder, &enrolled, &[listener.as_fd(), listener.as_fd()]).unwrap();
    send(&holder, &ToProxy::Recalled, &[]).unwrap();
    send(&holder, &released, &[]).unwrap();

    let (first, descriptors) = receive::<ToProxy>(&proxy).unwrap().unwrap();
    assert_eq!(first, enrolled);
    assert_eq!(descriptors.len(), 2);
    for descriptor in descriptors {
        let there = TcpListener::from(descriptor).local_addr().unwrap();
        assert_eq!(there, listener.local_addr().unwrap());
    }
    let (none, _) = receive::<ToProxy>(&proxy).unwrap().unwrap();
    assert_eq!(none, ToProxy::Recalled);
    let (second, descriptors) = receive::<ToProxy>(&proxy).unwrap().unwrap();
    assert_eq!((second, descriptors.len()), (released, 0));
    let none = receive::<ToProxy>(&proxy).unwrap_err();
    assert_eq!(none.kind(), io::ErrorKind::WouldBlock);

    for said in [
        ToHolder::Ready,
        ToHolder::Open {
            request: u64::MAX,
            pod: PodId(u32::MAX),
            family: Family::V6,
            source: Some("[fd00::2]:65535".parse().unwrap()),
        },
        ToHolder::Serving {
            pod: PodId(1),
            fate: Fate::Pass,
        },
        ToHolder::Drained { pod: PodId(1) },
    ] {
        send(&proxy, &said, &[]).unwrap();
        assert_eq!(receive::<ToHolder>(&holder).unwrap().unwrap().0, said);
    }
    drop(proxy);
    assert!(receive::<ToHolder>(&holder).unwrap().is_none());
    assert!(send(&holder, &enrolled, &[]).is_err());
}

#[test]
fn what_has_another_form_is_refused_and_the_next_message_is_not() {
    let (holder, proxy) = pair().unwrap();
    let right = ToHolder::Drained { pod: PodId(1) };
    let long = "x".repeat(super::MAX_MESSAGE);
    assert!(send(&proxy, &long, &[]).is_err());
    for wrong in [serde_json::json!({"drained": {}}), serde_json::json!(7)] {
        send(&proxy, &wrong, &[]).unwrap();
        send(&proxy, &right, &[]).unwrap();
        let refused = receive::<ToHolder>(&holder).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        assert_eq!(receive::<ToHolder>(&holder).unwrap().unwrap().0, right);
    }
}
