//! Test cases: what is sent, and what must be received.

use std::fmt;

use proptest::prelude::*;

/// How the end of a body is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    None,
    Length,
    Chunked,
    /// By the end of the connection: responses only.
    Close,
}

#[derive(Clone)]
pub(super) struct Body {
    pub(super) framing: Framing,
    pub(super) pieces: Vec<Vec<u8>>,
    /// Only with `Chunked`.
    pub(super) trailers: Vec<(String, String)>,
}

/// The byte offset at which one of the ends stops sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    Nothing,
    /// The client resets its connection.
    Client(usize),
    /// The endpoint resets its connection, or closes it.
    Endpoint {
        at: usize,
        resets: bool,
    },
}

/// One exchange.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) method: &'static str,
    pub(super) request: Body,
    pub(super) interim: Vec<u16>,
    pub(super) status: u16,
    pub(super) response: Body,
    /// The endpoint answers while it receives the request: a piece for each piece.
    pub(super) streams: bool,
    pub(super) cut: Cut,
}

/// How a message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Whole,
    Cut,
}

/// The part of a message that the receiving end has seen.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// Statuses of interim responses.
    pub(super) interim: Vec<u16>,
    /// The number of the case that the request belongs to.
    pub(super) number: usize,
    /// The method of a request, the status of a response; empty if no head came.
    pub(super) what: String,
    pub(super) data: Vec<u8>,
    pub(super) trailers: Vec<(String, String)>,
    pub(super) outcome: Ending,
}

/// Shows the pieces by their lengths.
impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pieces: Vec<usize> = self.pieces.iter().map(Vec::len).collect();
        write!(f, "{:?} {pieces:?} {:?}", self.framing, self.trailers)
    }
}

impl Body {
    pub(super) fn none() -> Body {
        Body {
            framing: Framing::None,
            pieces: Vec::new(),
            trailers: Vec::new(),
        }
    }

    pub(super) fn data(&self) -> Vec<u8> {
        self.pieces.concat()
    }

    /// The header lines that frame the body.
    fn announced(&self) -> String {
        match self.framing {
            Framing::None => "Content-Length: 0\r\n".into(),
            Framing::Length => format!("Content-Length: {}\r\n", self.data().len()),
            Framing::Chunked => "Transfer-Encoding: chunked\r\n".into(),
            // A server that closes says so (RFC 9112 section 9.6): the answer to HEAD has no body that would.
            Framing::Close => "Connection: close\r\n".into(),
        }
    }

    /// The body, in the pieces in which it is written.
    fn written(&self) -> Vec<Vec<u8>> {
        if self.framing != Framing::Chunked {
            return self.pieces.clone();
        }
        let chunk = |piece: &Vec<u8>| {
            let size = format!("{:x}\r\n", piece.len()).into_bytes();
            [&size, &piece[..], b"\r\n"].concat()
        };
        let mut last = "0\r\n".to_owned();
        for (name, value) in &self.trailers {
            last += &format!("{name}: {value}\r\n");
        }
        let pieces = self.pieces.iter().map(chunk);
        pieces.chain([(last + "\r\n").into_bytes()]).collect()
    }
}

impl Case {
    /// The request, in the pieces in which it is written. Its path contains the number.
    pub(super) fn request(&self, number: usize) -> Vec<Vec<u8>> {
        let head = format!(
            "{} /pkg.Service/{number} HTTP/1.1\r\nHost: echo.test\r\nContent-Type: application/grpc\r\n\
             TE: trailers\r\n{}\r\n",
            self.method,
            self.request.announced()
        );
        let pieces = [head.into_bytes()].into_iter();
        pieces.chain(self.request.written()).collect()
    }

    /// The response, in the pieces in which it is written.
    pub(super) fn response(&self) -> Vec<Vec<u8>> {
        let interim = self.interim.iter();
        let interim = interim.map(|status| format!("HTTP/1.1 {status} Wait\r\nLink: x\r\n\r\n"));
        let head = format!(
            "HTTP/1.1 {} Fine\r\ngrpc-status: 0\r\n{}\r\n",
            self.status,
            self.response.announced()
        );
        let heads = interim.chain([head]).map(String::into_bytes);
        let bodies = match self.method {
            "HEAD" => Vec::new(),
            _ => self.response.written(),
        };
        heads.chain(bodies).collect()
    }

    /// Checks what both ends have seen.
    pub(super) fn check(&self, endpoint: &[Seen], client: &Seen) -> Result<(), String> {
        let (request, response) = (self.request.data(), self.response.data());
        for seen in endpoint {
            is_of("request", seen, &request, &self.request.trailers)?;
            if seen.outcome == Ending::Whole && seen.what != self.method {
                return Err(format!("the method is {}", seen.what));
            }
        }
        let whole = endpoint.iter();
        let whole = whole.filter(|seen| seen.outcome == Ending::Whole).count();
        let is_said = |at: usize, pieces: Vec<Vec<u8>>| at >= pieces.concat().len();
        match self.cut {
            Cut::Client(at) if !is_said(at, self.request(0)) && whole > 0 => {
                return Err("a request that was cut is whole at its endpoint".into());
            }
            Cut::Client(_) => return Ok(()),
            // An idempotent request without an answer on a reused connection is retried.
            Cut::Endpoint { .. } if whole == 2 && self.method != "POST" => {}
            _ if whole > 1 => return Err(format!("the endpoint has seen it {whole} times")),
            Cut::Nothing if whole == 0 => {
                let (parts, told) = (endpoint.len(), &client.what);
                return Err(format!(
                    "the endpoint has seen {parts} parts of it, never the whole; the client is told {told:?}"
                ));
            }
            Cut::Nothing | Cut::Endpoint { .. } => {}
        }
        let stops = match self.cut {
            Cut::Endpoint { at, resets } if !is_said(at, self.response()) => Some(resets),
            _ => None,
        };
        if client.what == "502" || client.what == "503" {
            // A reset may overtake the response, so that it does not arrive.
            return match stops {
                Some(_) => Ok(()),
                None => Err(format!("the client is told {}", client.what)),
            };
        }
        let data = match self.method {
            "HEAD" => &[][..],
            _ => &response,
        };
        let (none, trailers) = (Vec::new(), &self.response.trailers);
        let trailers = if self.method == "HEAD" {
            &none
        } else {
            trailers
        };
        // A response that ends with its connection counts as whole wherever that is closed.
        if self.response.framing == Framing::Close && stops == Some(false) {
            return begins("answer", client, data);
        }
        is_of("answer", client, data, trailers)?;
        match (stops, client.outcome) {
            (Some(_), Ending::Whole) if self.method != "HEAD" => {
                Err("an answer that was cut is whole at its client".into())
            }
            (Some(_), _) => Ok(()),
            (None, Ending::Cut) => Err("the answer is cut".into()),
            _ if client.interim != self.interim => {
                Err(format!("interim answers are {:?}", client.interim))
            }
            _ if client.what != self.status.to_string() => {
                Err(format!("the status is {:?}", client.what))
            }
            (None, Ending::Whole) => Ok(()),
        }
    }

    /// Whether the response has something to send during the request and after it.
    pub(super) fn streams(&self) -> bool {
        let has_rest = match self.response.framing {
            Framing::None => false,
            Framing::Length => !self.response.pieces.is_empty(),
            Framing::Chunked | Framing::Close => true,
        };
        self.streams && has_rest && self.method != "HEAD"
    }
}

/// Checks that the data seen is a prefix of the message's data.
fn begins(what: &str, seen: &Seen, data: &[u8]) -> Result<(), String> {
    match data.starts_with(&seen.data) {
        true => Ok(()),
        false => Err(format!("the {what} has other data")),
    }
}

/// Checks that the data seen is a prefix of the message's data, and all of it if the message was whole.
fn is_of(
    what: &str,
    seen: &Seen,
    data: &[u8],
    trailers: &[(String, String)],
) -> Result<(), String> {
    begins(what, seen, data)?;
    if seen.outcome == Ending::Whole && (seen.data.len(), &*seen.trailers) != (data.len(), trailers)
    {
        return Err(format!(
            "of the {what} came {} of {} bytes, and the trailers {:?}",
            seen.data.len(),
            data.len(),
            seen.trailers
        ));
    }
    Ok(())
}

fn pieces() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let length = prop_oneof![4 => 1..40usize, 2 => 1000..6000usize, 1 => 20_000..90_000usize];
    let piece = (length, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]);
    prop::collection::vec(piece, 0..6)
}

fn body(framings: Vec<Framing>) -> impl Strategy<Value = Body> {
    let trailers = prop::collection::vec(("x-[a-z]{1,8}", "[a-z0-9]([a-z ]{0,20}[a-z])?"), 0..4);
    (prop::sample::select(framings), pieces(), trailers).prop_map(|(framing, pieces, trailers)| {
        Body {
            framing,
            pieces: if framing == Framing::None {
                Vec::new()
            } else {
                pieces
            },
            trailers: match framing {
                Framing::Chunked => grouped(trailers),
                _ => Vec::new(),
            },
        }
    })
}

/// Sorts trailers by name: the order of different names has no meaning.
fn grouped(mut trailers: Vec<(String, String)>) -> Vec<(String, String)> {
    trailers.sort_by(|a, b| a.0.cmp(&b.0));
    trailers
}

pub(super) fn cases() -> impl Strategy<Value = Case> {
    use Framing::{Chunked, Close, Length, None};
    (
        prop::sample::select(vec!["GET", "POST", "PUT", "HEAD"]),
        body(vec![None, Length, Chunked, Chunked]),
        prop::collection::vec(Just(103), 0..3),
        prop::sample::select(vec![200, 201, 404, 500]),
        body(vec![None, Length, Chunked, Chunked, Close]),
        any::<bool>(),
        prop_oneof![Just(0), Just(0), 1..3usize],
        any::<(bool, prop::sample::Index)>(),
    )
        .prop_map(
            |(method, request, interim, status, response, streams, cut, (resets, at))| {
                let mut case = Case {
                    method,
                    request,
                    interim,
                    status,
                    response,
                    streams,
                    cut: Cut::Nothing,
                };
                case.cut = match cut {
                    1 => Cut::Client(at.index(case.request(0).concat().len())),
                    2 => Cut::Endpoint {
                        at: at.index(case.response().concat().len()),
                        resets,
                    },
                    _ => Cut::Nothing,
                };
                case
            },
        )
}
