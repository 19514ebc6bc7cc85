use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::time::Duration;

use heddle_model::WorkloadName;
use tokio::time::timeout;

use super::{Client, Event, Tell};
use crate::channel::{ToHolder, ToProxy, pair, receive, send};
use crate::hooks::FullTables;
use crate::{Family, Fate, PodId};

#[tokio::test]
async fn a_proxy_hears_of_pods_and_gets_sockets() {
    let (holder, proxy) = pair().unwrap();
    let (mut client, sockets) = Client::new(proxy).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let enrolled = ToProxy::Enrolled {
        pod: PodId(1),
        workload: WorkloadName::parse("shop/reviews").unwrap(),
        addresses: Vec::new(),
    };
    // A pod without its listeners is ignored.
    send(&holder, &enrolled, &[]).unwrap();
    send(&holder, &enrolled, &[listener.as_fd(), listener.as_fd()]).unwrap();
    assert!(matches!(
        client.next().await,
        Some(Event::Enrolled { pod: PodId(1), .. })
    ));

    client
        .teller()
        .tell(Tell::Serving {
            pod: PodId(1),
            fate: Fate::Refuse,
        })
        .unwrap();
    assert!(matches!(
        receive::<ToHolder>(&holder).unwrap().unwrap().0,
        ToHolder::Serving { .. }
    ));

    // A ping is answered without an event.
    send(&holder, &ToProxy::Ping { number: 7 }, &[]).unwrap();
    let full = FullTables {
        handshakes: 1,
        visits: 2,
    };
    send(&holder, &ToProxy::Full(full), &[]).unwrap();
    assert!(matches!(client.next().await, Some(Event::Full(said)) if said == full));
    send(&holder, &ToProxy::Recalled, &[]).unwrap();
    assert!(matches!(client.next().await, Some(Event::Recalled)));
    assert_eq!(
        receive::<ToHolder>(&holder).unwrap().unwrap().0,
        ToHolder::Pong { number: 7 }
    );

    let first = sockets.open(PodId(1), Family::V4, None);
    let second = sockets.open(PodId(2), Family::V4, None);
    let answers = async { tokio::join!(first, second) };
    let holder_answers = async {
        for (error, descriptors) in [(None, vec![listener.as_fd()]), (Some(2), vec![])] {
            let (asked, _) = receive::<ToHolder>(&holder).unwrap().unwrap();
            let ToHolder::Open { request, .. } = asked else {
                panic!("{asked:?}");
            };
            send(&holder, &ToProxy::Socket { request, error }, &descriptors).unwrap();
        }
        let _nothing_else = timeout(Duration::from_millis(50), client.next()).await;
    };
    let ((first, second), ()) = tokio::join!(answers, holder_answers);
    assert!(first.is_ok());
    assert_eq!(second.unwrap_err().kind(), io::ErrorKind::NotFound);

    drop(holder);
    assert!(client.next().await.is_none());
    let gone = sockets.open(PodId(1), Family::V4, None).await;
    assert_eq!(gone.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn who_gives_up_leaves_nothing_behind() {
    let (_holder, proxy) = pair().unwrap();
    let (client, sockets) = Client::new(proxy).unwrap();
    let open = sockets.open(PodId(1), Family::V4, None);
    assert!(timeout(Duration::from_millis(10), open).await.is_err());
    let waiting = client.channel.get_ref().waiting();
    assert_eq!(
        waiting.as_ref().map(std::collections::HashMap::len),
        Some(0)
    );
}
