//! The calling end of a link, driven by a test frame by frame.

use heddle_proxy::Protocol;
use heddle_wire::link::{Code, LinkLimits, Opened, Serial, Session, Streams};

use super::pair::Pair;
use super::refused::{Intruder, intruder, preface};
use crate::support::{Client, GET, Upstream};

/// Authenticates as a workload, and sends on its link what the test says.
pub(super) struct Caller {
    pub(super) intruder: Intruder,
    pub(super) session: Session,
    pub(super) told: Told,
}

/// Events that the other node caused.
#[derive(Default)]
pub(super) struct Told {
    pub(super) away: Option<Code>,
    pub(super) ended: bool,
    /// Number of response heads.
    pub(super) heads: usize,
    /// Reset streams with their codes.
    pub(super) resets: Vec<(Serial, Code)>,
}

impl Streams for Told {
    fn opened(&mut self, _: Serial, _: Opened, _: &[u8], _: Option<u32>) {}
    fn head(&mut self, _: Serial, _: Code, _: &[u8]) {
        self.heads += 1;
    }
    fn data(&mut self, _: Serial, _: &[u8]) {}
    fn ended(&mut self, _: Serial) {
        self.ended = true;
    }
    fn reset(&mut self, serial: Serial, code: Code) {
        self.resets.push((serial, code));
    }
    fn writable(&mut self, _: Serial) {}
    fn over(&mut self, _: Serial) {}
    fn lost(&mut self, _: Serial, _: bool) {}
    fn going_away(&mut self, code: Code, _: Option<Serial>) {
        self.away = Some(code);
    }
}

impl Caller {
    /// A link of the shop; `None` if the other node refused it.
    pub(super) fn of(pair: &Pair) -> Option<Caller> {
        Caller::named(pair, "shop")
    }

    pub(super) fn named(pair: &Pair, who: &str) -> Option<Caller> {
        let mut caller = Caller {
            intruder: intruder(pair, who, Protocol::Link),
            session: Session::client(LinkLimits::INITIAL),
            told: Told::default(),
        };
        caller.session.connected(0);
        caller.send();
        caller.hear();
        caller.session.token().map(|_| caller)
    }

    /// A link of this caller, with a request for this destination.
    pub(super) fn asking(pair: &Pair, who: &str, destination: &[u8]) -> Caller {
        let mut caller = Caller::named(pair, who).unwrap();
        caller.ask(destination);
        caller.send();
        caller
    }

    /// A link for each of these callers, with a request that has reached the endpoint.
    pub(super) fn served(
        pair: &Pair,
        upstream: &Upstream,
        callers: &[&str],
    ) -> Vec<(Caller, Client)> {
        let here = preface(1, upstream.address, "echo");
        let served = callers.iter().map(|who| {
            let caller = Caller::asking(pair, who, &here);
            (caller, upstream.accept())
        });
        served.collect()
    }

    pub(super) fn send(&mut self) {
        while self.session.wants_transmit() {
            let mut out = Vec::new();
            self.session.transmit(&mut out, 16_000, 0);
            self.intruder.send(&out);
        }
    }

    /// Waits for the next bytes.
    pub(super) fn hear(&mut self) {
        self.intruder.hear();
        let heard = std::mem::take(&mut self.intruder.heard);
        let _broken = self.session.receive(&heard, 0, &mut self.told);
    }

    /// The code with which the other node closed the link; `None` if it only closed the connection.
    pub(super) fn farewell(&mut self) -> Option<Code> {
        while self.told.away.is_none() && !self.intruder.closed {
            self.hear();
        }
        self.told.away
    }

    pub(super) fn ask(&mut self, destination: &[u8]) -> Option<Serial> {
        self.session.open(0, destination, GET.as_bytes(), true).ok()
    }
}
