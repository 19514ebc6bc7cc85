//! The server's side: which resources a client is owed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::hash::BuildHasher;
use std::mem;
use std::num::NonZeroU64;

use super::{Name, Request, Response, Versioned, WILDCARD};
use single::Single;

mod single;

/// Limit of the names that one client may subscribe to, besides the wildcard, and of their bytes.
const MAX_NAMES: usize = 100_000;
const MAX_NAMES_BYTES: usize = 8 << 20;
/// A response is ended by the resource with which it has at least so many bytes: clients of gRPC accept 4 MiB, unless
/// they are told otherwise.
const RESPONSE_BYTES: usize = 1 << 20;

/// The resources of one type that a server has.
pub trait Resources {
    /// A resource, cheap to clone: every client gets the same one.
    type Content: Clone;

    /// The version and content of a resource. The version is a hash of the content.
    fn get(&self, name: &str) -> Option<(u64, &Self::Content)>;

    /// The names of all that a wildcard subscription includes.
    fn names(&self) -> impl Iterator<Item = &Name>;

    /// Size of a resource's content, in bytes.
    fn bytes(content: &Self::Content) -> usize;
}

/// A client's subscriptions to resources of one type, on one stream, and what it has.
///
/// At most one response is on its way: what changes meanwhile is sent in the next one, in its newest version. So a
/// slow client costs a set of names, and no copies of resources.
#[derive(Debug)]
pub struct Subscriber {
    /// Whether the client has sent its first message.
    has_begun: bool,
    is_wildcard: bool,
    /// Names that the client has subscribed to, besides the wildcard.
    names: BTreeSet<Name>,
    /// Their bytes.
    names_bytes: usize,
    /// Versions that the client has, or will have when it has read what was sent. `None`: it knows that there is none.
    held: BTreeMap<Name, Option<Version>>,
    /// The number of those when they were last packed.
    packed: usize,
    /// Names that may have changed since they were last sent.
    changed: BTreeSet<Name>,
    /// Names that are sent in any case, even if the client has the newest version, or if there is none.
    owed: BTreeSet<Name>,
    /// Whether a response is sent even if it is empty, so that the client knows that there is nothing.
    owes_response: bool,
    /// Number of responses, of which the last one is its nonce.
    sent: u64,
    is_answer_due: bool,
    /// A response is ended by the resource with which it has at least so many bytes.
    response_bytes: usize,
    /// What is sent one by one; `None` for a client that refuses single resources of a response.
    single: Option<Single>,
}

impl Default for Subscriber {
    fn default() -> Self {
        Self::with_response_bytes(RESPONSE_BYTES)
    }
}

/// A version as it is noted for each client, in 8 bytes with the absence of one.
type Version = NonZeroU64;

/// How a version is noted. Of one resource, two versions of 2^64 are not told apart.
fn held_as(version: u64) -> Version {
    NonZeroU64::new(version).unwrap_or(NonZeroU64::MAX)
}

/// What a client's message says about the response before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Nothing, or something about a response that is not the last one.
    None,
    /// The client uses what it got.
    Accepted,
    /// It does not, for this reason. What it refused is not sent again until it changes.
    Refused(String),
}

/// A client wants more names than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany {
    names: usize,
    bytes: usize,
}

impl TooMany {
    /// Than so many, or names of more than so many bytes.
    pub fn of(names: usize, bytes: usize) -> Self {
        TooMany { names, bytes }
    }
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooMany { names, bytes } = self;
        write!(
            f,
            "more than {names} resources are subscribed to, or their names have more than {bytes} bytes"
        )
    }
}

impl std::error::Error for TooMany {}

impl Subscriber {
    /// A client that has said nothing yet, and is sent responses of so many bytes and a resource more.
    pub fn with_response_bytes(response_bytes: usize) -> Self {
        Subscriber {
            has_begun: false,
            is_wildcard: false,
            names: BTreeSet::new(),
            names_bytes: 0,
            held: BTreeMap::new(),
            packed: 0,
            changed: BTreeSet::new(),
            owed: BTreeSet::new(),
            owes_response: false,
            sent: 0,
            is_answer_due: false,
            response_bytes,
            single: None,
        }
    }

    /// From now on, when the client refuses a response with several resources, each of them is sent again by itself.
    pub fn send_refused_singly(&mut self) {
        self.single.get_or_insert_default();
    }

    /// The resources that the client has refused by themselves, and of which it has accepted no other version since.
    pub fn refused(&self) -> impl Iterator<Item = &Name> {
        self.single.iter().flat_map(|single| &single.refused)
    }

    /// Takes a client's message.
    ///
    /// # Errors
    /// When the client wants too many names; the stream cannot go on then.
    pub fn receive(
        &mut self,
        request: Request,
        resources: &impl Resources,
    ) -> Result<Answer, TooMany> {
        let answer = self.answered(&request);
        let is_first = !mem::replace(&mut self.has_begun, true);
        if is_first {
            // A client that names nothing at first wants all; later, that it only answers.
            self.set_wildcard(request.subscribe.is_empty(), resources);
            for (name, version) in request.initial_versions {
                self.changed.insert(name.clone());
                // A version that this server cannot have given is as old as any other.
                let version = u64::from_str_radix(&version, 16).unwrap_or(0);
                self.held.insert(name, Some(held_as(version)));
            }
        }
        // A wildcard counts once, however often a message has it.
        let is_wildcard = |names: &[Name]| names.iter().any(|name| &**name == WILDCARD);
        if is_wildcard(&request.unsubscribe) && self.is_wildcard {
            self.is_wildcard = false;
            self.forget_unsubscribed();
        }
        let wants_all = is_wildcard(&request.subscribe);
        let is_name = |name: &Name| &**name != WILDCARD;
        for name in request.unsubscribe.iter().filter(|name| is_name(name)) {
            self.unsubscribe(name);
        }
        for name in request.subscribe.into_iter().filter(is_name) {
            self.subscribe(name, is_first);
            if self.names.len() > MAX_NAMES || self.names_bytes > MAX_NAMES_BYTES {
                return Err(TooMany::of(MAX_NAMES, MAX_NAMES_BYTES));
            }
        }
        if wants_all {
            self.set_wildcard(true, resources);
        }
        if is_first {
            self.forget_unsubscribed();
        }
        Ok(answer)
    }

    /// Records that a resource was added, changed or removed. Does nothing if the client does not want it.
    pub fn changed(&mut self, name: &Name) {
        if self.wants(name) {
            self.changed.insert(name.clone());
        }
    }

    /// Records that a resource is to be sent again, even if the client has its newest version. Does nothing if the client does
    /// not want it.
    pub fn owe(&mut self, name: &Name) {
        if self.wants(name) {
            self.owed.insert(name.clone());
        }
    }

    /// Records that these resources were added, changed or removed, in time for the smaller of what has changed and what the
    /// client wants.
    pub fn changed_among(&mut self, names: &HashSet<Name, impl BuildHasher>) {
        match self.is_wildcard {
            true => self.changed.extend(names.iter().cloned()),
            false => self.changed.extend(in_both(&self.names, names).cloned()),
        }
    }

    /// Records that any resource may have been added, changed or removed. Versions tell which.
    pub fn all_may_have_changed(&mut self, resources: &impl Resources) {
        self.changed.extend(self.names.iter().cloned());
        if self.is_wildcard {
            self.changed.extend(self.held.keys().cloned());
            self.changed.extend(resources.names().cloned());
        }
    }

    /// Whether the client has sent its first message.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether the client has not answered the last response.
    pub fn is_answer_due(&self) -> bool {
        self.is_answer_due
    }

    /// How many resources the client has, or knows not to be there.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether there is something that the client wants and was not sent.
    pub fn is_owed(&self) -> bool {
        let is_single_due = self.single.as_ref().is_some_and(|one| !one.due.is_empty());
        self.owes_response || !self.owed.is_empty() || !self.changed.is_empty() || is_single_due
    }

    /// Whether the client wants the resource.
    pub fn wants(&self, name: &str) -> bool {
        self.is_wildcard || self.names.contains(name)
    }

    /// Whether the client wants one of these resources.
    pub fn wants_one_of(&self, names: &HashSet<Name, impl BuildHasher>) -> bool {
        (self.is_wildcard && !names.is_empty()) || in_both(&self.names, names).next().is_some()
    }

    /// Names that the client has subscribed to, without the wildcard.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.names.iter()
    }

    /// How many these are, and their bytes.
    pub fn named(&self) -> (usize, usize) {
        (self.names.len(), self.names_bytes)
    }

    /// Whether the client has subscribed to that name, apart from the wildcard.
    pub fn is_named(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether the client has subscribed to all there is.
    pub fn is_wildcard(&self) -> bool {
        self.is_wildcard
    }

    /// The next response, if the client has answered the one before and is owed something.
    pub fn respond<S: Resources>(&mut self, resources: &S) -> Option<Response<S::Content>> {
        if self.is_answer_due {
            return None;
        }
        let (mut sent, mut removed, mut bytes) = (Vec::new(), Vec::new(), 0);
        let single = self.next_single(resources);
        let most_bytes = match &single {
            Some(_) => 1,
            None => self.response_bytes,
        };
        let mut first = single;
        while bytes < most_bytes {
            let owed = first.take().or_else(|| self.owed.pop_first());
            let is_owed = owed.is_some();
            let Some(name) = owed.or_else(|| self.changed.pop_first()) else {
                break;
            };
            self.changed.remove(&name);
            match resources.get(&name) {
                Some((version, content)) => {
                    let now = Some(held_as(version));
                    let had = self.held.insert(name.clone(), now);
                    if is_owed || had != Some(now) {
                        bytes += name.len() + S::bytes(content);
                        let version = format!("{version:016x}").into();
                        sent.push(Versioned {
                            name,
                            version,
                            content: content.clone(),
                        });
                    }
                }
                None => {
                    if let Some(single) = &mut self.single {
                        single.remove(&name);
                    }
                    // Of a name in the wildcard only, nothing is remembered.
                    let had = match self.names.contains(&name) {
                        true => self.held.insert(name.clone(), None),
                        false => self.held.remove(&name),
                    };
                    if is_owed || matches!(had, Some(Some(_))) {
                        bytes += name.len();
                        removed.push(name);
                    }
                }
            }
        }
        let is_empty = sent.is_empty() && removed.is_empty();
        if is_empty && !mem::take(&mut self.owes_response) {
            self.pack();
            return None;
        }
        self.owes_response = false;
        if let Some(single) = &mut self.single {
            single.last = sent.iter().map(|one| one.name.clone()).collect();
        }
        self.sent += 1;
        self.is_answer_due = true;
        Some(Response {
            resources: sent,
            removed,
            nonce: self.sent.to_string().into(),
        })
    }

    /// The next resource that is sent by itself.
    fn next_single(&mut self, resources: &impl Resources) -> Option<Name> {
        let due = &mut self.single.as_mut()?.due;
        while let Some(name) = due.pop_first() {
            if resources.get(&name).is_some() {
                self.owed.remove(&name);
                return Some(name);
            }
            self.changed.insert(name);
        }
        None
    }

    /// Packs what the client has, once it has much more than before: a map that has grown in order is half empty, and
    /// there is one for each client and type.
    fn pack(&mut self) {
        self.packed = self.packed.min(self.held.len());
        if self.held.len() > 2 * self.packed {
            self.packed = self.held.len();
            self.held = mem::take(&mut self.held).into_iter().collect();
        }
    }

    fn answered(&mut self, request: &Request) -> Answer {
        let is_last = self.is_answer_due && *request.nonce == *self.sent.to_string();
        if !is_last {
            return Answer::None;
        }
        self.is_answer_due = false;
        if let Some(single) = &mut self.single {
            single.answered(request.refused.is_some());
        }
        match &request.refused {
            None => Answer::Accepted,
            Some(why) => Answer::Refused(why.clone()),
        }
    }

    fn subscribe(&mut self, name: Name, is_first: bool) {
        // What a client has from an earlier stream is sent only if it is not the newest.
        if !(is_first && self.held.contains_key(&name)) {
            self.owed.insert(name.clone());
        }
        let bytes = name.len();
        if self.names.insert(name) {
            self.names_bytes += bytes;
        }
    }

    fn unsubscribe(&mut self, name: &Name) {
        let had = self.names.remove(name);
        self.names_bytes -= if had { name.len() } else { 0 };
        match self.is_wildcard {
            // The client cannot know whether the wildcard includes the name: it is told.
            true if had => {
                self.owed.insert(name.clone());
            }
            true => {}
            false => {
                if let Some(single) = &mut self.single {
                    single.remove(name);
                }
                self.owed.remove(name);
                self.changed.remove(name);
                self.held.remove(name);
            }
        }
    }

    fn set_wildcard(&mut self, is_wildcard: bool, resources: &impl Resources) {
        let was_wildcard = mem::replace(&mut self.is_wildcard, is_wildcard);
        if is_wildcard && !was_wildcard {
            self.changed.extend(resources.names().cloned());
        }
        self.owes_response |= is_wildcard;
    }

    /// Drops what is known about names that the client does not want.
    fn forget_unsubscribed(&mut self) {
        if self.is_wildcard {
            return;
        }
        let names = &self.names;
        self.owed.retain(|name| names.contains(name));
        self.changed.retain(|name| names.contains(name));
        self.held.retain(|name, _| names.contains(name));
        if let Some(single) = &mut self.single {
            single.retain(|name| names.contains(name));
        }
    }
}

/// The names that are in both sets, in time for the smaller one.
pub fn in_both<'n>(
    some: &'n BTreeSet<Name>,
    others: &'n HashSet<Name, impl BuildHasher>,
) -> impl Iterator<Item = &'n Name> {
    let is_less = some.len() < others.len();
    let looked_up = is_less.then_some(some).into_iter().flatten();
    let gone_through = (!is_less).then_some(others).into_iter().flatten();
    let looked_up = looked_up.filter(|name| others.contains(*name));
    looked_up.chain(gone_through.filter(|name| some.contains(*name)))
}
