//! Sends every request of the codec's corpus through a whole proxy to an endpoint that records what reaches it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use heddle_model::Filters;
use heddle_wire::corpus::{Case, Outcome as Expected, Stage, requests};
use heddle_wire::http1::{BodyTracker, Limits, RequestHead};

use crate::support::{Bed, field, listener, mesh, to_echo};

/// An endpoint that records every byte, and answers when it has a whole request. It serves one connection after the
/// other.
struct Recorder {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Recorder {
    fn start() -> Recorder {
        let (listener, address) = listener();
        let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
        let record = Arc::clone(&seen);
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut buffer = [0; 4096];
                while let Ok(n @ 1..) = stream.read(&mut buffer) {
                    let mut seen = record.lock().unwrap();
                    seen.extend_from_slice(&buffer[..n]);
                    if whole(&seen).is_some() {
                        let answer =
                            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                        let _ = stream.write_all(answer.as_bytes());
                        break;
                    }
                }
            }
        });
        Recorder { address, seen }
    }

    /// Everything recorded, after all earlier connections were read to their end: this method's own connection comes
    /// after them in the accept queue.
    fn take(&self) -> Vec<u8> {
        let mut last = TcpStream::connect(self.address).unwrap();
        last.shutdown(Shutdown::Write).unwrap();
        let end = last.read(&mut [0]);
        assert!(matches!(end, Ok(0)), "the recorder closes");
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

/// The length of the first request, if it is there with its whole body.
fn whole(bytes: &[u8]) -> Option<usize> {
    let mut head = RequestHead::new();
    let head_bytes = head.parse(bytes, &Limits::DEFAULT).ok()??;
    let advance = BodyTracker::from_framing(head.framing)
        .advance(&bytes[head_bytes..])
        .ok()?;
    advance.done.then_some(head_bytes + advance.consumed)
}

/// Sends one case; the error says how its outcome differs from the expected one.
fn check(bed: &Bed, recorder: &Recorder, case: &Case) -> Result<(), String> {
    let mut client = bed.client();
    let response = client.ask(&case.bytes);
    let status = response.status();
    let reason = response.field("heddle-reason").unwrap_or("none");
    match &case.outcome {
        Expected::Refused {
            stage,
            status: expected,
            code,
        } => {
            client.rest();
            let seen = recorder.take();
            if (status, reason) != (*expected, &**code) {
                return Err(format!("answered {status} {reason}, not {expected} {code}"));
            }
            if whole(&seen).is_some() || (!matches!(stage, Stage::Body) && !seen.is_empty()) {
                return Err(format!(
                    "reached the endpoint: {:?}",
                    String::from_utf8_lossy(&seen)
                ));
            }
        }
        // A feature that is not implemented is refused, even if the request is well formed.
        Expected::Forwarded { .. } if status == 501 => {}
        Expected::Forwarded { target, host } => {
            let seen = recorder.take();
            if status != 200 {
                return Err(format!("answered {status} {reason}, not forwarded"));
            }
            let text = String::from_utf8_lossy(&seen);
            let line = text.lines().next().unwrap_or_default();
            if line.split(' ').nth(1) != Some(&**target) || field(&text, "host") != Some(&**host) {
                return Err(format!("forwarded as {text:?}"));
            }
            if whole(&seen) != Some(seen.len()) {
                return Err(format!("forwarded with something behind it: {text:?}"));
            }
        }
    }
    Ok(())
}

#[test]
fn no_ambiguous_request_reaches_an_endpoint() {
    let recorder = Recorder::start();
    // The rules match paths, so ambiguous paths must be refused.
    let rules = ["/rule", ""].map(|path| to_echo(path, Filters::default()));
    let bed = Bed::of(&mesh(&[recorder.address], Some(rules.into())));
    let cases = requests();
    assert!(cases.len() >= 80);
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let error = check(&bed, &recorder, case).err()?;
            Some(format!("{}: {error}", case.name))
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}
