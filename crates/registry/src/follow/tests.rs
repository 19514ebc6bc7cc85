//! A follower that panics is reported; the first state is waited for while parts of it come.

use super::*;
use crate::core::Kv;

fn some() -> Seen {
    Seen {
        endpoint: "http://127.0.0.1:2379".to_owned(),
        connected: true,
        since: Instant::now(),
        problem: None,
        revision: 7,
        providers: 3,
        pages: 0,
    }
}

#[test]
fn a_panic_is_said_and_what_is_known_is_left_as_it_is() {
    let (seen, see) = watch::channel(some());
    unless_it_fails(&seen, || {});
    assert!(see.borrow().connected && see.borrow().problem.is_none());
    unless_it_fails(&seen, || panic!("a test's"));
    let seen = see.borrow();
    assert!(!seen.connected);
    assert_eq!((seen.revision, seen.providers), (7, 3));
    let problem = seen.problem.as_deref().expect("one");
    assert!(problem.contains("restart heddle"), "{problem}");
}

/// A page of so many values of so many bytes.
fn page(values: usize, bytes: usize) -> Page {
    let kv = |number: usize| Kv {
        key: number.to_string().into_bytes(),
        value: vec![0; bytes],
        lease: 1,
        created: 1,
        modified: 1,
    };
    Page {
        cluster: 1,
        revision: 1,
        kvs: (0..values).map(kv).collect(),
        more: true,
    }
}

#[test]
fn pages_grow_while_values_are_small() {
    let mut limit = FIRST_PAGE;
    let mut asked = Vec::new();
    for _ in 0..6 {
        let keys = usize::try_from(limit).expect("few");
        limit = following_page(limit, &page(keys, 300));
        asked.push(limit);
    }
    assert_eq!(asked, [128, 256, 512, 512, 512, 512]);
    assert_eq!(following_page(64, &page(64, 4 << 10)), 64);
    assert_eq!(following_page(8, &page(8, 64 << 10)), 8);
    assert_eq!(following_page(0, &page(1, 0)), 2, "a value was too large");
    assert_eq!(following_page(MAX_PAGE, &page(5, 1)), MAX_PAGE);
}

#[tokio::test(start_paused = true)]
async fn the_first_state_is_waited_for_while_parts_of_it_come() {
    let (to_providers, providers) = watch::channel(Arc::default());
    let (to_seen, seen) = watch::channel(some());
    let (stop, _stopped) = oneshot::channel();
    let mut follower = Follower {
        providers,
        seen,
        _stop: stop,
    };
    let [silence, most] = [3, 60].map(Duration::from_secs);
    let began = tokio::time::Instant::now();
    assert!(!follower.first(silence, most).await, "nothing comes");
    assert_eq!(began.elapsed(), silence);

    let pages = tokio::spawn(async move {
        loop {
            sleep(Duration::from_secs(2)).await;
            to_seen.send_modify(|seen| seen.pages += 1);
        }
    });
    let began = tokio::time::Instant::now();
    assert!(!follower.first(silence, most).await, "it never ends");
    assert_eq!(began.elapsed(), most);

    let read = async {
        sleep(Duration::from_secs(20)).await;
        let version = 1;
        to_providers.send_replace(Arc::new(Providers {
            version,
            ..Providers::default()
        }));
    };
    let (known, ()) = tokio::join!(follower.first(silence, most), read);
    assert!(known);
    pages.abort();
}

#[test]
fn small_meshes_are_told_sooner_and_large_ones_seldom() {
    for (keys, ms) in [
        (0, 10),
        (100, 10),
        (2_000, 10),
        (4_000, 20),
        (10_000, 50),
        (20_000, 50),
        (100_000, 250),
    ] {
        assert_eq!(rest(keys), Duration::from_millis(ms), "{keys}");
    }
    assert!(rest(u32::MAX) > Duration::from_secs(1));
}
