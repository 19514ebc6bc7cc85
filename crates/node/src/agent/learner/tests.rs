use std::collections::BTreeSet;
use std::net::IpAddr;

use heddle_model::{Mesh, NodeName};
use heddle_proxy::Ticket;

use heddle_model::WorkloadName;

use super::*;

const FORGET_AFTER: Duration = Duration::from_secs(600);

/// A node whose control plane is the test.
struct Side {
    questions: Questions,
    learner: Learner,
    mesh: NodeMesh,
    now: Instant,
    /// What the control plane was told.
    named: BTreeSet<String>,
}

fn caller(name: &str) -> Asker {
    Asker::Workload(WorkloadName::new("shop", name).unwrap())
}

fn address(number: usize) -> Dependency {
    let [.., a, b] = number.to_be_bytes();
    Dependency::Address(IpAddr::from([10, 0, a, b]))
}

impl Side {
    fn new() -> Side {
        let (questions, now) = (Questions::default(), Instant::now());
        let mut mesh = NodeMesh::on_demand(NodeName::parse("n1").unwrap());
        mesh.connected();
        let learned = Learned::default();
        let mut side = Side {
            learner: Learner::new(questions.clone(), learned, FORGET_AFTER, now),
            questions,
            mesh,
            now,
            named: BTreeSet::new(),
        };
        side.turn();
        side.named.clear();
        side
    }

    fn ask(&self, number: usize, of: &str) -> Result<Ticket, Reason> {
        self.questions.ask(address(number), &caller(of), 1)
    }

    /// One turn. Returns how many names the control plane is told.
    fn turn(&mut self) -> usize {
        self.learner.turn(&mut self.mesh, self.now);
        let mut told = 0;
        while let Some(request) = self.mesh.request() {
            told += request.subscribe.len();
            self.named.extend(request.subscribe);
            for name in &request.unsubscribe {
                self.named.remove(name);
            }
        }
        told
    }

    /// The control plane answers all that was named.
    fn answer(&mut self, state: DependencyState) {
        let learned = self.learner.learned.clone();
        let named: Vec<(Dependency, DependencyState)> = learned
            .lock()
            .iter()
            .map(|(one, _)| (one.clone(), state))
            .collect();
        self.learner.answered(&named);
    }

    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    fn learned_by(&self, of: &str) -> usize {
        let learned = self.learner.learned.lock();
        let is_of = |(_, named): &(&Dependency, &Named)| named.by == Some(caller(of));
        let counted = learned.iter().filter(is_of).count();
        assert_eq!(learned.share(&caller(of)).all, counted);
        counted
    }
}

#[test]
fn what_several_callers_ask_is_named_once() {
    let mut side = Side::new();
    let _tickets = [(1, "a"), (1, "b"), (2, "b")].map(|(number, of)| side.ask(number, of));
    assert_eq!(side.turn(), 2);
    assert_eq!(side.turn(), 0);
    let _late = side.ask(1, "c");
    assert_eq!(side.turn(), 0);
    let gone = side.ask(3, "c");
    drop(gone);
    assert_eq!(side.turn(), 0, "no caller waits for it any more");
}

#[test]
fn a_scanner_has_its_rate_and_others_do_not_wait_behind_it() {
    let mut side = Side::new();
    let (mut told, mut next) = (0, 0);
    let mut tickets: VecDeque<Ticket> = VecDeque::new();
    // Turns are not in step with whole milliseconds.
    for ms in 0..2_000 {
        // As fast as it can: what waits is given up for the next.
        for _ in 0..40 {
            if tickets.len() >= 100 {
                tickets.pop_front();
            }
            tickets.extend(side.ask(next, "scanner"));
            next += 1;
        }
        if ms % 500 == 250 {
            let _other = side.ask(60_000 + ms, "other").unwrap();
            told += side.turn() - 1;
            assert!(side.named.contains(&address(60_000 + ms).to_string()));
        } else {
            told += side.turn();
        }
        side.answer(DependencyState::Absent);
        side.now += Duration::from_micros(if ms % 2 == 0 { 100 } else { 1_900 });
    }
    let most = (BURST + 2 * PER_SECOND) as usize;
    assert!((most - 20..=most).contains(&told), "{told} names in 2 s");
}

#[test]
fn what_a_caller_asks_and_gives_up_again_takes_no_memory() {
    let mut side = Side::new();
    // Its rate is used up, and something that it still asks is first in its queue.
    for number in 0..BURST as usize {
        let _ticket = side.ask(number, "a").unwrap();
        side.turn();
        side.answer(DependencyState::There);
    }
    let held = side.ask(10_000, "a").unwrap();
    for number in 20_000..30_000 {
        let _given_up = side.ask(number, "a").unwrap();
        side.turn();
    }
    let waiting = |side: &Side| {
        side.learner
            .callers
            .values()
            .map(|one| one.waiting.len())
            .max()
    };
    assert!((2..=WAITING).contains(&waiting(&side).unwrap_or(0)));
    // What it still asks has its turn.
    side.pass(20);
    side.turn();
    assert!(side.named.contains(&address(10_000).to_string()));
    drop(held);
}

#[test]
fn a_caller_keeps_few_names_that_do_not_exist_and_takes_no_place_of_another() {
    let mut side = Side::new();
    let other = side.ask(60_000, "other").unwrap();
    side.turn();
    drop(other);
    for number in 0..1_000 {
        let _ticket = side.ask(number, "scanner").unwrap();
        side.pass(10);
        side.turn();
        side.answer(DependencyState::Absent);
    }
    assert_eq!(side.learned_by("scanner"), ABSENT_PER_CALLER);
    assert_eq!(side.learned_by("other"), 1);
    // The newest are kept, and the control plane knows of the others that they are not wanted.
    assert!(side.named.contains(&address(999).to_string()));
    assert!(!side.named.contains(&address(0).to_string()));
    assert_eq!(side.named.len(), ABSENT_PER_CALLER + 1);
    // What exists is not counted with them, and has a limit as well.
    for number in 10_000..10_000 + PER_CALLER {
        let _ticket = side.ask(number, "user").unwrap();
        side.pass(10);
        side.turn();
        side.answer(DependencyState::There);
    }
    assert_eq!(side.learned_by("user"), PER_CALLER);
    let _ticket = side.ask(20_000, "user").unwrap();
    side.pass(10);
    side.turn();
    assert_eq!(side.learned_by("user"), PER_CALLER);
}

#[test]
fn what_is_not_used_for_long_is_forgotten_but_not_what_is_asked_again() {
    let mut side = Side::new();
    for number in [1, 2] {
        let _ticket = side.ask(number, "a").unwrap();
        side.turn();
    }
    side.answer(DependencyState::There);
    side.pass(599_000);
    let _ticket = side.ask(2, "b").unwrap();
    side.turn();
    side.pass(11_000);
    side.turn();
    assert_eq!(side.named, BTreeSet::from([address(2).to_string()]));
    side.pass(600_000);
    side.turn();
    assert!(side.named.is_empty());
}

#[test]
fn what_was_known_in_an_earlier_run_is_named_at_once() {
    let mut side = Side::new();
    let known = [1, 2].map(|number| (address(number), DependencyState::Absent));
    side.learner.recall(&known, &mut side.mesh, side.now);
    assert_eq!(side.turn(), 2);
    let _ticket = side.ask(1, "a").unwrap();
    assert_eq!(side.turn(), 0);
    let status = side.learner.learned.status(&Mesh::default());
    assert_eq!((status.learned.len(), &status.learned[0].by), (2, &None));
}

#[test]
fn a_full_node_forgets_for_a_new_caller_what_the_largest_one_has_not_used() {
    let mut side = Side::new();
    for caller in 0..2 {
        for number in 0..2_200 {
            let _ticket = side.ask(caller * 2_200 + number, &format!("large-{caller}"));
            side.pass(10);
            side.turn();
            side.answer(DependencyState::There);
        }
    }
    let most = side.learned_by("large-0") + side.learned_by("large-1");
    assert_eq!(most, 4_096);
    let ticket = side.ask(60_000, "small").unwrap();
    side.turn();
    assert!(side.named.contains(&address(60_000).to_string()));
    assert_eq!(side.learned_by("small"), 1);
    assert_eq!(side.named.len(), 4_096);
    drop(ticket);
}

#[test]
fn what_cannot_be_used_is_named_less_until_it_can() {
    let mut side = Side::new();
    for number in 0..8 {
        let _ticket = side.ask(number, "a").unwrap();
        side.turn();
        side.answer(DependencyState::There);
        side.pass(1);
    }
    side.learner.forget_newest(&mut side.mesh);
    side.turn();
    assert_eq!(side.named.len(), 6);
    assert!(side.named.contains(&address(0).to_string()));
}

#[test]
fn questions_wait_for_a_control_plane_that_restarts_and_not_for_one_that_is_away() {
    let mut side = Side::new();
    side.learner.disconnected();
    assert!(side.ask(1, "a").is_ok());
    side.learner.connected();
    side.learner.disconnected();
    assert!(side.ask(1, "a").is_ok());
    side.learner.disconnected();
    assert_eq!(side.ask(1, "a").err(), Some(Reason::DiscoveryUnavailable));
    side.learner.connected();
    side.learner.without_mesh();
    assert_eq!(side.ask(1, "a").err(), Some(Reason::DiscoveryUnavailable));
    side.learner.connected();
    assert!(side.ask(1, "a").is_ok());
}

#[test]
fn while_an_answer_is_outstanding_names_are_gathered() {
    let mut side = Side::new();
    let _tickets = [1, 2, 3].map(|number| side.ask(number, "a"));
    assert_eq!(side.turn(), 3);
    let _more = [4, 5].map(|number| side.ask(number, "a"));
    side.pass(19);
    assert_eq!(side.turn(), 0);
    assert!(side.learner.next(side.now) <= side.now + Duration::from_millis(1));
    side.pass(1);
    assert_eq!(side.turn(), 2);
    // Not when everything is answered.
    side.answer(DependencyState::There);
    let _last = side.ask(6, "a");
    assert_eq!(side.turn(), 1);
}

#[test]
fn a_caller_does_not_wait_for_answers_to_others_as_long_as_few_ask() {
    let mut side = Side::new();
    for (number, of) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let _ticket = side.ask(number, of);
        assert_eq!(side.turn(), 1, "{of}");
        side.pass(1);
    }
    // As many messages as may be under way.
    let _ticket = side.ask(4, "e");
    assert_eq!(side.turn(), 0);
    side.pass(15);
    assert_eq!(side.turn(), 0);
    assert_eq!(
        side.learner.next(side.now),
        side.now + Duration::from_millis(1)
    );
    side.pass(1);
    assert_eq!(side.turn(), 1, "the first is long ago");
    side.answer(DependencyState::There);
    for number in 10..20 {
        let _ticket = side.ask(number, "a");
        assert_eq!(side.turn(), 1);
        side.answer(DependencyState::Absent);
    }
}

#[test]
fn what_waits_for_an_answer_is_named_as_soon_as_that_has_come() {
    let mut side = Side::new();
    let _first = side.ask(1, "a");
    assert_eq!(side.turn(), 1);
    let _next = side.ask(2, "a");
    side.pass(5);
    assert_eq!(side.turn(), 0);
    let rests = Duration::from_millis(15);
    assert_eq!(side.learner.next(side.now), side.now + rests);
    side.answer(DependencyState::There);
    assert_eq!(side.learner.next(side.now), side.now);
    assert_eq!(side.turn(), 1);
    // Another caller's turn changes nothing about that.
    let _third = side.ask(3, "a");
    let _other = side.ask(4, "b");
    side.pass(15);
    assert_eq!(side.turn(), 1, "of the other one");
    side.pass(5);
    assert_eq!(side.turn(), 1);
}

#[test]
fn a_caller_that_has_used_up_its_rate_is_looked_at_when_it_may_ask_again() {
    let mut side = Side::new();
    let tickets: Vec<_> = (0..=100).map(|number| side.ask(number, "a")).collect();
    side.turn();
    drop(tickets);
    let tickets: Vec<_> = (200..=300).map(|number| side.ask(number, "a")).collect();
    side.answer(DependencyState::There);
    side.turn();
    side.answer(DependencyState::There);
    let _waits = side.ask(400, "a");
    side.turn();
    let next = side.learner.next(side.now);
    let token = Duration::from_millis(u64::from(1_000 / PER_SECOND));
    assert!(
        next > side.now && next <= side.now + token,
        "{:?}",
        next - side.now
    );
    side.now = next;
    assert_eq!(side.turn(), 1);
    drop(tickets);
}
