use std::io::{Read, Write};
use std::time::Instant;

use super::*;

/// A provider with so many places, in a thread that lasts as long as the test process.
fn provider(at_once: usize) -> SocketAddr {
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
            serve(listener, Semaphore::new(at_once), Duration::ZERO).await
        })
    });
    address
}

fn hash_of(address: SocketAddr, path: &str, text: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).expect("connect");
    let request = format!("POST {path} HTTP/1.1\r\nHost: lab\r\nContent-Length: 4\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("write");
    stream.write_all(text.as_bytes()).expect("write");
    let mut bytes = Vec::new();
    loop {
        let mut chunk = [0; 1024];
        let count = stream.read(&mut chunk).expect("read");
        assert!(count > 0, "it ended");
        bytes.extend_from_slice(&chunk[..count]);
        if let Some(head) = http::response(&bytes).expect("well formed") {
            let body = &bytes[head.head_len..];
            if body.len() as u64 >= head.content_length {
                return String::from_utf8(body.to_vec()).expect("text");
            }
        }
    }
}

#[test]
fn the_last_segment_says_how_long_it_waits() {
    assert_eq!(wait(b"/api/v1/items/7f3a/50"), Duration::from_millis(50));
    assert_eq!(wait(b"/api/v1/items/7f3a"), Duration::ZERO);
    assert_eq!(wait(b"/9999999999"), MAX_WAIT);
}

#[test]
fn a_hash_is_that_of_its_reference() {
    // The test vectors of the FNV reference.
    assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(hash(b"foobar"), 0x8594_4171_f739_67e8);
}

#[test]
fn more_than_it_has_places_for_wait_and_are_counted() {
    let address = provider(2);
    let began = Instant::now();
    let answers: Vec<String> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..6)
            .map(|number| scope.spawn(move || hash_of(address, "/250", &format!("sum{number}"))))
            .collect();
        let answers = asked.into_iter().map(|one| one.join().expect("answered"));
        answers.collect()
    });
    // Three after another in each place.
    assert!(began.elapsed() >= Duration::from_millis(750));
    assert!(answers.iter().all(|one| one.len() as u64 == ANSWER_BYTES));
    assert_eq!(answers[0], hash_text(hash(b"sum0")), "of the body alone");
    assert_ne!(answers[0], answers[1]);
    let counts = Counts::ask(address).expect("counts");
    assert_eq!(counts.served, 6);
    assert!(counts.waited >= 1 && counts.most >= 3, "{counts:?}");
    // Two requests take 250, two 500 and two 750 ms, less the differences of their arrival.
    assert!(counts.there_us >= 2_500_000, "{counts:?}");
    let counts = Counts::ask(address).expect("counts");
    assert_eq!(counts, Counts::default(), "since it was asked last");
}
