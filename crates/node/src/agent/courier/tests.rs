use std::net::IpAddr;

use heddle_model::{Dependency, WorkloadName};
use heddle_proxy::{AccessSink, Asker, Questions, Reason, Ticket};

use super::super::learned::Learned;
use super::*;

const FOR_LONG: Duration = Duration::from_secs(600);

/// A courier that never gets a connection: the node has no certificate.
struct Alone {
    questions: Questions,
    events: mpsc::Receiver<Event>,
}

impl Alone {
    fn start() -> Alone {
        let (questions, name) = (Questions::default(), NodeName::parse("n1").unwrap());
        let (sender, events) = mpsc::channel(1);
        let courier = Courier {
            control: "control.test:15012".to_owned(),
            name: name.clone(),
            listen: ([127, 0, 0, 1], 15008).into(),
            clock: Arc::new(Clock::new(0)),
            credentials: watch::channel(None).1,
            events: sender,
        };
        let now = Instant::now().into_std();
        let learner = Learner::new(questions.clone(), Learned::default(), FOR_LONG, now);
        let reporter = Reporter::new(AccessSink::new().1);
        tokio::spawn(courier.run(NodeMesh::on_demand(name), Some(learner), reporter));
        Alone { questions, events }
    }

    /// The time until the next attempt has failed.
    async fn fails_in(&mut self) -> Duration {
        let began = Instant::now();
        let event = self.events.recv().await;
        assert!(matches!(event, Some(Event::Down(_))));
        began.elapsed()
    }

    fn ask(&self) -> Result<Ticket, Reason> {
        let address = Dependency::Address(IpAddr::from([10, 96, 0, 1]));
        let caller = Asker::Workload(WorkloadName::new("shop", "web").unwrap());
        self.questions.ask(address, &caller, 1)
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_refused_has_the_control_plane_tried_soon() {
    let mut node = Alone::start();
    node.fails_in().await;
    tokio::task::yield_now().await;
    assert!(node.ask().is_ok(), "one failed attempt may be a restart");
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(180) {
        node.fails_in().await;
    }
    let (longest, soon) = (Duration::from_secs(60), Duration::from_secs(5));
    // While nothing is asked, it is left alone.
    let unasked = node.fails_in().await;
    assert!(unasked >= longest / 2, "{unasked:?}");
    for _ in 0..5 {
        tokio::task::yield_now().await;
        assert_eq!(node.ask().err(), Some(Reason::DiscoveryUnavailable));
        let asked = node.fails_in().await;
        assert!(asked < soon, "{asked:?}");
    }
    let unasked = node.fails_in().await;
    assert!(unasked > soon, "{unasked:?}");
}
