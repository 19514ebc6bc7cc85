use super::*;

#[test]
fn targets_and_watched_processes_are_parsed() {
    let target: Target = "echo.lab@127.0.0.1:80".parse().expect("target");
    assert_eq!(target.authority, "echo.lab");
    assert_eq!(target.address.port(), 80);
    assert!("127.0.0.1:80".parse::<Target>().is_err());
    assert!("a@localhost".parse::<Target>().is_err());
    let watched: Watched = "proxy=12".parse().expect("watched");
    assert_eq!(
        watched,
        Watched {
            name: "proxy".to_owned(),
            pid: 12
        }
    );
    assert!("proxy".parse::<Watched>().is_err());
}

/// Options of `heddle-lab load` for an upstream without a proxy.
fn options(port: u16) -> Load {
    let address = (crate::upstream::address(0), port).into();
    Load {
        phases: Vec::new(),
        active_every: 1,
        history: None,
        targets: vec![Target {
            authority: "echo.lab".to_owned(),
            address,
        }],
        connections: 8,
        body_bytes: 128,
        head: Head::Plain,
        send_bytes: 0,
        changing: false,
        path_end: None,
        pace: Pace {
            rate: None,
            warm_up: 0.0,
            seconds: 0.2,
            requests: None,
            watched: vec![Watched {
                name: "proxy".to_owned(),
                pid: std::process::id(),
            }],
            seed: 1,
        },
    }
}

fn outcome(options: &Load) -> Outcome {
    Generator::new(options)
        .and_then(|generator| generator.run(options))
        .expect("runs")
}

#[test]
fn a_budget_of_requests_is_kept_to_the_last_one() {
    let port = crate::upstream::in_background();
    for rate in [None, Some(20_000.0)] {
        let outcome = outcome(&Load {
            pace: Pace {
                requests: Some(1_000),
                rate,
                ..options(port).pace
            },
            ..options(port)
        });
        assert_eq!((outcome.requests, outcome.errors.len()), (1_000, 0));
        assert!(outcome.p50_us > 0.0 && outcome.p50_us <= outcome.max_us);
    }
}

#[test]
fn a_closed_loop_and_a_fixed_rate_fill_their_window() {
    let port = crate::upstream::in_background();
    let closed = outcome(&options(port));
    assert!(closed.requests > 0 && closed.seconds >= 0.2 && closed.errors.is_empty());
    assert!(closed.cpu["client"].cpu_ns > 0 && closed.memory["proxy"].rss_kib > 0);
    let fixed = outcome(&Load {
        pace: Pace {
            rate: Some(500.0),
            ..options(port).pace
        },
        ..options(port)
    });
    // 100 arrivals are expected; 40 would be six standard deviations off.
    assert!((40..160).contains(&fixed.requests), "{}", fixed.requests);
}

#[test]
fn answers_of_another_length_are_errors() {
    let port = crate::upstream::in_background();
    // More than the upstream gives to any client.
    let outcome = outcome(&Load {
        body_bytes: 1 << 30,
        pace: Pace {
            requests: Some(3),
            ..options(port).pace
        },
        ..options(port)
    });
    assert_eq!(outcome.errors.get("wrong body length"), Some(&3));
    assert_eq!(outcome.requests, 0);
}

#[test]
fn bodies_go_both_ways() {
    let port = crate::upstream::in_background();
    for head in [Head::Browser, Head::Grpc] {
        let outcome = outcome(&Load {
            head,
            send_bytes: 4096,
            body_bytes: 4096,
            changing: true,
            pace: Pace {
                requests: Some(200),
                ..options(port).pace
            },
            ..options(port)
        });
        assert_eq!((outcome.requests, outcome.errors.len()), (200, 0));
        assert!(outcome.p50_us <= outcome.max_us && outcome.mean_us <= outcome.max_us);
    }
}

#[test]
fn a_run_that_carries_less_than_it_was_offered_does_not_count() {
    let outcome = |requests| Outcome {
        seconds: 1.0,
        requests,
        ..Outcome::default()
    };
    assert!(outcome(950).check(Some(1000.0)).is_ok());
    assert!(outcome(900).check(Some(1000.0)).is_err());
    assert!(outcome(900).check(None).is_ok());
    assert!(outcome(0).check(None).is_err());
}
