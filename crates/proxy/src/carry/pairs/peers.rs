//! The client and the endpoint of an exchange.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::case::{Case, Cut, Ending, Seen};
use super::reader::Reader;

/// The timeout of every wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// An endpoint that answers each request as the case under way says.
pub(super) struct ScriptedEndpoint {
    pub(super) address: SocketAddr,
    case: Arc<Mutex<(usize, Option<Case>)>>,
    seen: Receiver<Seen>,
}

impl ScriptedEndpoint {
    pub(super) fn new() -> ScriptedEndpoint {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let case: Arc<Mutex<(usize, Option<Case>)>> = Arc::default();
        let (say, seen) = sync_channel(1024);
        let its = Arc::clone(&case);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                stream.set_nodelay(true).unwrap();
                let (case, say) = (Arc::clone(&its), say.clone());
                thread::spawn(move || serve(&stream, &case, &say));
            }
        });
        ScriptedEndpoint {
            address,
            case,
            seen,
        }
    }

    /// Answers requests by this case from now on. Returns the number of the case.
    pub(super) fn expects(&self, case: &Case) -> usize {
        let (number, under_way) = &mut *self.case.lock().unwrap();
        *number += 1;
        *under_way = Some(case.clone());
        *number
    }

    /// The requests that the endpoint has received. A request that was cut may not have arrived at all.
    pub(super) fn seen(&self, case: &Case, number: usize) -> Vec<Seen> {
        let patience = match case.cut {
            Cut::Client(_) => Duration::from_millis(20),
            Cut::Nothing | Cut::Endpoint { .. } => PATIENCE,
        };
        let until = Instant::now() + patience;
        let mut seen: Vec<Seen> = Vec::new();
        let left = |is_first: bool| match is_first {
            true => until.saturating_duration_since(Instant::now()),
            false => Duration::ZERO,
        };
        while let Ok(one) = self.seen.recv_timeout(left(seen.is_empty())) {
            if one.number == number {
                seen.push(one);
            }
        }
        seen
    }
}

/// Serves the requests of a connection until a request or an answer is cut.
fn serve(stream: &TcpStream, case: &Mutex<(usize, Option<Case>)>, say: &SyncSender<Seen>) {
    let mut reader = Reader::new(stream);
    while let Some((first, head)) = reader.head() {
        let (number, case) = case.lock().unwrap().clone();
        let mut words = first.split([' ', '/']);
        let method = words.next().unwrap_or_default().to_owned();
        // A request of an earlier case was cut by its client.
        let (true, Some(case)) = (words.any(|word| word == number.to_string()), case) else {
            return;
        };
        let mut answer = Answer::new(stream, &case);
        if case.streams() {
            answer.begin();
        }
        let mut seen = reader.body(&head, || answer.goes_on());
        (seen.number, seen.what) = (number, method);
        let is_whole = seen.outcome == Ending::Whole;
        // Fails if the case is over.
        let _over = say.send(seen);
        if !is_whole {
            return;
        }
        answer.end();
        if answer.is_cut || case.response.framing == super::Framing::Close {
            return;
        }
    }
}

/// A response that is being written.
struct Answer<'a> {
    stream: &'a TcpStream,
    streams: bool,
    left: std::vec::IntoIter<Vec<u8>>,
    /// Number of pieces that are heads.
    heads: usize,
    /// Bytes until the endpoint stops, and whether it resets then.
    stops: Option<(usize, bool)>,
    is_cut: bool,
}

impl<'a> Answer<'a> {
    fn new(stream: &'a TcpStream, case: &Case) -> Answer<'a> {
        let stops = match case.cut {
            Cut::Endpoint { at, resets } => Some((at, resets)),
            Cut::Nothing | Cut::Client(_) => None,
        };
        Answer {
            stream,
            streams: case.streams(),
            left: case.response().into_iter(),
            heads: case.interim.len() + 1,
            stops,
            is_cut: false,
        }
    }

    fn begin(&mut self) {
        for _ in 0..self.heads {
            self.write();
        }
    }

    /// Called for each piece of the request that has arrived.
    fn goes_on(&mut self) {
        // The last piece of the response waits for the end of the request.
        if self.streams && self.left.len() > 1 {
            self.write();
        }
    }

    fn end(&mut self) {
        while self.left.len() > 0 && !self.is_cut {
            self.write();
        }
        if let (Some((_, true)), true) = (self.stops, self.is_cut) {
            let linger = Some(Duration::ZERO);
            let _gone = rustix::net::sockopt::set_socket_linger(self.stream, linger);
        }
    }

    fn write(&mut self) {
        let Some(mut piece) = self.left.next().filter(|_| !self.is_cut) else {
            return;
        };
        if let Some((left, _)) = &mut self.stops {
            self.is_cut = *left <= piece.len();
            piece.truncate(*left);
            *left -= piece.len();
        }
        // Writing fails once the client is gone.
        self.is_cut |= (&*self.stream).write_all(&piece).is_err();
    }
}

/// Sends the request of a case, and returns the response.
pub(super) fn ask(address: SocketAddr, case: &Case, number: usize) -> Seen {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut left = match case.cut {
                Cut::Client(at) => at,
                Cut::Nothing | Cut::Endpoint { .. } => usize::MAX,
            };
            for mut piece in case.request(number) {
                piece.truncate(left);
                left -= piece.len();
                // Writing fails once the endpoint has stopped.
                if (&stream).write_all(&piece).is_err() {
                    break;
                }
            }
        });
        if let Cut::Client(_) = case.cut {
            writer.join().unwrap();
            let linger = Some(Duration::ZERO);
            rustix::net::sockopt::set_socket_linger(&stream, linger).unwrap();
            return Seen::nothing();
        }
        answer(&stream, case.method == "HEAD")
    })
}

fn answer(stream: &TcpStream, is_head: bool) -> Seen {
    let mut reader = Reader::new(stream);
    let mut interim = Vec::new();
    while let Some((first, head)) = reader.head() {
        let status = first.split(' ').nth(1).unwrap_or_default().to_owned();
        if status.starts_with('1') {
            interim.push(status.parse().unwrap());
            continue;
        }
        let seen = match is_head {
            true => Seen {
                outcome: Ending::Whole,
                ..Seen::nothing()
            },
            false => reader.body(&head, || {}),
        };
        return Seen {
            what: status,
            interim,
            ..seen
        };
    }
    Seen {
        interim,
        ..Seen::nothing()
    }
}

impl Seen {
    fn nothing() -> Seen {
        Seen {
            interim: Vec::new(),
            number: 0,
            what: String::new(),
            data: Vec::new(),
            trailers: Vec::new(),
            outcome: Ending::Cut,
        }
    }
}
