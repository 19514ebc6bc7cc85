use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::task::Waker;
use std::time::Duration;

use heddle_model::{Class, Mesh, ServiceName};
use rustix::net::sockopt::set_socket_linger;

use super::*;
use crate::door::Door;
use crate::entry::Entry;
use crate::intake::Sessions;
use crate::io::Packed;
use crate::parcel::Moving;
use crate::parcel::{Contents, Parcel, State};
use crate::permits::{Permits, ShareOwner};
use crate::testing::workload;

const PATIENCE: Duration = Duration::from_secs(10);

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    (near, far)
}

/// A flow on its way to a Worker, whose sockets are reset when they are closed, and its two ends.
fn flow(permits: &Permits) -> (Arrival, [TcpStream; 2]) {
    let (client, caller) = pair();
    let (upstream, endpoint) = pair();
    for side in [&client, &upstream] {
        set_socket_linger(side, Some(Duration::ZERO)).unwrap();
    }
    let service = ServiceName::parse("test/echo").unwrap();
    let contents = Contents {
        door: Door::new(
            Entry::Service {
                caller: None,
                service,
                port: 80,
            },
            0,
            None,
            permits,
        ),
        peer: client.peer_addr().unwrap(),
        client: Packed::plain(client),
        state: State::Opaque(Box::new(Moving::fresh(upstream))),
    };
    let permit = permits.share(ShareOwner::Any).take().unwrap();
    let parcel = Parcel { contents, permit };
    (Arrival::Client(parcel), [caller, endpoint])
}

fn plan(registry: &Arc<Registry>, stats: Arc<WorkerStats>) -> Plan {
    Plan {
        settings: Settings::default(),
        registry: Arc::clone(registry),
        stats,
        log: None,
        sessions: Sessions::default(),
        offline_workers: OfflineWorkers::default(),
        called_links: Permits::new(1, None, None).share(ShareOwner::Links),
        seed: 1,
        cpu: None,
        receive: crate::carry::receive,
    }
}

#[tokio::test]
async fn what_comes_while_the_worker_ends_is_cut_like_the_rest() {
    let registry = Arc::new(Registry::new());
    let stats = registry.worker(&[]);
    let permits = Permits::new(2, None, None);
    let worker = spawn(plan(&registry, Arc::clone(&stats))).unwrap();
    let (first, first_ends) = flow(&permits);
    let (second, second_ends) = flow(&permits);
    worker.intake.put(first).unwrap();
    worker.intake.wake();
    let patience = Instant::now() + PATIENCE;
    while stats.connections_active.get() < 1 {
        assert!(Instant::now() < patience, "the first is not taken");
        thread::yield_now();
    }
    let until = Instant::now() + Duration::from_millis(200);
    worker.mailbox.send(Command::Drain { until });
    thread::park_timeout(Duration::from_millis(50));
    // The Worker is not woken for it: the flow is still in the intake at the deadline.
    worker.intake.put(second).unwrap();
    assert_eq!(worker.ended.await, Ok(2));
    let mut text = String::new();
    registry.render(&mut text);
    let rejected = text.lines().find(|line| {
        line.starts_with("heddle_tcp_connections_failed_total") && line.contains("draining")
    });
    assert!(
        rejected.is_some_and(|line| line.ends_with(" 2")),
        "{rejected:?}"
    );
    for mut end in first_ends.into_iter().chain(second_ends) {
        let error = end.read(&mut [0; 1]).expect_err("a reset, not an end");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}

/// A Worker whose work never fits into one turn never waits for its timer.
#[test]
fn deadlines_are_kept_by_a_worker_that_is_never_done() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let timer = {
        let _within = runtime.enter();
        Timer::new().unwrap()
    };
    let registry = Arc::new(Registry::new());
    let intake = Intake::new(INTAKE_BOUND);
    let plan = plan(&registry, registry.worker(&[]));
    let worker = Rc::new(Worker::new(plan, Arc::default(), intake.clone()));
    let mailbox = Mailbox::default();
    let began = Instant::now();
    let over = Rc::new(Cell::new(false));
    for _ in 0..2 * BUDGET {
        let over = Rc::clone(&over);
        let always_ready = poll_fn(move |cx| {
            if over.get() || began.elapsed() > PATIENCE {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        worker.gate.spawn(WorkKey::OWN, always_ready);
    }
    let waits = {
        let (worker, mailbox, over) = (Rc::clone(&worker), mailbox.clone(), Rc::clone(&over));
        async move {
            // The second alarm is set in a turn that has more work left, like the first.
            for _ in 0..2 {
                let due = worker.clock.now_ms() + 100;
                worker.alarms.alarm().wait_until(due).await;
            }
            over.set(true);
            let until = worker.clock.now();
            mailbox.send(Command::Drain { until });
        }
    };
    worker.gate.spawn(WorkKey::OWN, waits);
    runtime.block_on(tokio::task::coop::unconstrained(run(
        &worker, mailbox, intake, timer,
    )));
    worker.gate.clear();
    assert!(over.get(), "the alarms did not ring");
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

/// A Worker that cannot be created, for lack of a descriptor, is dropped on the Manager's thread.
#[test]
fn a_runtime_is_dropped_within_another() {
    let new = || {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime")
    };
    new().block_on(async {
        let guarded = Guarded(Some(new()));
        drop(guarded);
    });
}

/// The class of a workload in the mesh is that of its caller's work.
#[test]
fn work_of_an_offline_workload_waits_for_that_of_others() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _within = runtime.enter();
    let registry = Arc::new(Registry::new());
    let plan = plan(&registry, registry.worker(&[]));
    let worker = Worker::new(plan, Arc::default(), Intake::new(INTAKE_BOUND));
    let order = Rc::new(RefCell::new(Vec::new()));
    let seen = |class: Class| {
        let mut batch = workload("batch", "127.0.0.1:1".parse().unwrap(), None);
        batch.qos.class = class;
        let mesh = Mesh {
            workloads: vec![batch.into()].into(),
            ..Mesh::default()
        };
        worker.apply(Arc::new(Snapshot::new(&mesh)));
        for owner in ["test/batch", "test/web"] {
            let order = Rc::clone(&order);
            let key = worker.gate.account(&owner.into());
            let task = async move { order.borrow_mut().push(owner) };
            worker.gate.spawn(key, task);
        }
        let cx = Context::from_waker(Waker::noop());
        while worker.gate.run(&cx, 10, 0, || 0) {}
        std::mem::take(&mut *order.borrow_mut())
    };
    assert_eq!(seen(Class::Online), ["test/batch", "test/web"]);
    assert_eq!(seen(Class::Offline), ["test/web", "test/batch"]);
    assert_eq!(seen(Class::Online), ["test/batch", "test/web"]);
}
