//! The client's side: what it wants and what it has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Display;
use std::mem;

use super::{Name, Request, Response, WILDCARD};

/// Limit of the text with which a response is refused, in bytes.
const REFUSAL_BYTES: usize = 4096;

/// A client's subscription to resources of one type. It outlives streams: what the client has stays in force while
/// there is none, and is not sent again by the next one.
#[derive(Debug)]
pub struct Subscription {
    is_wildcard: bool,
    names: BTreeSet<Name>,
    held: BTreeMap<Name, Held>,
    /// Whether a stream exists, and whether its first message was sent.
    stream: Stream,
    /// Names of which the server does not know yet that they are wanted, or not wanted any more. No name is in both.
    subscribe: BTreeSet<Name>,
    unsubscribe: BTreeSet<Name>,
    /// Answers to responses: the nonce, and why it was refused.
    answers: VecDeque<(Box<str>, Option<String>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    None,
    Fresh,
    Begun,
}

/// What a client knows about a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// It has this version.
    Version(Box<str>),
    /// The server has said that there is none.
    Absent,
}

/// What a response changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News<R> {
    /// A resource is there, or is another one now.
    Is(Name, R),
    /// There is no such resource, or not any more.
    Absent(Name),
    /// A resource was refused: what the client had before stays in force.
    Refused(Name, String),
}

impl Subscription {
    /// A subscription to nothing, or to all that the server chooses.
    pub fn new(is_wildcard: bool) -> Self {
        Subscription {
            is_wildcard,
            names: BTreeSet::new(),
            held: BTreeMap::new(),
            stream: Stream::None,
            subscribe: BTreeSet::new(),
            unsubscribe: BTreeSet::new(),
            answers: VecDeque::new(),
        }
    }

    /// A subscription to the same names of a client that has nothing yet.
    pub fn anew(&self, is_wildcard: bool) -> Self {
        Subscription {
            names: self.names.clone(),
            ..Subscription::new(is_wildcard)
        }
    }

    /// The same on this stream, which goes on: its next message is like a first one. Responses are still to be answered.
    pub fn anew_on_stream(&self, is_wildcard: bool) -> Self {
        Subscription {
            stream: Stream::Fresh,
            answers: self.answers.clone(),
            ..self.anew(is_wildcard)
        }
    }

    /// What the client knows about a resource; `None` until the server has said something about it.
    pub fn held(&self, name: &str) -> Option<&Held> {
        self.held.get(name)
    }

    /// The names that are wanted, without the wildcard.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &Name> {
        self.names.iter()
    }

    /// Whether the name is wanted, apart from the wildcard.
    pub fn is_named(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Records that the client has this version of a resource, from an earlier run. It is wanted.
    pub fn has(&mut self, name: Name, version: Box<str>) {
        self.want(name.clone());
        self.held.insert(name, Held::Version(version));
    }

    /// Wants a resource from now on. False if it was wanted before.
    pub fn want(&mut self, name: Name) -> bool {
        debug_assert_ne!(&*name, WILDCARD);
        let is_new = self.names.insert(name.clone());
        if is_new && self.stream == Stream::Begun {
            // A server that was not told yet that the name was unsubscribed sends the resource again.
            self.unsubscribe.remove(&name);
            self.subscribe.insert(name);
        }
        is_new
    }

    /// Does not want a resource any more, and forgets it, unless the wildcard includes it.
    pub fn forget(&mut self, name: &Name) {
        if !self.names.remove(name) {
            return;
        }
        // What the wildcard includes stays. That there is no such resource is remembered for names only.
        if !self.is_wildcard || self.held.get(name) == Some(&Held::Absent) {
            self.held.remove(name);
        }
        if self.stream == Stream::Begun {
            self.subscribe.remove(name);
            self.unsubscribe.insert(name.clone());
        }
    }

    /// Begins a new stream.
    pub fn connected(&mut self) {
        self.disconnected();
        self.stream = Stream::Fresh;
    }

    /// The stream has ended. What the client has stays in force.
    pub fn disconnected(&mut self) {
        self.stream = Stream::None;
        self.subscribe.clear();
        self.unsubscribe.clear();
        self.answers.clear();
    }

    /// The next message to send, if there is something to say.
    pub fn request(&mut self) -> Option<Request> {
        match self.stream {
            Stream::None => None,
            Stream::Fresh => self.first(),
            Stream::Begun => {
                let answer = self.answers.pop_front();
                let says_nothing = self.subscribe.is_empty() && self.unsubscribe.is_empty();
                if answer.is_none() && says_nothing {
                    return None;
                }
                let (nonce, refused) = answer.unwrap_or_default();
                Some(Request {
                    subscribe: mem::take(&mut self.subscribe).into_iter().collect(),
                    unsubscribe: mem::take(&mut self.unsubscribe).into_iter().collect(),
                    initial_versions: Vec::new(),
                    nonce,
                    refused,
                })
            }
        }
    }

    /// The first message of a stream. There is none while nothing is wanted: it would mean that all is.
    fn first(&mut self) -> Option<Request> {
        if self.names.is_empty() && !self.is_wildcard {
            return None;
        }
        self.stream = Stream::Begun;
        let wildcard = self.is_wildcard.then(|| Name::from(WILDCARD));
        let versions = self.held.iter().filter_map(|(name, held)| match held {
            Held::Version(version) => Some((name.clone(), version.clone())),
            Held::Absent => None,
        });
        Some(Request {
            subscribe: wildcard
                .into_iter()
                .chain(self.names.iter().cloned())
                .collect(),
            initial_versions: versions.collect(),
            ..Request::default()
        })
    }

    /// Takes a response. `check` decides about each resource: one that it refuses is refused by itself, and the others
    /// of the response are used. What the client does not want is ignored: it may have been on its way when the client
    /// unsubscribed.
    pub fn accept<R, N, E: Display>(
        &mut self,
        response: Response<R>,
        mut check: impl FnMut(&Name, R) -> Result<N, E>,
    ) -> Vec<News<N>> {
        let mut news = Vec::new();
        let mut refused = String::new();
        for resource in response.resources {
            let name = resource.name;
            if !self.wants(&name) {
                continue;
            }
            match check(&name, resource.content) {
                Ok(content) => {
                    self.held
                        .insert(name.clone(), Held::Version(resource.version));
                    news.push(News::Is(name, content));
                }
                Err(error) => {
                    // There is one now, whatever it is.
                    if self.held.get(&name) == Some(&Held::Absent) {
                        self.held.remove(&name);
                    }
                    let why = error.to_string();
                    say(&mut refused, &name, &why);
                    news.push(News::Refused(name, why));
                }
            }
        }
        for name in response.removed {
            // Of a name in the wildcard only, nothing is remembered.
            let before = match self.names.contains(&name) {
                true => self.held.insert(name.clone(), Held::Absent),
                false => self.held.remove(&name),
            };
            let is_news = before != Some(Held::Absent);
            if is_news && self.wants(&name) {
                news.push(News::Absent(name));
            }
        }
        let refused = (!refused.is_empty()).then_some(refused);
        self.answers.push_back((response.nonce, refused));
        news
    }

    fn wants(&self, name: &str) -> bool {
        self.is_wildcard || self.names.contains(name)
    }
}

/// Adds the reason why a resource is refused, as long as there is room for it.
fn say(refused: &mut String, name: &str, why: &str) {
    let line = format!("{name}: {why}");
    let separator = if refused.is_empty() { "" } else { "; " };
    if refused.len() + separator.len() + line.len() <= REFUSAL_BYTES {
        refused.push_str(separator);
        refused.push_str(&line);
    } else if refused.is_empty() {
        refused.extend(line.chars().take(REFUSAL_BYTES / 4));
    }
}
