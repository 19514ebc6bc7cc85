//! Passes the events of a session to the tasks of its streams, at both ends of a link.

use std::rc::Rc;

use heddle_wire::link::{Another, Code, Opened, Serial, Session, Streams};
use heddle_wire::preface::{Kind, Preface};

use super::failure::{code_of, said};
use super::links::ArrivedStream;
use super::{Link, Links, Stream};
use crate::door::Door;
use crate::entry::Inbound;
use crate::failure::Reason;
use crate::failure::StreamFailure;

pub(super) struct Receiver<'a> {
    links: &'a Links,
    link: &'a Rc<Link>,
    /// Streams that are refused, or broke here, with their codes: the session cannot be told while it calls this
    /// receiver.
    refused: Vec<(Serial, Code)>,
}

impl<'a> Receiver<'a> {
    pub(super) fn new(links: &'a Links, link: &'a Rc<Link>) -> Self {
        Receiver {
            links,
            link,
            refused: Vec::new(),
        }
    }

    /// Resets the refused streams in the session.
    pub(super) fn refuse(self, session: &mut Session) {
        for (serial, code) in self.refused {
            session.reset(serial, code);
        }
    }

    /// Starts to serve a stream that the other end has opened.
    ///
    /// # Errors
    /// The reason for which it is refused.
    fn begin(&self, slot: usize, destination: &[u8], kind: Kind) -> Result<(), Reason> {
        let (links, link) = (self.links, self.link);
        let Some((caller, called, peer)) = link.end.called() else {
            return Err(Reason::LinkLost);
        };
        let parsed = Preface::parse(destination).ok().flatten();
        let preface =
            parsed.filter(|(preface, length)| preface.kind == kind && *length == destination.len());
        let (preface, _) = preface.ok_or(Reason::EndpointGone)?;
        let inbound = Inbound::of(&preface, called, caller).map_err(|_| Reason::EndpointGone)?;
        let permit = links.env.permit(&inbound)?;
        let door = Door::inbound_of(inbound, None);
        let stream = Stream::at(link, slot, kind == Kind::Http);
        let member = link.elsewhere.member(kind);
        links.arrives(ArrivedStream {
            door,
            permit,
            stream,
            member,
            peer,
        });
        Ok(())
    }

    /// Counts a stream that the caller has reset, and gives the link up when there are too many.
    fn counts_reset(&self) {
        let (env, link) = (&self.links.env, self.link);
        let Some((caller, called, peer)) = link.end.called() else {
            return;
        };
        if link.resets.count(env.clock.now_ms()) {
            return;
        }
        link.parts_by.set(0);
        let mut said = env.said_of_links.borrow_mut();
        if said.may_name("resets", env.clock.now()) {
            tracing::warn!(
                %caller, %called, %peer,
                "a link is given up with all of its streams: too many of its streams are reset by the caller before \
                 they are answered; find out what opens and cancels so many"
            );
        }
    }

    fn fails(&mut self, serial: Serial, reason: Reason) {
        let failed = StreamFailure {
            reason,
            was_sent: true,
        };
        self.link.slots.borrow_mut().failed(serial, failed);
        self.refused.push((serial, code_of(reason)));
    }
}

impl Streams for Receiver<'_> {
    fn resumed(&mut self) {
        self.links.env.stats.links_resumed.inc();
    }

    fn opened(
        &mut self,
        serial: Serial,
        what: Opened,
        destination: &[u8],
        destination_id: Option<u32>,
    ) {
        let (kind, id) = match what {
            Opened::Exchange { wants_answer: true } => (Kind::Http, destination_id),
            Opened::Flow => (Kind::Bytes, None),
            // An exchange that wants no answer does not exist in HTTP.
            Opened::Exchange {
                wants_answer: false,
            } => return self.refused.push((serial, Code::MALFORMED)),
        };
        let slot = self.link.slots.borrow_mut().welcome(serial, id);
        // `None`: a task that has served the same destination continues with this stream.
        let Some(slot) = slot else { return };
        if let Err(reason) = self.begin(slot, destination, kind) {
            self.link.slots.borrow_mut().remove(slot);
            self.refused.push((serial, code_of(reason)));
        }
    }

    fn head(&mut self, serial: Serial, _code: Code, head: &[u8]) {
        let kept = self
            .link
            .slots
            .borrow_mut()
            .head(serial, &self.links.env.pool, head);
        if kept.is_err() {
            self.fails(serial, Reason::Memory);
        }
    }

    fn data(&mut self, serial: Serial, bytes: &[u8]) {
        let kept = self
            .link
            .slots
            .borrow_mut()
            .data(serial, &self.links.env.pool, bytes);
        if kept.is_err() {
            self.fails(serial, Reason::Memory);
        }
    }

    fn ended(&mut self, serial: Serial) {
        self.link.slots.borrow_mut().ended(serial);
    }

    fn reset(&mut self, serial: Serial, code: Code) {
        let mut slots = self.link.slots.borrow_mut();
        let was_answered = slots.was_answered(serial);
        slots.reset(serial, said(code));
        drop(slots);
        if !was_answered {
            self.counts_reset();
        }
    }

    fn writable(&mut self, serial: Serial) {
        self.link.slots.borrow_mut().writable(serial);
    }

    fn over(&mut self, _serial: Serial) {}

    fn going_away(&mut self, _code: Code, _last: Option<Serial>) {
        self.link.closing.set(true);
    }

    fn asked(&mut self, what: Another) {
        self.link.of_pair.asked(what);
    }

    fn lost(&mut self, serial: Serial, was_sent: bool) {
        let failed = StreamFailure {
            reason: Reason::LinkLost,
            was_sent,
        };
        self.link.slots.borrow_mut().failed(serial, failed);
    }
}
