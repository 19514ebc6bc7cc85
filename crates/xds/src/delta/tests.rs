use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

/// A source of resources whose content is a number. A number's version follows from it.
#[derive(Debug, Default)]
struct Source {
    names: BTreeSet<Name>,
    contents: BTreeMap<Name, u64>,
}

impl Source {
    fn set(&mut self, name: &str, content: Option<u64>) -> Name {
        let name = Name::from(name);
        match content {
            Some(content) => {
                self.names.insert(name.clone());
                self.contents.insert(name.clone(), content);
            }
            None => {
                self.names.remove(&name);
                self.contents.remove(&name);
            }
        }
        name
    }
}

impl Resources for Source {
    type Content = u64;

    fn get(&self, name: &str) -> Option<(u64, &u64)> {
        let content = self.contents.get(name)?;
        Some((content + 1_000, content))
    }

    fn names(&self) -> impl Iterator<Item = &Name> {
        self.names.iter()
    }

    fn bytes(_: &u64) -> usize {
        // Three fit into one response.
        400_000
    }
}

/// Contents that clients refuse.
fn is_refused(content: u64) -> bool {
    content % 5 == 4
}

fn check(_: &Name, content: u64) -> Result<u64, String> {
    match is_refused(content) {
        true => Err(format!("{content} is refused")),
        false => Ok(content),
    }
}

/// A server and one client, and what is on its way between them.
struct Wire {
    source: Source,
    server: Subscriber,
    client: Subscription,
    requests: VecDeque<Request>,
    responses: VecDeque<Response<u64>>,
    /// What the client uses.
    view: BTreeMap<Name, u64>,
    answers: Vec<Answer>,
}

impl Wire {
    fn new(is_wildcard: bool) -> Wire {
        let mut client = Subscription::new(is_wildcard);
        client.connected();
        Wire {
            source: Source::default(),
            server: Subscriber::default(),
            client,
            requests: VecDeque::new(),
            responses: VecDeque::new(),
            view: BTreeMap::new(),
            answers: Vec::new(),
        }
    }

    fn set(&mut self, name: &str, content: Option<u64>) {
        let name = self.source.set(name, content);
        self.server.changed(&name);
    }

    fn want(&mut self, name: &str) {
        self.client.want(name.into());
    }

    fn forget(&mut self, name: &str) {
        self.client.forget(&name.into());
        if self.client.held(name).is_none() {
            self.view.remove(name);
        }
    }

    fn client_sends(&mut self) -> bool {
        let request = self.client.request();
        let any = request.is_some();
        self.requests.extend(request);
        any
    }

    fn server_reads(&mut self) -> bool {
        let Some(request) = self.requests.pop_front() else {
            return false;
        };
        let answer = self.server.receive(request, &self.source).unwrap();
        if answer != Answer::None {
            self.answers.push(answer);
        }
        true
    }

    fn server_sends(&mut self) -> bool {
        let response = self.server.respond(&self.source);
        let any = response.is_some();
        self.responses.extend(response);
        any
    }

    fn client_reads(&mut self) -> bool {
        let Some(response) = self.responses.pop_front() else {
            return false;
        };
        for news in self.client.accept(response, check) {
            match news {
                News::Is(name, content) => _ = self.view.insert(name, content),
                News::Absent(name) => _ = self.view.remove(&name),
                News::Refused(..) => {}
            }
        }
        true
    }

    fn cut(&mut self) {
        self.requests.clear();
        self.responses.clear();
        self.server = Subscriber::default();
        self.client.connected();
    }

    /// Delivers everything. Returns the responses that were sent.
    fn settle(&mut self) -> Vec<Response<u64>> {
        let mut sent = Vec::new();
        loop {
            let mut any = self.client_sends();
            any |= self.server_reads();
            any |= self.server_sends();
            sent.extend(self.responses.iter().cloned());
            any |= self.client_reads();
            if !any {
                return sent;
            }
        }
    }

    fn names_sent(&mut self) -> Vec<String> {
        let sent = self.settle();
        let resources = sent.iter().flat_map(|response| &response.resources);
        resources
            .map(|resource| resource.name.to_string())
            .collect()
    }
}

#[test]
fn a_client_gets_what_it_wants_and_each_change_once() {
    let mut wire = Wire::new(false);
    wire.set("a", Some(1));
    wire.set("b", Some(2));
    assert!(
        wire.settle().is_empty(),
        "nothing is wanted: nothing is said"
    );
    wire.want("a");
    assert_eq!(wire.names_sent(), ["a"]);
    wire.set("b", Some(3));
    assert!(wire.settle().is_empty());
    wire.set("a", Some(5));
    assert_eq!(wire.names_sent(), ["a"]);
    // Set to what it was.
    wire.set("a", Some(5));
    assert!(wire.settle().is_empty());
    assert_eq!(wire.view, BTreeMap::from([("a".into(), 5)]));
}

#[test]
fn a_name_without_a_resource_is_answered_until_there_is_one() {
    let mut wire = Wire::new(false);
    wire.want("a");
    let sent = wire.settle();
    assert_eq!(sent[0].removed, ["a".into()]);
    assert_eq!(wire.client.held("a"), Some(&Held::Absent));
    wire.set("a", Some(1));
    assert_eq!(wire.names_sent(), ["a"]);
    wire.set("a", None);
    assert_eq!(wire.settle()[0].removed, ["a".into()]);
    assert!(wire.view.is_empty());
}

#[test]
fn a_name_that_is_subscribed_to_again_is_sent_again() {
    let mut wire = Wire::new(false);
    wire.set("a", Some(1));
    wire.want("a");
    wire.settle();
    wire.forget("a");
    wire.want("a");
    assert_eq!(wire.names_sent(), ["a"]);
    // The server was told of a name that is gone by the time it is wanted again and given up.
    wire.forget("a");
    wire.want("a");
    wire.forget("a");
    assert!(wire.names_sent().is_empty());
    assert!(!wire.server.wants("a"));
}

#[test]
fn a_new_stream_sends_only_what_changed_meanwhile() {
    for is_wildcard in [false, true] {
        let mut wire = Wire::new(is_wildcard);
        for (name, content) in [("a", 1), ("b", 2), ("c", 3)] {
            wire.set(name, Some(content));
            wire.want(name);
        }
        wire.settle();
        wire.cut();
        wire.source.set("b", Some(6));
        wire.source.set("c", None);
        let sent = wire.settle();
        let names = sent.iter().flat_map(|one| &one.resources);
        let names: Vec<_> = names.map(|resource| &*resource.name).collect();
        assert_eq!(names, ["b"]);
        assert_eq!(sent[0].removed, ["c".into()]);
    }
}

#[test]
fn a_first_message_without_names_wants_all_and_gets_an_answer() {
    let mut server = Subscriber::default();
    let mut source = Source::default();
    server.receive(Request::default(), &source).unwrap();
    let response = server.respond(&source).unwrap();
    assert!(response.resources.is_empty() && response.removed.is_empty());
    // An answer that names nothing does not begin anew, and a wrong nonce is no answer.
    let answer = |nonce: &str| Request {
        nonce: nonce.into(),
        ..Request::default()
    };
    let name = source.set("a", Some(1));
    server.changed(&name);
    assert_eq!(server.receive(answer("7"), &source), Ok(Answer::None));
    assert_eq!(server.respond(&source), None, "one response at a time");
    let nonce = response.nonce;
    assert_eq!(
        server.receive(answer(&nonce), &source),
        Ok(Answer::Accepted)
    );
    assert_eq!(server.respond(&source).unwrap().resources.len(), 1);
    assert_eq!(server.receive(answer(&nonce), &source), Ok(Answer::None));
}

#[test]
fn a_name_that_leaves_the_names_beside_a_wildcard_is_answered() {
    let mut wire = Wire::new(true);
    wire.set("a", Some(1));
    wire.want("a");
    wire.want("none");
    wire.settle();
    wire.forget("a");
    wire.forget("none");
    let sent = wire.settle();
    assert_eq!(&*sent[0].resources[0].name, "a");
    assert_eq!(sent[0].removed, ["none".into()]);
    assert_eq!(wire.view, BTreeMap::from([("a".into(), 1)]));
}

#[test]
fn what_is_refused_is_refused_by_itself_and_sent_again_when_it_changes() {
    let mut wire = Wire::new(false);
    for (name, content) in [("a", 1), ("b", 2)] {
        wire.set(name, Some(content));
        wire.want(name);
    }
    wire.settle();
    wire.set("a", Some(4));
    wire.set("b", Some(3));
    wire.answers.clear();
    wire.settle();
    assert_eq!(wire.answers, [Answer::Refused("a: 4 is refused".into())]);
    let both = |a, b| BTreeMap::from([("a".into(), a), ("b".into(), b)]);
    assert_eq!(wire.view, both(1, 3), "the last good one stays");
    wire.set("a", Some(4));
    assert!(wire.settle().is_empty());
    wire.set("a", Some(5));
    wire.settle();
    assert_eq!(wire.view, both(5, 3));
}

#[test]
fn a_slow_client_gets_only_the_newest_version_and_no_response_is_too_long() {
    let mut wire = Wire::new(true);
    wire.client_sends();
    wire.server_reads();
    assert!(wire.server_sends(), "there is nothing");
    for content in 0..100 {
        for name in ["a", "b", "c", "d"] {
            wire.set(name, Some(content * 5));
        }
        assert!(!wire.server_sends());
    }
    let sent = wire.settle();
    let lengths: Vec<usize> = sent.iter().map(|one| one.resources.len()).collect();
    assert_eq!(lengths, [0, 3, 1]);
    assert!(wire.view.values().all(|content| *content == 495));
}

#[test]
fn too_many_names_end_the_stream() {
    let mut server = Subscriber::default();
    let subscribe = (0..100_001).map(|number| number.to_string().into());
    let request = Request {
        subscribe: subscribe.collect(),
        ..Request::default()
    };
    let refused = server.receive(request, &Source::default());
    assert!(refused.is_err());
}

#[test]
fn names_of_too_many_bytes_end_the_stream() {
    let mut server = Subscriber::default();
    let long = "x".repeat(1 << 20);
    let ended = (0..100).any(|number| {
        let request = Request {
            subscribe: vec![format!("{number}{long}").into()],
            ..Request::default()
        };
        server.receive(request, &Source::default()).is_err()
    });
    assert!(ended && server.names().count() < 10);
}

/// However often a message has it, the wildcard is one subscription.
#[test]
fn a_wildcard_in_a_message_many_times_costs_what_one_does() {
    let mut source = Source::default();
    for number in 0..10_000 {
        source.set(&format!("name{number:05}"), Some(1));
    }
    let mut server = Subscriber::default();
    let request = Request {
        subscribe: vec![WILDCARD.into(); 300_000],
        ..Request::default()
    };
    let began = std::time::Instant::now();
    server.receive(request, &source).expect("taken");
    assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
}

/// Names that are compared and not sent do not fill a response: the one that changed is behind megabytes of them.
#[test]
fn many_names_without_news_hold_up_nothing() {
    let mut source = Source::default();
    let long = "x".repeat(1_000);
    let name = |number: u32| format!("{number:05}{long}");
    for number in 0..5_000 {
        source.set(&name(number), Some(1));
    }
    let mut server = Subscriber::default();
    server.receive(Request::default(), &source).expect("taken");
    while let Some(response) = server.respond(&source) {
        let answer = Request {
            nonce: response.nonce,
            ..Request::default()
        };
        server.receive(answer, &source).expect("taken");
    }
    let last = source.set(&name(4_999), Some(2));
    server.all_may_have_changed(&source);
    let response = server.respond(&source).expect("news");
    assert_eq!(response.resources.len(), 1);
    assert_eq!(response.resources[0].name, last);
    assert!(!server.is_owed());
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Set(u8, Option<u64>),
    Want(u8),
    Forget(u8),
    ClientSends,
    ServerReads,
    ServerSends,
    ClientReads,
    Cut,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u8..6, proptest::option::weighted(0.8, 0u64..12)).prop_map(|(n, c)| Step::Set(n, c)),
        3 => (0u8..6).prop_map(Step::Want),
        2 => (0u8..6).prop_map(Step::Forget),
        4 => Just(Step::ClientSends),
        4 => Just(Step::ServerReads),
        4 => Just(Step::ServerSends),
        4 => Just(Step::ClientReads),
        1 => Just(Step::Cut),
    ];
    proptest::collection::vec(step, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whatever happened, and however late messages were: once all are delivered, the client has what the source has.
    #[test]
    fn a_client_ends_with_what_the_source_has(is_wildcard: bool, steps in steps()) {
        let mut wire = Wire::new(is_wildcard);
        let mut wanted = BTreeSet::new();
        for step in steps {
            match step {
                Step::Set(name, content) => wire.set(&name.to_string(), content),
                Step::Want(name) => {
                    wanted.insert(name);
                    wire.want(&name.to_string());
                }
                Step::Forget(name) => {
                    wanted.remove(&name);
                    wire.forget(&name.to_string());
                }
                Step::ClientSends => _ = wire.client_sends(),
                Step::ServerReads => _ = wire.server_reads(),
                Step::ServerSends => _ = wire.server_sends(),
                Step::ClientReads => _ = wire.client_reads(),
                Step::Cut => wire.cut(),
            }
        }
        wire.settle();
        for number in 0..6 {
            let name = number.to_string();
            let is_wanted = wanted.contains(&number) || is_wildcard;
            let there = wire.source.contents.get(&*name).copied().filter(|_| is_wanted);
            let used = wire.view.get(&*name).copied();
            match there {
                Some(content) if is_refused(content) => prop_assert_ne!(used, there),
                there => prop_assert_eq!(used, there, "{}", name),
            }
            // A client that refuses what is there stays with what it had, which may be nothing.
            if !there.is_some_and(is_refused) {
                let is_absent = wanted.contains(&number) && there.is_none();
                let knows = wire.client.held(&name) == Some(&Held::Absent);
                prop_assert_eq!(knows, is_absent, "{}", name);
            }
            prop_assert_eq!(wire.server.wants(&name) || wanted.is_empty(), is_wanted || wanted.is_empty());
        }
        // Nothing is left to say.
        prop_assert!(wire.settle().is_empty());
    }
}
