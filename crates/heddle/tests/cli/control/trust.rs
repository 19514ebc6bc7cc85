//! Which roots a mesh trusts, and which nodes it refuses.

use super::*;

/// One command rotates the root; the connected node confirms, the one that is away is named.
#[tokio::test(flavor = "multi_thread")]
async fn a_root_is_rotated_in_one_command() {
    let folder = mesh();
    let (control, at) = Heddle::control(&folder, &[]);
    let mut node = join(&folder, at, "n1").await;
    let away = join(&folder, at, "n2").await;
    let stale = token(&folder, "n3");
    let before = json(&folder, "root status");
    // Without a rotation no node is waited for, whether it has connected or not.
    let said = told(&folder, "root status");
    assert!(
        said.contains(
            "no rotation under way; 2 of 2 nodes have not confirmed what they trust since"
        ) && !said.contains("new root"),
        "{said}"
    );
    let (_, metrics) = get(control.metrics(), "x", "/metrics");
    assert!(
        metrics.contains("\nheddle_control_nodes_unconfirmed 0\n"),
        "{metrics}"
    );
    let client = node.client().await.expect("let in");
    let mut trust = client.watch_trust(0, 0).await.expect("a watch");
    let update = trust.next().await.expect("an update");
    trust.confirm_update(&update).await.expect("confirmed");

    let output = operate(&folder, "root rotate --wait 1s");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("not confirmed the new root: n1, n2"),
        "{said}"
    );
    assert!(
        said.contains("--force") && said.contains("root cancel"),
        "{said}"
    );
    let update = trust.next().await.expect("an update");
    let bundle = update.bundle.as_ref().expect("roots");
    assert_eq!(bundle.roots.len(), 2);
    node.believe(&update);
    trust.confirm_update(&update).await.expect("confirmed");
    eventually("it waits for the other only", || {
        json(&folder, "root status")["waits_for"] == serde_json::json!(["n2"])
    });

    // The rotation survives a restart of the process.
    control.signal(Signal::TERM);
    assert!(control.ended().success());
    let (control, at) = Heddle::control(&folder, &[]);
    node.moved(at);
    let waiting = json(&folder, "root status");
    assert_eq!(waiting["stage"], "begun");
    assert_eq!(waiting["waits_for"], serde_json::json!(["n1", "n2"]));
    let client = node.client().await.expect("let in");
    let generation = bundle.generation;
    let _trust = client.watch_trust(generation, 0).await.expect("a watch");
    told(&folder, &format!("deny add {} --reason gone", away.id()));
    let done = told(&folder, "root rotate");
    assert!(done.contains("the new root signs"), "{done}");
    control.stderr_line("the new one signs from now on");
    let after = json(&folder, "root status");
    assert_eq!(after["stage"], "switched");
    assert_ne!(after["sha256"], before["sha256"]);
    assert!(after["finish_from"].as_u64() > after["now"].as_u64());

    // The old certificate is still accepted, the new root is in use, and old tokens are void.
    eventually("the new root is shown", || {
        let shown = token(&folder, "n4");
        shown.ends_with(after["sha256"].as_str().expect("a digest"))
    });
    let client = node
        .client()
        .await
        .expect("let in with the old certificate");
    node.renew(&client).await;
    node.client()
        .await
        .expect("let in with the new certificate");
    eventually("the own certificate is of the new root", || {
        control.status()["ready"] == true
    });
    let Err(refused) = TestNode::join(at, "n3", &stale).await else {
        panic!("an old token was taken");
    };
    assert!(refused.contains("no trusted root signed"), "{refused}");

    let finished = told(&folder, "root rotate --force");
    assert!(finished.contains("no rotation under way"), "{finished}");
}

/// A second operator joins the first one's rotation and is told so, whatever its stage.
#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_under_way_is_joined_and_that_is_said() {
    let folder = mesh();
    let (_control, at) = Heddle::control(&folder, &[]);
    let away = join(&folder, at, "n1").await;
    let first = operate(&folder, "root rotate --wait 1s");
    let said = text(&first.stderr);
    assert_eq!(first.status.code(), Some(1), "{said}");
    assert!(!said.contains("joined"), "{said}");
    let status = json(&folder, "root status");
    let began = status["began_at"].as_u64().expect("a time");
    assert!(status["now"].as_u64().is_some_and(|now| began <= now));

    // When a rotation waits for a node, the next command joins it, and says what it has joined.
    told(&folder, &format!("deny add {} --reason gone", away.id()));
    let second = operate(&folder, "root rotate --output json");
    let said = text(&second.stderr);
    assert_eq!(second.status.code(), Some(0), "{said}");
    for expected in [
        "joined the rotation that began at ",
        " ago: two roots are trusted, the ",
    ] {
        assert!(said.contains(expected), "{said}");
    }
    let answer: Value = serde_json::from_slice(&second.stdout).expect("JSON");
    assert_eq!(answer["joined"], true);
    assert_eq!(answer["began_at"], began);

    // The same once the new root signs.
    let third = operate(&folder, "root rotate");
    let said = text(&third.stderr);
    assert_eq!(third.status.code(), Some(0), "{said}");
    assert!(
        said.contains("joined the rotation that began at "),
        "{said}"
    );
    assert!(said.contains("the new one signs"), "{said}");
    let shown = text(&third.stdout);
    assert!(shown.contains("rotation that began at "), "{shown}");
    // After the end there is no rotation to join.
    told(&folder, "root rotate --force");
    let over = json(&folder, "root status");
    assert_eq!(over["stage"], "steady");
    assert_eq!(over["began_at"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_denied_is_told_nothing_and_comes_in_no_more() {
    let folder = mesh();
    let (control, at) = Heddle::control(&folder, &[]);
    let (one, two) = (join(&folder, at, "n1").await, join(&folder, at, "n2").await);
    let client = one.client().await.expect("let in");
    let mut watch = one.watch_mesh(&client, "192.0.2.1:15008").await;
    watch.next().await.expect("a part");
    let other = two.client().await.expect("let in");
    let mut trust = other.watch_trust(0, 0).await.expect("a watch");
    trust.next().await.expect("an update");

    told(&folder, &format!("deny add {} --reason stolen", one.id()));
    let pushed = trust.next().await.expect("an update");
    assert_eq!(pushed.denied.expect("a list").entries.len(), 1);
    loop {
        if let Err(ended) = watch.next().await {
            assert!(ended.to_string().contains("deny-list"), "{ended}");
            break;
        }
    }
    // A moment later the deny-list is in force for handshakes: the whole connection is refused, not only each call.
    let is_counted = || {
        let (_, metrics) = get(control.metrics(), "x", "/metrics");
        !metrics.contains("handshakes_refused_total{reason=\"denied\"} 0\n")
    };
    while !is_counted() {
        if let Ok(client) = one.client().await {
            one.issue(&client, CART).await.expect_err("refused");
        }
    }
    control.stderr_line("reason=\"denied\"");
    let refused = operate(&folder, "token create n1");
    assert!(text(&refused.stderr).contains("heddle deny remove"));
}

/// A node that is refused in the handshake gets an alert, and the operator a log message: one for many refusals.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_mesh_is_refused_and_the_log_says_why() {
    let (folder, elsewhere) = (mesh(), mesh());
    let (control, at) = Heddle::control(&folder, &[]);
    let (_other, other_at) = Heddle::control(&elsewhere, &[]);
    let mut node = join(&folder, at, "n1").await;
    node.show(join(&elsewhere, other_at, "n1").await);
    for _ in 0..3 {
        if let Ok(client) = node.client().await {
            node.issue(&client, CART).await.expect_err("refused");
        }
    }
    let counted = "handshakes_refused_total{reason=\"unknown_authority\"} 3\n";
    eventually("they are counted", || {
        get(control.metrics(), "x", "/metrics").1.contains(counted)
    });
    control.signal(Signal::TERM);
    let said = control.stderr_before("stopping");
    let reason = "reason=\"unknown_authority\"";
    assert_eq!(
        said.iter().filter(|line| line.contains(reason)).count(),
        1,
        "{said:#?}"
    );
}
