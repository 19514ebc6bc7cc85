use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use heddle_model::WorkloadName;

use super::*;

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn caller(name: &str) -> Asker {
    Asker::Workload(WorkloadName::new("shop", name).unwrap())
}

fn address(number: usize) -> Dependency {
    let [.., a, b] = number.to_be_bytes();
    Dependency::Address(IpAddr::from([10, 0, a, b]))
}

fn ask(questions: &Questions, number: usize, of: &str) -> Result<Ticket, Reason> {
    questions.ask(address(number), &caller(of), 1)
}

/// Polls as a task would, and returns the result with the number of times that the task was woken since.
fn polled(ticket: &Ticket, woken: &Arc<Woken>) -> Poll<Result<(), Reason>> {
    let waker = Waker::from(Arc::clone(woken));
    ticket.poll(&mut Context::from_waker(&waker))
}

#[test]
fn a_question_is_told_once_for_each_caller_and_is_gone_with_its_last_ticket() {
    let questions = Questions::default();
    let tickets = [(1, "a"), (1, "a"), (1, "b"), (2, "a")];
    let tickets = tickets.map(|(number, of)| ask(&questions, number, of).unwrap());
    let asked = [(1, "a"), (1, "b"), (2, "a")];
    let asked = asked.map(|(number, of)| (address(number), caller(of)));
    assert_eq!(questions.take(), asked);
    assert_eq!(questions.take(), []);
    let [first, second, of_other, last] = tickets;
    drop(first);
    assert!(questions.is_open(&address(1), &caller("a")));
    drop(second);
    assert!(!questions.is_open(&address(1), &caller("a")));
    assert!(questions.is_open(&address(2), &caller("a")));
    drop((last, of_other));
    // What was not taken yet is not asked any more.
    let late = ask(&questions, 3, "a").unwrap();
    drop(late);
    assert_eq!(questions.take(), []);
    let open = questions.0.open();
    assert_eq!((open.waiting, open.callers.len()), (0, 0));
    assert!(open.questions.is_empty());
}

#[test]
fn what_a_configuration_answers_is_looked_up_again_by_the_worker_that_has_it() {
    let questions = Questions::default();
    let woken = Arc::new(Woken::default());
    let here = ask(&questions, 1, "a").unwrap();
    let other = ask(&questions, 2, "a").unwrap();
    let there = questions.ask(address(1), &caller("a"), 2).unwrap();
    for ticket in [&here, &other, &there] {
        assert_eq!(polled(ticket, &woken), Poll::Pending);
    }
    questions.applied(1, |dependency| *dependency == address(1));
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert_eq!(polled(&here, &woken), Poll::Ready(Ok(())));
    assert_eq!(polled(&other, &woken), Poll::Pending);
    assert_eq!(polled(&there, &woken), Poll::Pending);
    questions.applied(2, |_| true);
    assert_eq!(polled(&there, &woken), Poll::Ready(Ok(())));
}

#[test]
fn a_refusal_is_for_one_caller_and_an_absence_for_all() {
    let questions = Questions::default();
    let woken = Arc::new(Woken::default());
    let [a, b] = ["a", "b"].map(|of| ask(&questions, 1, of).unwrap());
    for ticket in [&a, &b] {
        assert_eq!(polled(ticket, &woken), Poll::Pending);
    }
    questions.refuse(&address(1), &caller("a"), Reason::DiscoveryOverflow);
    let refused = Poll::Ready(Err(Reason::DiscoveryOverflow));
    assert_eq!(polled(&a, &woken), refused);
    assert_eq!(polled(&b, &woken), Poll::Pending);
    questions.set_away(true);
    let away = Err(Reason::DiscoveryUnavailable);
    assert_eq!(polled(&a, &woken), refused, "the first word counts");
    assert_eq!(polled(&b, &woken), Poll::Ready(away));
    assert_eq!(woken.0.load(Ordering::Relaxed), 2);
    assert_eq!(ask(&questions, 1, "a").map(drop), away);
    questions.set_away(false);
    assert_eq!(ask(&questions, 1, "a").map(drop), Ok(()));
}

#[test]
fn no_caller_takes_the_places_of_others() {
    let questions = Questions::default();
    let full = Some(Reason::DiscoveryOverflow);
    let mut held: Vec<Ticket> = (0..QUESTIONS_PER_CALLER)
        .map(|number| ask(&questions, number, "scanner").unwrap())
        .collect();
    assert_eq!(ask(&questions, 9_999, "scanner").err(), full);
    assert!(ask(&questions, 9_999, "other").is_ok());
    // The same question is no other one, up to a limit of its own.
    let left = WAITING_PER_CALLER - QUESTIONS_PER_CALLER;
    held.extend((0..left).map(|_| ask(&questions, 1, "scanner").unwrap()));
    assert_eq!(ask(&questions, 1, "scanner").err(), full);
    drop(held.pop());
    assert!(ask(&questions, 1, "scanner").is_ok());
    let of = |number: usize| format!("pod-{}", number / WAITING_PER_CALLER);
    held.extend((held.len()..WAITING).map(|number| ask(&questions, 1, &of(number)).unwrap()));
    assert_eq!(ask(&questions, 1, "late").err(), full);
}

#[test]
fn an_answer_is_wanted_while_something_waits_and_once_for_what_was_refused() {
    let questions = Questions::default();
    let is_wanted = || {
        let mut wanted = std::pin::pin!(questions.wanted());
        let mut cx = Context::from_waker(Waker::noop());
        wanted.as_mut().poll(&mut cx).is_ready()
    };
    assert!(!is_wanted());
    let ticket = ask(&questions, 1, "a").unwrap();
    assert!(is_wanted() && is_wanted());
    questions.set_away(true);
    assert!(!is_wanted(), "it was refused when it was asked last");
    drop(ticket);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut waits = Box::pin(questions.wanted());
    let mut poll = || waits.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(poll().is_pending());
    for _ in 0..3 {
        assert!(ask(&questions, 1, "a").is_err());
    }
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(poll().is_ready());
    assert!(!is_wanted());
    // It is not remembered once the control plane is back.
    assert!(ask(&questions, 1, "a").is_err());
    questions.set_away(false);
    assert!(!is_wanted());
    // What the agent takes of the questions is as before.
    let _ticket = ask(&questions, 1, "a").unwrap();
    assert!(is_wanted());
    let mut changed = std::pin::pin!(questions.changed());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(changed.as_mut().poll(&mut cx).is_ready());
    assert_eq!(questions.take().len(), 1);
}
