//! A called node with several Workers: requests that arrive over links are spread over them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use heddle_model::AppProtocol;
use heddle_proxy::Settings;

use super::links::echo;
use super::pair::Pair;
use crate::policy::guarded;
use crate::support::{post, serve, wait_until, workers};

/// How long a change of the number of Workers may take on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Two nodes with different settings, and an endpoint that answers.
fn unlike(calling: &Settings, called: &Settings) -> Pair {
    let mesh = guarded(serve(|_| "ok".into()), AppProtocol::Http);
    Pair::unlike([calling, called], mesh, None, |called| called)
}

/// Clients of one caller that send POST after POST until they are told to stop. Each must be answered.
fn browse(pair: &Pair, clients: usize, stop: &Arc<AtomicBool>) -> Vec<JoinHandle<u32>> {
    let one = |number: usize| {
        let (mut client, stop) = (pair.client("shop"), Arc::clone(stop));
        thread::spawn(move || {
            let mut answered = 0;
            let body = "y".repeat(100 * number);
            while !stop.load(Ordering::Relaxed) {
                let response = client.ask(post(body.len()) + &body);
                assert_eq!(response.verdict(), (200, ""));
                answered += 1;
            }
            answered
        })
    };
    (0..clients).map(one).collect()
}

/// Busy time of each Worker of the called node within a short period.
fn worked(pair: &Pair) -> Vec<u64> {
    let busy_ms = || -> BTreeMap<usize, u64> {
        let workers = pair.called.proxy.status().workers;
        workers.iter().map(|one| (one.id, one.busy_ms)).collect()
    };
    let before = busy_ms();
    thread::park_timeout(Duration::from_millis(400));
    let now = busy_ms();
    let since = |id: &usize, ms: u64| ms - before.get(id).copied().unwrap_or(ms).min(ms);
    now.iter().map(|(id, &ms)| since(id, ms)).collect()
}

#[test]
fn a_second_worker_has_its_part_of_one_callers_requests_and_hands_it_back_when_it_goes() {
    let pair = unlike(&workers(1, 1), &workers(1, 2));
    let stop = Arc::default();
    // Given one caller with one link, which keeps a Worker busy …
    let clients = browse(&pair, 16, &stop);
    let called = |name| pair.called.metric(name, &[]);
    wait_until("a second worker comes", LONG, || {
        called("heddle_workers_active") >= 2.0
    });
    // … then the second Worker soon does at least half as much as the first one.
    wait_until("the second worker has something to do", LONG, || {
        let worked = worked(&pair);
        let (most, least) = (worked.iter().max(), worked.iter().min());
        worked.len() == 2 && *least.unwrap() > 10 && least.unwrap() * 2 >= *most.unwrap()
    });
    assert!(called("heddle_links_asked_total") >= 1.0);
    assert!(pair.calling.metric("heddle_links_active", &[]) >= 2.0);
    stop.store(true, Ordering::Relaxed);
    let answered: u32 = clients.into_iter().map(|one| one.join().unwrap()).sum();
    // With little load one Worker ends, while requests continue, and none of them fails.
    let stop = Arc::default();
    let slow = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut asked = 0;
            while !AtomicBool::load(&stop, Ordering::Relaxed) {
                assert_eq!(pair.get("shop").verdict(), (200, ""));
                asked += 1;
                thread::park_timeout(Duration::from_millis(10));
            }
            asked
        });
        wait_until("one worker goes", LONG, || {
            pair.called.proxy.status().workers.len() == 1
        });
        stop.store(true, Ordering::Relaxed);
        asking.join().unwrap()
    });
    assert!(slow > 0 && answered > 0);
}

#[test]
fn no_request_fails_while_its_caller_is_asked_for_other_links_all_the_time() {
    let pair = unlike(&workers(1, 1), &workers(2, 2));
    let stop = Arc::default();
    let clients = browse(&pair, 8, &stop);
    let links = || pair.called.metric("heddle_links_total", &[]);
    wait_until("links come one after the other", LONG, || {
        pair.called.proxy.rotate();
        thread::park_timeout(Duration::from_millis(60));
        links() >= 12.0
    });
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.join().unwrap() > 0);
    }
    // Replaced links were closed.
    pair.called.expect("heddle_links_active", &[], 1.0);
    pair.calling.expect("heddle_links_active", &[], 1.0);
}

#[test]
fn a_flow_stays_on_the_link_that_it_has_and_the_next_one_takes_another() {
    let mesh = guarded(echo(), AppProtocol::Tcp);
    let settings = [&workers(1, 1), &workers(2, 2)];
    let pair = Pair::unlike(settings, mesh, None, |called| called);
    let mut first = pair.sending("shop", "before");
    assert_eq!(first.exact(6), b"before");
    pair.called.proxy.rotate();
    // There is a second link, and both are kept.
    pair.called.expect("heddle_links_total", &[], 2.0);
    let mut second = pair.sending("shop", "beside");
    assert_eq!(second.exact(6), b"beside");
    first.send("still");
    assert_eq!(first.exact(5), b"still");
    pair.called.expect("heddle_links_active", &[], 2.0);
    // The first link closes after its flow has ended.
    drop(first);
    pair.called.expect("heddle_links_active", &[], 1.0);
    second.send("after");
    assert_eq!(second.exact(5), b"after");
    pair.called.expect("heddle_links_total", &[], 2.0);
}

#[test]
fn a_caller_that_has_no_room_for_another_link_goes_on_with_the_one_it_has() {
    let mut few = workers(1, 1);
    few.bounds.links = 1;
    let pair = unlike(&few, &workers(2, 2));
    let stop = Arc::default();
    let clients = browse(&pair, 4, &stop);
    pair.called.expect("heddle_links_total", &[], 1.0);
    pair.called.proxy.rotate();
    pair.called.expect("heddle_links_asked_total", &[], 1.0);
    // No other link is opened within this time, as the counters below show.
    thread::park_timeout(Duration::from_millis(200));
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.join().unwrap() > 0);
    }
    pair.calling.expect("heddle_links_total", &[], 1.0);
    pair.calling.expect("heddle_links_active", &[], 1.0);
}
