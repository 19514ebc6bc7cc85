//! When etcd fails, no provider is removed because of that, and missed changes are caught up with.

use super::*;
use crate::etcd::LEASE_LASTS;

#[test]
fn an_etcd_that_is_killed_takes_no_provider_with_it() {
    let mut world = World::new("killed");
    let heddle = world.up();
    let registrar = world.register(backend("x"), &["--ttl", "5s"]);
    registrar.line("registered");
    eventually_serves(&heddle, 1);
    let service = heddle.address(&world.web(), None);

    world.etcd.kill();
    heddle.stderr_line("the registry is not reached");
    registrar.line("etcd is not reached");
    let down = Instant::now();
    while down.elapsed() < LEASE_LASTS {
        assert_eq!(get(service, "web", "/"), (200, "x".to_owned()));
    }
    let (code, answer) = check(&world);
    assert_eq!(
        (code, &answer["registry"]["connected"]),
        (Some(6), &false.into())
    );
    // A continued outage is not logged again.
    assert!(registrar.lines_so_far().is_empty());

    world.etcd.restart();
    heddle.stderr_line("the registry is followed");
    registrar.line("registered again");
    assert_eq!(get(service, "web", "/").0, 200);
    let (code, answer) = check(&world);
    assert_eq!(
        (code, &answer["registry"]["providers"]),
        (Some(0), &1.into()),
        "{answer}"
    );
}

#[test]
fn an_etcd_that_is_not_there_holds_up_a_start_for_three_seconds() {
    let nowhere = free_address().to_string();
    let folder = Folder::new();
    folder.write(
        "a.yaml",
        &crate::harness::service("alone", "web", backend("x")),
    );
    let began = Instant::now();
    let heddle = Heddle::start(&folder, &["--etcd", &format!("http://{nowhere}")]);
    heddle.stderr_line("the registry is not known yet: the folder is served without it");
    heddle.stdout_line("SERVICE");
    let waited = began.elapsed().as_secs_f64();
    assert!((2.9..8.0).contains(&waited), "{waited}");
    let address = heddle.address("alone/web", None);
    assert_eq!(get(address, "web", "/"), (200, "x".to_owned()));
}

#[test]
fn an_etcd_that_lost_everything_is_filled_again_without_a_gap() {
    let mut world = World::new("lost");
    let heddle = world.up();
    let registrar = world.register(backend("x"), &[]);
    registrar.line("registered");
    eventually_serves(&heddle, 1);
    let service = heddle.address(&world.web(), None);
    world.etcd.forget();
    heddle.stderr_line("the registry is not reached");
    world.etcd.restart();
    heddle.stderr_line("the registry is followed");
    eventually("it is registered again", || {
        assert_eq!(
            get(service, "web", "/").0,
            200,
            "no request fails meanwhile"
        );
        world.etcd.keys().len() == 1
    });
    registrar.line("registered again: its lease had ended");
    assert_eq!(get(service, "web", "/").0, 200);
}

#[test]
fn a_watch_that_falls_behind_a_compaction_starts_over() {
    let world = World::new("compacted");
    let heddle = world.up();
    let lease = world.etcd.lease();
    let lease = format!("--lease={lease}");
    let value = |port: u16| {
        // The unused annotation makes the value long enough to fill every buffer on the way.
        let filler = "x".repeat(8_000);
        format!(
            r#"{{"apiVersion":"heddle.dev/v1alpha1","kind":"LocalWorkload","metadata":{{"labels":{{"app":"web"}},"annotations":{{"filler":"{filler}"}}}},"spec":{{"address":"127.9.0.1","ports":[{{"name":"http","port":{port}}}]}}}}"#
        )
    };
    let key = |name: &str| format!("/heddle/v1/providers/compacted/web/{name}");
    world.etcd.ctl(&["put", &lease, &key("before"), &value(1)]);
    eventually_serves(&heddle, 1);

    heddle.signal(Signal::STOP);
    // Far more than its connection can buffer; then etcd compacts the older revisions.
    for round in 0..5 {
        let puts: String = (0..40)
            .map(|n| {
                format!(
                    "put {lease} {} {}\n",
                    key(&format!("p{n}")),
                    value(100 * round + n + 2)
                )
            })
            .collect();
        world.etcd.ctl_with(&["txn"], &format!("\n{puts}\n\n"));
    }
    world.etcd.ctl(&["del", &key("before")]);
    let revision = world.etcd.revision().to_string();
    world.etcd.ctl(&["compact", &revision]);
    heddle.signal(Signal::CONT);

    eventually_serves(&heddle, 40);
    assert!(!workloads(&heddle).contains(&"compacted/web.before".to_owned()));
    eventually("the last values count", || {
        let status = heddle.status();
        status["registry"]["connected"] == true
            && status["config"]["problems"] == Value::Array(Vec::new())
    });
}
