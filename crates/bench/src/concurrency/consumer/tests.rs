use std::io::{BufRead, BufReader, Read, Write};

use super::*;

/// A Service that answers each request with `answer` of its body, in a thread that lives as long as the test process.
fn service(answer: fn(&[u8]) -> String) -> Target {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("accept"));
            std::thread::spawn(move || {
                loop {
                    let mut line = String::new();
                    while line != "\r\n" {
                        line.clear();
                        if stream.read_line(&mut line).expect("a line") == 0 {
                            return;
                        }
                    }
                    let mut body = [0; STRING_BYTES];
                    stream.read_exact(&mut body).expect("the string");
                    let answer = answer(&body);
                    stream
                        .get_mut()
                        .write_all(answer.as_bytes())
                        .expect("write");
                }
            });
        }
    });
    Target {
        authority: "provider.lab".to_owned(),
        address,
    }
}

fn consumer(targets: Vec<Target>, shares: Vec<u32>) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    listener.set_nonblocking(true).expect("nonblocking");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("runtime");
        LocalSet::new().block_on(&runtime, async {
            let listener = TcpListener::from_std(listener).expect("listener");
            serve(listener, &targets, &shares).await
        })
    });
    address
}

fn asked(consumer: SocketAddr) -> u16 {
    let to = format!("consumer.lab@{consumer}");
    ask::status(&to, "GET", "/api/v1/items/7f3a/0", "test").expect("an answer")
}

#[test]
fn only_the_hash_of_the_string_that_was_sent_is_right() {
    let good = consumer(
        vec![service(|body| answer(&hash_text(hash(body))))],
        Vec::new(),
    );
    assert_eq!(asked(good), 200);
    let counts = ConsumerCounts::ask(good).expect("counts");
    assert_eq!((counts.right, counts.wrong_hashes), (1, 0));

    let wrong = consumer(vec![service(|_| answer(&hash_text(7)))], Vec::new());
    assert_eq!(asked(wrong), 502);
    let counts = ConsumerCounts::ask(wrong).expect("counts");
    assert_eq!((counts.right, counts.wrong_hashes), (0, 1));
    assert!(counts.failed.is_empty());
}

#[test]
fn what_has_no_hash_is_a_failure_of_its_kind() {
    let busy = |_: &[u8]| "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_owned();
    let consumer = consumer(vec![service(busy)], Vec::new());
    assert_eq!(asked(consumer), 502);
    assert_eq!(asked(consumer), 502);
    let counts = ConsumerCounts::ask(consumer).expect("counts");
    assert_eq!((counts.right, counts.wrong_hashes), (0, 0));
    assert_eq!(
        counts.failed,
        BTreeMap::from([("status 503".to_owned(), 2)])
    );
}

#[test]
fn connections_are_spread_as_they_are_shared_out() {
    let place = |share| Place {
        target: Target {
            authority: "provider.lab".to_owned(),
            address: SocketAddr::from(([127, 0, 0, 1], 1)),
        },
        share,
        open: Cell::default(),
    };
    let shared = ConsumerShared {
        targets: vec![place(21), place(0), place(107)],
        counts: RefCell::default(),
    };
    let open: Vec<CalledService> = (0..128)
        .map(|number| CalledService::new(&shared, 50, number))
        .collect();
    let at = || {
        let at = shared.targets.iter().map(|place| place.open.get());
        at.collect::<Vec<_>>()
    };
    assert_eq!(at(), [21, 0, 107]);
    drop(open);
    assert_eq!(at(), [0, 0, 0]);
}
