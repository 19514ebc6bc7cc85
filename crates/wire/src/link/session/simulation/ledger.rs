//! The record of all data sent and received on each stream, against which both owners are checked.

use std::collections::BTreeMap;

use super::super::super::frame::{Code, Serial};
use super::super::{MAX_HEADS, Opened, Streams};
use super::choices::Choices;

/// An end of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client = 0,
    Server = 1,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

/// The random properties of a stream.
#[derive(Debug, Clone, Default)]
pub(super) struct LedgerPlan {
    id: usize,
    fill: usize,
    pub(super) is_flow: bool,
    pub(super) wants_answer: bool,
}

impl LedgerPlan {
    /// A flow is identified by its destination, an exchange by its head.
    pub(super) fn destination(&self) -> Vec<u8> {
        if self.is_flow {
            format!("flow {}", self.id).into_bytes()
        } else {
            format!("service {}", self.id % 3).into_bytes()
        }
    }

    pub(super) fn head(&self) -> Vec<u8> {
        let (id, fill) = (self.id, "x".repeat(self.fill));
        format!("GET /items/{id} HTTP/1.1\r\nHost: web\r\nAccept: */*\r\nX-Fill: {fill}\r\n\r\n")
            .into_bytes()
    }

    pub(super) fn scope(&self) -> u32 {
        self.id as u32 % 2
    }
}

/// How a stream ended for one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gone {
    Over,
    Lost { was_sent: bool },
}

/// A stream from the view of one owner.
#[derive(Debug, Default)]
struct View {
    exists: bool,
    sent: usize,
    received: usize,
    unread: usize,
    /// Response heads sent from here, some of which may still be in flight.
    heads: Vec<(Code, Vec<u8>)>,
    heads_told: usize,
    is_answered: bool,
    ended: bool,
    ended_told: bool,
    reset: Option<Code>,
    reset_told: bool,
    gone: Option<Gone>,
    /// A send took only a part, and the stream has not been reported writable since.
    is_blocked: bool,
    /// The same for a head that found no room.
    head_waits: bool,
}

#[derive(Debug, Default)]
struct Record {
    plan: LedgerPlan,
    views: [View; 2],
    refused: bool,
    /// Bytes that each end still has to send before it ends the stream.
    last_bytes: [bool; 2],
}

#[derive(Debug)]
pub(super) struct Ledger {
    records: Vec<Record>,
    /// The open streams of each owner.
    open: [BTreeMap<Serial, usize>; 2],
    /// The stream whose head must come next.
    heading: Option<Serial>,
    /// All bodies are pieces of this pattern.
    pattern: Vec<u8>,
    most_unread: u32,
}

/// Period of the bytes in bodies: not a power of two, because nothing in the protocol may depend on one.
const PERIOD: usize = 4099;
const MOST_BYTES: usize = 64 * 1024;

impl Ledger {
    pub(super) fn new(most_unread: u32) -> Self {
        let mut choices = Choices::seed(0);
        let mut pattern: Vec<_> = (0..PERIOD).map(|_| choices.below(256) as u8).collect();
        let again = pattern.clone();
        while pattern.len() < PERIOD + MOST_BYTES {
            pattern.extend(&again);
        }
        Self {
            records: Vec::new(),
            open: [BTreeMap::new(), BTreeMap::new()],
            heading: None,
            pattern,
            most_unread,
        }
    }

    pub(super) fn records(&self) -> usize {
        self.records.len()
    }

    pub(super) fn refused(&self) -> u64 {
        self.records.iter().filter(|record| record.refused).count() as u64
    }

    pub(super) fn lost(&self) -> u64 {
        let is_lost = |record: &&Record| matches!(record.views[0].gone, Some(Gone::Lost { .. }));
        self.records.iter().filter(is_lost).count() as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        let views = self.records.iter().flat_map(|record| &record.views);
        views.map(|view| view.received as u64).sum()
    }

    /// Draws the properties of the next stream.
    pub(super) fn draw(&self, choices: &mut Choices<'_>) -> LedgerPlan {
        let fill = match choices.below(16) {
            0 => choices.below(60_000),
            1 => choices.below(3000),
            2..5 => choices.below(40),
            _ => 5,
        };
        let kind = choices.below(6);
        LedgerPlan {
            id: self.records.len(),
            fill,
            is_flow: kind == 4,
            wants_answer: kind != 5,
        }
    }

    pub(super) fn open(&mut self, serial: Serial, plan: LedgerPlan) {
        let id = self.records.len();
        let mut record = Record {
            last_bytes: [id.is_multiple_of(2), id.is_multiple_of(3)],
            plan,
            ..Record::default()
        };
        record.views[0].exists = true;
        self.records.push(record);
        let before = self.open[0].insert(serial, id);
        assert_eq!(before, None, "a serial is given twice");
    }

    pub(super) fn open_streams(&self, side: Side) -> usize {
        self.open[side as usize].len()
    }

    pub(super) fn all(&self, side: Side) -> Vec<(Serial, usize)> {
        let open = self.open[side as usize].iter();
        open.map(|(&serial, &id)| (serial, id)).collect()
    }

    pub(super) fn any(&self, side: Side, choices: &mut Choices<'_>) -> Option<(Serial, usize)> {
        let open = &self.open[side as usize];
        // Prefer recent streams, so that the open ones are in different states.
        let at = choices.below(open.len()).min(choices.below(open.len()));
        open.iter().rev().nth(at).map(|(&serial, &id)| (serial, id))
    }

    fn view(&self, side: Side, id: usize) -> &View {
        &self.records[id].views[side as usize]
    }

    fn view_mut(&mut self, side: Side, id: usize) -> &mut View {
        &mut self.records[id].views[side as usize]
    }

    /// Whether this side may still send.
    fn is_sending(&self, side: Side, id: usize) -> bool {
        let view = self.view(side, id);
        let one_way = side == Side::Server && !self.records[id].plan.wants_answer;
        !view.ended && view.reset.is_none() && !one_way
    }

    pub(super) fn may_send(&self, side: Side, id: usize) -> bool {
        let owes_head = side == Side::Server
            && !self.records[id].plan.is_flow
            && self.view(side, id).heads.is_empty();
        self.is_sending(side, id) && !owes_head
    }

    pub(super) fn may_answer(&self, id: usize) -> bool {
        let view = self.view(Side::Server, id);
        let plan = &self.records[id].plan;
        self.is_sending(Side::Server, id) && !plan.is_flow && !view.is_answered && view.sent == 0
    }

    pub(super) fn may_end(&self, side: Side, id: usize) -> bool {
        self.may_send(side, id)
    }

    pub(super) fn owes_last_bytes(&self, side: Side, id: usize) -> bool {
        self.records[id].last_bytes[side as usize]
    }

    pub(super) fn next_bytes(&self, side: Side, id: usize, length: usize) -> Vec<u8> {
        let from = place(side, id, self.view(side, id).sent);
        self.pattern[from..from + length.min(MOST_BYTES)].to_vec()
    }

    pub(super) fn sent(&mut self, side: Side, id: usize, bytes: usize, is_blocked: bool) {
        if bytes > 0 {
            self.records[id].last_bytes[side as usize] = false;
        }
        let view = self.view_mut(side, id);
        view.sent += bytes;
        view.is_blocked |= is_blocked;
    }

    pub(super) fn head_waits(&mut self, id: usize) {
        let view = self.view_mut(Side::Server, id);
        (view.is_blocked, view.head_waits) = (true, true);
    }

    pub(super) fn is_blocked(&self, side: Side, id: usize) -> bool {
        self.view(side, id).is_blocked
    }

    pub(super) fn next_answer(&self, id: usize, interim: bool, long: bool) -> (Code, Vec<u8>) {
        let fill = "y".repeat(if long { 20_000 + id } else { 3 });
        let first = if interim { "100 Continue" } else { "200 OK" };
        let head = format!("HTTP/1.1 {first}\r\nServer: web\r\nX-Fill: {fill}\r\n\r\n");
        (Code((id % 3) as u8), head.into_bytes())
    }

    pub(super) fn answered(&mut self, id: usize, interim: bool, code: Code, head: Vec<u8>) {
        let view = self.view_mut(Side::Server, id);
        // The limit on heads: this is the last one.
        view.is_answered = !interim || view.heads.len() == usize::from(MAX_HEADS) - 1;
        view.heads.push((code, head));
    }

    pub(super) fn unread(&self, side: Side, id: usize) -> usize {
        self.view(side, id).unread
    }

    pub(super) fn consumed(&mut self, side: Side, id: usize, bytes: usize) {
        self.view_mut(side, id).unread -= bytes;
    }

    pub(super) fn end(&mut self, side: Side, serial: Serial, over: bool) {
        let id = self.open[side as usize][&serial];
        self.view_mut(side, id).ended = true;
        if over {
            self.over(side, serial);
        }
    }

    pub(super) fn is_reset(&self, side: Side, id: usize) -> bool {
        self.view(side, id).reset.is_some()
    }

    pub(super) fn reset(&mut self, side: Side, serial: Serial, code: Code, over: bool) {
        let id = self.open[side as usize][&serial];
        self.view_mut(side, id).reset = Some(code);
        if over {
            self.over(side, serial);
        }
    }

    fn over(&mut self, side: Side, serial: Serial) {
        let id = self.open[side as usize]
            .remove(&serial)
            .expect("a stream is over that is not open");
        let one_way = !self.records[id].plan.wants_answer;
        let view = self.view_mut(side, id);
        assert_eq!(view.gone, None, "a stream is over twice");
        view.gone = Some(Gone::Over);
        let sent_all = view.ended || view.reset.is_some() || view.reset_told;
        let got_all = view.ended_told || view.reset_told;
        // The peer also ends a stream that was reset from here, which is not reported.
        let got_all = got_all || view.reset.is_some();
        assert!(
            sent_all || one_way && side == Side::Server,
            "it was not ended here"
        );
        assert!(
            got_all || one_way && side == Side::Client,
            "it was not ended there"
        );
    }

    /// Checks the invariants of an open stream.
    pub(super) fn check(&self, side: Side, serial: Serial, room: usize, link_room: usize) {
        let id = self.open[side as usize][&serial];
        let view = self.view(side, id);
        let other = self.view(side.other(), id);
        assert!(view.received <= other.sent || view.received == 0);
        let may_send = self.may_send(side, id);
        assert!(
            !view.is_blocked || !may_send || room == 0,
            "{side:?} was not told of room on {serial:?}"
        );
        let wants_answer = side == Side::Server && self.may_answer(id);
        assert!(!view.head_waits || !wants_answer || link_room == 0);
        assert!(view.unread <= self.most_unread.max(262_144) as usize);
    }

    /// Checks the final state, when everything is over.
    pub(super) fn check_all(&self, one_way_too: bool) {
        for record in &self.records {
            let [client, server] = &record.views;
            assert!(client.gone.is_some(), "a stream never ends: {record:?}");
            assert_eq!(
                server.exists,
                server.gone.is_some(),
                "at the server: {record:?}"
            );
            match client.gone {
                Some(Gone::Lost { was_sent: false }) => assert!(!server.exists, "it was sent"),
                Some(Gone::Over) if client.reset.is_none() && !client.reset_told => {
                    let one_way = !record.plan.wants_answer;
                    let must = !one_way || one_way_too;
                    assert!(server.exists || !must, "it was never opened: {record:?}");
                    assert!(client.ended);
                    assert!(client.ended_told || one_way);
                    if server.gone == Some(Gone::Over) && server.reset.is_none() {
                        assert_eq!(server.received, client.sent, "{record:?}");
                        assert_eq!(client.received, server.sent, "{record:?}");
                    }
                }
                _ => {}
            }
        }
    }
}

/// Position in the pattern of a byte of a body.
fn place(side: Side, id: usize, at: usize) -> usize {
    (id * 631 + side as usize * 97 + at) % PERIOD
}

/// An owner that records the calls it gets, and checks them.
pub(super) struct Teller<'l> {
    ledger: &'l mut Ledger,
    side: Side,
}

impl<'l> Teller<'l> {
    pub(super) fn new(ledger: &'l mut Ledger, side: Side) -> Self {
        Self { ledger, side }
    }

    fn id(&self, serial: Serial) -> usize {
        let id = self.ledger.open[self.side as usize].get(&serial);
        *id.unwrap_or_else(|| panic!("{:?}: {serial:?} is not open", self.side))
    }

    fn view(&mut self, serial: Serial) -> &mut View {
        let id = self.id(serial);
        self.ledger.view_mut(self.side, id)
    }

    fn begin(&mut self, serial: Serial, id: usize) {
        let record = &mut self.ledger.records[id];
        assert!(!record.views[1].exists, "a stream is opened twice");
        record.views[1].exists = true;
        let before = self.ledger.open[1].insert(serial, id);
        assert_eq!(before, None, "a serial is used twice");
    }

    /// Asserts that this owner has not reset the stream of a reported event.
    fn assert_wanted(&mut self, serial: Serial) {
        let view = self.view(serial);
        assert!(view.reset.is_none(), "what was reset is not heard of");
        assert!(
            !view.ended_told && !view.reset_told,
            "nothing follows the end"
        );
    }
}

impl Streams for Teller<'_> {
    fn opened(&mut self, serial: Serial, what: Opened, destination: &[u8], _: Option<u32>) {
        assert_eq!(self.side, Side::Server);
        assert_eq!(self.ledger.heading, None, "a head follows");
        let text = std::str::from_utf8(destination).expect("text");
        match what {
            Opened::Flow => {
                let id = text.strip_prefix("flow ").and_then(|id| id.parse().ok());
                let id: usize = id.expect("the destination of a flow");
                assert!(self.ledger.records[id].plan.is_flow);
                self.begin(serial, id);
            }
            Opened::Exchange { .. } => self.ledger.heading = Some(serial),
        }
    }

    fn head(&mut self, serial: Serial, code: Code, head: &[u8]) {
        if self.side == Side::Server {
            assert_eq!(
                self.ledger.heading.take(),
                Some(serial),
                "its destination came"
            );
            let text = std::str::from_utf8(head).expect("text");
            let id = text.strip_prefix("GET /items/").and_then(|rest| {
                let (id, _) = rest.split_once(' ')?;
                id.parse().ok()
            });
            let id: usize = id.expect("the head of a request");
            assert_eq!(head, self.ledger.records[id].plan.head());
            assert_eq!(code, Code::OK);
            self.begin(serial, id);
            return;
        }
        self.assert_wanted(serial);
        let id = self.id(serial);
        let [client, server] = &mut self.ledger.records[id].views;
        let expected = server.heads.get(client.heads_told);
        let (expected_code, expected) = expected.expect("a head was answered");
        assert_eq!((code, head), (*expected_code, &expected[..]));
        assert_eq!(client.received, 0, "heads come before bodies");
        client.heads_told += 1;
    }

    fn data(&mut self, serial: Serial, bytes: &[u8]) {
        self.assert_wanted(serial);
        assert!(!bytes.is_empty());
        let (side, id) = (self.side, self.id(serial));
        let received = self.ledger.view(side, id).received;
        let from = place(side.other(), id, received);
        let expected = &self.ledger.pattern[from..from + bytes.len()];
        assert!(bytes == expected, "{side:?}: other bytes than were sent");
        let sent = self.ledger.view(side.other(), id).sent;
        let view = self.ledger.view_mut(side, id);
        view.received += bytes.len();
        view.unread += bytes.len();
        assert!(view.received <= sent, "more than was sent");
    }

    fn ended(&mut self, serial: Serial) {
        self.assert_wanted(serial);
        let (side, id) = (self.side, self.id(serial));
        let other = self.ledger.view(side.other(), id);
        assert!(other.ended, "the other end has not ended it");
        let (sent, heads) = (other.sent, other.heads.len());
        let view = self.ledger.view_mut(side, id);
        assert_eq!(view.received, sent, "it is complete");
        assert!(side == Side::Server || view.heads_told == heads);
        view.ended_told = true;
    }

    fn reset(&mut self, serial: Serial, code: Code) {
        let view = self.view(serial);
        assert!(view.reset.is_none() && !view.reset_told);
        view.reset_told = true;
        let (side, id) = (self.side, self.id(serial));
        let record = &mut self.ledger.records[id];
        let other = &record.views[side.other() as usize];
        if side == Side::Client && !other.exists {
            assert!(code == Code::REFUSED || code == Code::GOING_AWAY);
            record.refused = true;
        } else {
            assert_eq!(other.reset, Some(code));
        }
    }

    fn writable(&mut self, serial: Serial) {
        let view = self.view(serial);
        (view.is_blocked, view.head_waits) = (false, false);
    }

    fn over(&mut self, serial: Serial) {
        self.ledger.over(self.side, serial);
    }

    fn going_away(&mut self, code: Code, _: Option<Serial>) {
        assert!(code == Code::IDLE || code == Code::EXPIRED);
    }

    fn lost(&mut self, serial: Serial, was_sent: bool) {
        let (side, id) = (self.side, self.id(serial));
        self.ledger.open[side as usize].remove(&serial);
        let server_knows = self.ledger.records[id].views[1].exists;
        assert!(side == Side::Server || was_sent || !server_knows);
        let view = self.ledger.view_mut(side, id);
        assert_eq!(view.gone, None);
        view.gone = Some(Gone::Lost { was_sent });
    }
}
