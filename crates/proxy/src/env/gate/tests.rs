use super::*;
use std::future::poll_fn;
use std::task::Poll;

/// Polls the gate once, as its root future would do.
fn run(gate: &Gate, budget: usize) -> bool {
    gate.run(&Context::from_waker(Waker::noop()), budget, 0, || 0)
}

/// A task that records each of its turns, and ends after `turns`.
fn noting(
    name: u32,
    turns: usize,
    notes: &Rc<RefCell<Vec<u32>>>,
) -> impl Future<Output = ()> + use<> {
    let notes = Rc::clone(notes);
    let mut left = turns;
    poll_fn(move |cx| {
        notes.borrow_mut().push(name);
        left -= 1;
        if left == 0 {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

#[test]
fn ready_tasks_take_turns_in_order() {
    let gate = Gate::new();
    let notes = Rc::default();
    gate.spawn(WorkKey::OWN, noting(1, 2, &notes));
    gate.spawn(WorkKey::OWN, noting(2, 3, &notes));
    assert!(!run(&gate, 100));
    assert_eq!(*notes.borrow(), [1, 2, 1, 2, 2]);
}

#[test]
fn a_budget_that_is_used_up_leaves_work() {
    let gate = Gate::new();
    let notes = Rc::default();
    gate.spawn(WorkKey::OWN, noting(1, 5, &notes));
    assert!(run(&gate, 3));
    assert_eq!(notes.borrow().len(), 3);
    assert!(!run(&gate, 3));
    assert_eq!(notes.borrow().len(), 5);
}

#[test]
fn a_wake_for_a_task_that_has_ended_wakes_no_other() {
    let gate = Gate::new();
    let stale = Rc::new(RefCell::new(None));
    let keep = Rc::clone(&stale);
    gate.spawn(
        WorkKey::OWN,
        poll_fn(move |cx| {
            *keep.borrow_mut() = Some(cx.waker().clone());
            Poll::Ready(())
        }),
    );
    run(&gate, 10);
    let notes = Rc::default();
    gate.spawn(WorkKey::OWN, noting(1, 2, &notes));
    run(&gate, 1);
    assert_eq!(notes.borrow().len(), 1);
    if let Some(waker) = stale.borrow_mut().take() {
        waker.wake();
    }
    run(&gate, 1);
    run(&gate, 1);
    assert_eq!(notes.borrow().len(), 2);
}

#[test]
fn a_wake_from_another_thread_arrives() {
    let gate = Gate::new();
    let shared = Rc::new(RefCell::new(None));
    let done = Rc::new(Cell::new(false));
    let (keep, flag) = (Rc::clone(&shared), Rc::clone(&done));
    gate.spawn(
        WorkKey::OWN,
        poll_fn(move |cx| {
            if keep.borrow().is_some() {
                flag.set(true);
                return Poll::Ready(());
            }
            *keep.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        }),
    );
    assert!(!run(&gate, 10));
    let waker = shared.borrow().clone().expect("the task has run");
    std::thread::spawn(move || waker.wake())
        .join()
        .expect("the thread ends");
    run(&gate, 10);
    assert!(done.get());
}

#[test]
fn time_is_charged_to_the_account_that_used_it() {
    let gate = Gate::new();
    gate.measure_by(|| 2_000_000);
    let ann = gate.account(&"ann".into());
    assert_eq!(ann, gate.account(&"ann".into()));
    gate.spawn(ann, std::future::ready(()));
    let mut reads = 0;
    gate.run(&Context::from_waker(Waker::noop()), 10, 0, || {
        reads += 1;
        5_000_000 * reads
    });
    // The thread had a processor for less time than its work took by the clock.
    let mut used = Vec::new();
    gate.settle(&mut used);
    let used: Vec<(&str, u64)> = used.iter().map(|used| (&*used.owner, used.ns)).collect();
    assert_eq!(used, [("ann", 2_000_000)]);
    let mut costs = Vec::new();
    gate.costs(&mut costs);
    let costs: Vec<(&str, u64)> = costs.iter().map(|(owner, ns)| (&**owner, *ns)).collect();
    assert_eq!(costs, [("heddle", 0), ("ann", 2_000_000)]);
}

#[test]
fn a_task_may_spawn_and_clearing_drops_everything() {
    let gate = Rc::new(Gate::new());
    let inner = Rc::clone(&gate);
    let held = Rc::new(());
    let keep = Rc::clone(&held);
    gate.spawn(
        WorkKey::OWN,
        poll_fn(move |_| {
            let keep = Rc::clone(&keep);
            inner.spawn(WorkKey::OWN, async move {
                std::future::pending::<()>().await;
                drop(keep);
            });
            Poll::Ready(())
        }),
    );
    run(&gate, 10);
    assert_eq!(Rc::strong_count(&held), 2);
    gate.clear();
    assert_eq!(Rc::strong_count(&held), 1);
}

/// The accounts of an online and an offline caller.
fn classes(gate: &Gate) -> [WorkKey; 2] {
    let owners = ["shop/web", "batch/crunch"].map(Arc::<str>::from);
    let online = gate.account(&owners[0]);
    gate.set_offline(&Arc::new(HashSet::from([Arc::clone(&owners[1])])));
    [online, gate.account(&owners[1])]
}

#[test]
fn online_work_goes_first_and_offline_work_has_a_sixteenth_of_the_time() {
    let gate = Gate::new();
    let [online, offline] = classes(&gate);
    let notes = Rc::default();
    // Each piece takes 100 us.
    gate.spawn(offline, noting(2, 1_000, &notes));
    gate.spawn(online, noting(1, 320, &notes));
    let cx = Context::from_waker(Waker::noop());
    let now = Cell::new(0);
    let tick = || {
        now.set(now.get() + 100_000);
        now.get()
    };
    while notes.borrow().iter().filter(|note| **note == 1).count() < 320 {
        gate.run(&cx, 128, now.get(), tick);
    }
    let offline = notes.borrow().iter().filter(|note| **note == 2).count();
    assert!((18..=21).contains(&offline), "{offline}");
    assert_eq!(notes.borrow()[..10], [1; 10]);
    // Sockets are polled after each piece as long as online work may come.
    notes.borrow_mut().clear();
    gate.run(&cx, 128, now.get(), tick);
    assert_eq!(*notes.borrow(), [2]);
    now.set(now.get() + ONLINE_NS);
    notes.borrow_mut().clear();
    gate.run(&cx, 128, now.get(), tick);
    assert_eq!(*notes.borrow(), [2; 20], "a turn of 2 ms");
}

#[test]
fn a_caller_whose_class_changes_is_judged_by_the_new_one() {
    let gate = Gate::new();
    let [online, offline] = classes(&gate);
    let notes = Rc::default();
    gate.set_offline(&Arc::default());
    gate.spawn(offline, noting(2, 2, &notes));
    gate.spawn(online, noting(1, 2, &notes));
    run(&gate, 100);
    assert_eq!(*notes.borrow(), [2, 1, 2, 1]);
    notes.borrow_mut().clear();
    gate.set_offline(&Arc::new(HashSet::from(["batch/crunch".into()])));
    gate.spawn(offline, noting(2, 2, &notes));
    gate.spawn(online, noting(1, 2, &notes));
    // Sockets are polled after each piece of offline work.
    while run(&gate, 100) {}
    assert_eq!(*notes.borrow(), [1, 1, 2, 2]);
}
