use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::forward::Forwarding;
use super::load::{GrpcLoad, offer};
use super::*;
use crate::load::{Outcome, Pace};
use crate::systems::render;

/// Runs a server in a thread that lasts as long as the test process; returns its address.
fn in_background<Serving>(serve: impl FnOnce(TcpListener) -> Serving + Send + 'static) -> SocketAddr
where
    Serving: Future<Output = anyhow::Result<()>>,
{
    let (told, tell) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            told.send(listener.local_addr().expect("an address"))
                .expect("told");
            serve(listener).await
        })
    });
    tell.recv().expect("serves")
}

fn through_the_proxy(body_bytes: u64, rate: Option<f64>) -> Outcome {
    let upstream = in_background(server::serve);
    let proxy = in_background(move |listener| forward::serve(listener, upstream));
    let options = GrpcLoad {
        targets: vec![format!("echo0.lab@{proxy}").parse().expect("a target")],
        connections: 2,
        streams: 8,
        body_bytes,
        pace: Pace {
            rate,
            warm_up: 0.0,
            seconds: 0.2,
            requests: Some(500),
            watched: Vec::new(),
            seed: 1,
        },
    };
    offer(&options).expect("runs")
}

#[test]
fn calls_come_through_whole_as_fast_as_they_go_and_at_a_rate() {
    for rate in [None, Some(5_000.0)] {
        let outcome = through_the_proxy(64, rate);
        assert_eq!(
            (outcome.requests, outcome.errors.len()),
            (500, 0),
            "{outcome:?}"
        );
        assert!(outcome.p50_us > 0.0 && outcome.p50_us <= outcome.max_us);
    }
}

#[test]
fn messages_of_many_frames_come_through_however_little_room_there_is() {
    let outcome = through_the_proxy(call::MAX_MESSAGE, None);
    assert_eq!(
        (outcome.requests, outcome.errors.len()),
        (500, 0),
        "{outcome:?}"
    );
}

#[test]
fn the_version_of_a_crate_is_the_locked_one() {
    let lock = "[[package]]\nname = \"h2o\"\nversion = \"9\"\n\n[[package]]\nname = \"h2\"\nversion = \"0.4.20\"\n";
    assert_eq!(locked_version(lock, "h2"), Some("0.4.20"));
    assert_eq!(locked_version(lock, "h3"), None);
}

#[test]
fn the_proxys_file_says_where_it_listens_and_sends() {
    let template = include_str!("../../peers/forward.yaml.j2");
    let services = crate::systems::Work::new(1, 1, 9000).services;
    let context = minijinja::context! { services, listen => "127.0.0.1:8000" };
    let text = render(template, context).expect("renders");
    let read: Forwarding = serde_saphyr::from_str(&text).expect("reads");
    let expected = Forwarding {
        listen: ([127, 0, 0, 1], 8000).into(),
        upstream: ([127, 1, 0, 1], 9000).into(),
    };
    assert_eq!(read, expected);
    assert!(serde_saphyr::from_str::<Forwarding>("listen: 127.0.0.1:1").is_err());
}
