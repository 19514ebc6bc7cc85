//! The calling end of a link that a test has in hand, frame by frame.

use heddle_proxy::Protocol;
use heddle_wire::link::{Code, LinkLimits, Opened, Serial, Session, Streams};

use super::pair::Pair;
use super::refused::{Intruder, intruder, preface};
use crate::support::{Client, GET, Upstream};

/// Proves to be a workload, and says on its link what the test says.
pub(super) struct Caller {
    pub(super) intruder: Intruder,
    pub(super) session: Session,
    pub(super) told: Told,
}

/// What it was told.
#[derive(Default)]
pub(super) struct Told {
    pub(super) away: Option<Code>,
    pub(super) ended: bool,
    /// Heads of answers.
    pub(super) heads: usize,
    /// Streams that were reset, and why.
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
    /// A link of the shop's, if the other node says anything.
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

    /// A link of this caller's, on which it has asked for this.
    pub(super) fn asking(pair: &Pair, who: &str, destination: &[u8]) -> Caller {
        let mut caller = Caller::named(pair, who).unwrap();
        caller.ask(destination);
        caller.send();
        caller
    }

    /// A link of each of these, with a request that the endpoint has.
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

    /// Waits for the next words.
    pub(super) fn hear(&mut self) {
        self.intruder.hear();
        let heard = std::mem::take(&mut self.intruder.heard);
        let _broken = self.session.receive(&heard, 0, &mut self.told);
    }

    /// With what it is told to go, if it is.
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
