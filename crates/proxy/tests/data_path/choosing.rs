//! Choosing an endpoint: by its responses, by its latency, or by hashing a part of the request.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heddle_model::{Balancer, Ejection, Failing, HashOn, RetryBudget};

use crate::support::{
    Bed, Client, GET, PATIENCE, connect_from, each_connection, mesh, refusing, serve,
    unused_address,
};

/// An endpoint that a test can switch to failures.
fn moody(fails: &Arc<AtomicBool>, asked: &Arc<AtomicUsize>) -> SocketAddr {
    let (fails, asked) = (Arc::clone(fails), Arc::clone(asked));
    each_connection(move |stream| {
        let mut client = Client::of(stream);
        while client.try_head().is_some() {
            asked.fetch_add(1, Ordering::SeqCst);
            let status = match fails.load(Ordering::SeqCst) {
                true => "500 Not Now",
                false => "200 OK",
            };
            client.send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"));
        }
    })
}

#[test]
fn an_endpoint_that_fails_is_left_out_and_returns() {
    const OUT: Duration = Duration::from_secs(3);
    let (fails, asked) = (Arc::new(AtomicBool::new(true)), Arc::default());
    let bad = moody(&fails, &asked);
    let mut mesh = mesh(&[bad, serve(|_| String::new())], None);
    let service = &mut mesh.services[0];
    service.ports[0].endpoints.sort_by_key(|one| one.address);
    service.balancing.ejection = Some(Ejection {
        after: 3,
        on: Failing::ServerError,
        base_ms: 3_000,
        max_percent: 50,
    });
    let bed = Bed::of(&mesh);
    let mut client = bed.client();
    let mut statuses = BTreeMap::<u16, usize>::new();
    let mut ask = |client: &mut Client| {
        let status = client.ask(GET).status();
        *statuses.entry(status).or_default() += 1;
        status
    };
    // Round robin: every second request fails, until three have failed.
    let began = Instant::now();
    for _ in 0..6 {
        ask(&mut client);
    }
    bed.expect("heddle_upstream_ejections_total", &[], 1.0);
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    for _ in 0..10 {
        assert!(ask(&mut client) == 200 || began.elapsed() >= OUT);
    }
    fails.store(false, Ordering::SeqCst);
    // After it has returned, its requests and all later ones succeed.
    while asked.load(Ordering::SeqCst) == 3 {
        assert_eq!(ask(&mut client), 200);
        assert!(began.elapsed() < PATIENCE, "it does not return");
    }
    let out = began.elapsed();
    assert!(out >= OUT, "back after {out:?}");
    assert_eq!(statuses[&500], 3);
    bed.expect("heddle_upstream_ejections_total", &[], 1.0);
}

#[test]
fn what_one_user_asks_goes_to_one_endpoint() {
    let endpoints: Vec<SocketAddr> = (0..5u8).map(|n| serve(move |_| n.to_string())).collect();
    let mesh_of = |endpoints: &[SocketAddr]| {
        let mut endpoints = endpoints.to_vec();
        endpoints.sort();
        let mut mesh = mesh(&endpoints, None);
        mesh.services[0].balancer = Balancer::RingHash;
        mesh.services[0].balancing.hash_on = HashOn::Header("x-user".into());
        mesh
    };
    let bed = Bed::of(&mesh_of(&endpoints));
    let ask = |user: usize| {
        let request = format!("GET / HTTP/1.1\r\nHost: echo\r\nX-User: user-{user}\r\n\r\n");
        bed.ask(request).body
    };
    let before: Vec<_> = (0..40).map(ask).collect();
    let used: BTreeSet<_> = before.iter().collect();
    assert!(used.len() >= 4, "{used:?}");
    let again: Vec<_> = (0..40).map(ask).collect();
    assert_eq!(again, before);
    // Users of the remaining endpoints keep theirs.
    let mut fewer = mesh_of(&endpoints[1..]);
    fewer.generation = 2;
    bed.apply(&fewer);
    for (user, before) in before.iter().enumerate() {
        let after = ask(user);
        assert!(before == b"0" || after == *before, "user {user}");
        assert_ne!(after, b"0");
    }
    // Without the field, requests are spread.
    let mut client = bed.client();
    let mut anywhere = BTreeSet::new();
    for _ in 0..60 {
        anywhere.insert(client.ask(GET).body);
    }
    assert!(anywhere.len() > 1);
}

#[test]
fn what_one_address_asks_goes_to_one_endpoint() {
    let mut endpoints: Vec<SocketAddr> = (0..5u8).map(|n| serve(move |_| n.to_string())).collect();
    endpoints.sort();
    let mut mesh = mesh(&endpoints, None);
    mesh.services[0].balancer = Balancer::RingHash;
    mesh.services[0].balancing.hash_on = HashOn::Source;
    let bed = Bed::of(&mesh);
    let mut used = BTreeSet::new();
    for host in 2..=40 {
        let asked = || {
            let source = IpAddr::from([127, 0, 0, host]);
            let mut client = Client::of(connect_from(source, bed.address).unwrap());
            client.ask(GET).body
        };
        let first = asked();
        for _ in 0..4 {
            assert_eq!(asked(), first, "127.0.0.{host}");
        }
        used.insert(first);
    }
    assert!(used.len() >= 4, "{used:?}");
}

#[test]
fn a_retry_budget_is_kept() {
    let mut mesh = mesh(&[refusing(), unused_address()], None);
    mesh.services[0].balancing.retry_budget = RetryBudget {
        percent: 0,
        min_per_second: 1,
    };
    mesh.services[0].ports[0]
        .endpoints
        .sort_by_key(|one| one.address);
    let bed = Bed::of(&mesh);
    let mut client = bed.client();
    for _ in 0..20 {
        assert_eq!(client.ask(GET).verdict(), (503, "upstream_connect_failed"));
    }
    // The budget holds ten seconds at one retry a second; all further retries are refused.
    bed.expect("heddle_upstream_retries_total", &[], 10.0);
    bed.expect("heddle_upstream_retries_refused_total", &[], 15.0);
}

#[test]
fn who_answers_first_gets_more() {
    let (slow, fast) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let endpoint = |count: &Arc<AtomicUsize>, takes: Duration| {
        let count = Arc::clone(count);
        serve(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            let until = Instant::now() + takes;
            while let Some(left) = until.checked_duration_since(Instant::now()) {
                thread::park_timeout(left);
            }
            String::new()
        })
    };
    let mut endpoints = [
        // Longer than a busy machine may delay the fast endpoint, since such a delay counts as its latency.
        endpoint(&slow, Duration::from_millis(200)),
        endpoint(&fast, Duration::ZERO),
    ];
    endpoints.sort();
    let mut mesh = mesh(&endpoints, None);
    mesh.services[0].balancer = Balancer::PeakEwma;
    let bed = Bed::of(&mesh);
    let mut client = bed.client();
    for _ in 0..60 {
        assert_eq!(client.ask(GET).status(), 200);
    }
    // The two that are compared are different endpoints: the slow one gets a request before it is known, and again when its
    // latency has decayed.
    let (slow, fast) = (slow.load(Ordering::SeqCst), fast.load(Ordering::SeqCst));
    assert!(
        slow < fast,
        "{slow} to the slow one, {fast} to the fast one"
    );
}

/// Answers with a server's error do not make an endpoint fast, however quickly they come.
#[test]
fn by_latency_an_endpoint_that_fails_quickly_gets_few_requests() {
    let asked = Arc::default();
    let bad = moody(&Arc::new(AtomicBool::new(true)), &asked);
    let good = serve(|_| {
        thread::park_timeout(Duration::from_millis(5));
        String::new()
    });
    let mut mesh = mesh(&[bad, good], None);
    let service = &mut mesh.services[0];
    service.ports[0].endpoints.sort_by_key(|one| one.address);
    service.balancer = Balancer::PeakEwma;
    let bed = Bed::of(&mesh);
    let mut client = bed.client();
    let statuses = (0..60).map(|_| client.ask(GET).status());
    let good = statuses.filter(|status| *status == 200).count();
    assert!(good >= 55, "{good} of 60 are good");
    assert!(asked.load(Ordering::SeqCst) >= 1);
}
