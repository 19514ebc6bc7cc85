//! Nodes that know only what their workloads call.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;

/// By when the control plane has told the nodes of one that has come; its own wait is 50 ms.
const TOLD_WITHIN: Duration = Duration::from_millis(500);

/// Two nodes: the first knows only what it uses, and has this setting for how long. With the folder of its settings.
fn joined_on_demand(number: u8, forget_after_s: u32) -> (Joined, Folder) {
    let settings = Folder::new();
    let config = settings.path("settings.yaml");
    let discovery =
        format!("node: {{discovery: {{mode: on-demand, forget_after_s: {forget_after_s}}}}}");
    fs::write(&config, discovery).expect("written");
    let at = free_address();
    let joined = joined_with(
        number,
        |folder| (Heddle::control_at(folder, at, &[]), at),
        [
            &["--config", as_str(&config)],
            &["--discovery", "on-demand"],
        ],
    );
    // The first knows the other one only when it calls it.
    eventually("the control plane knows both", || {
        let nodes = joined.control.status()["nodes"].as_array().cloned();
        let nodes = nodes.iter().flatten();
        nodes.filter(|node| node["address"].is_string()).count() == 2
    });
    // It tells the others of a node that has come a moment later, of all that come together.
    let known = Instant::now();
    eventually("each is told of the other one", || {
        known.elapsed() >= TOLD_WITHIN
    });
    (joined, settings)
}

/// What a node has learned: name and state of each.
fn learned(node: &Heddle) -> Vec<(String, String)> {
    let status = node.status();
    let each = status["discovery"]["learned"]
        .as_array()
        .expect("on demand")
        .iter();
    let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
    each.map(|one| (text(one, "name"), text(one, "state")))
        .collect()
}

fn services(node: &Heddle) -> Option<u64> {
    node.status()["config"]["services"].as_u64()
}

#[test]
fn a_node_learns_what_its_workloads_call_and_goes_on_with_that_while_the_control_plane_is_away() {
    let (joined, settings) = joined_on_demand(20, 600);
    let config = settings.path("settings.yaml");
    let Joined {
        folder,
        namespace,
        control,
        at,
        one,
        two,
    } = joined;
    let caller = format!("{namespace}/web");
    one.stdout_line("SERVICE");
    // Its own workload is no endpoint. The other node knows the Service of its own.
    assert_eq!((services(&one), services(&two)), (Some(0), Some(1)));
    assert_eq!(learned(&one), []);
    let proxy = one.forward_proxy(&caller);
    let ask = |proxy, host: &str| get(proxy, host, &format!("http://{host}/"));
    // The first request is held, and not refused.
    let began = Instant::now();
    assert_eq!(ask(proxy, "cart"), (200, "cart".to_owned()));
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(ask(proxy, "none").0, 502);
    let cart = (format!("{namespace}/cart"), "there".to_owned());
    let none = (format!("{namespace}/none"), "absent".to_owned());
    assert_eq!(learned(&one), [cart, none]);
    let first = &one.status()["discovery"]["learned"][0];
    assert_eq!(
        (&first["by"], &first["services"], &first["endpoints"]),
        (&Value::from(caller.as_str()), &1.into(), &1.into())
    );
    assert_eq!(services(&one), Some(1));
    let (_, metrics) = get(one.metrics(), "x", "/metrics");
    for expected in [
        "heddle_discovery_asked_total 2\n",
        "heddle_discovery_learned{state=\"there\"} 1\n",
        "heddle_discovery_learned{state=\"absent\"} 1\n",
    ] {
        assert!(metrics.contains(expected), "{metrics}");
    }
    // What did not exist is learned when it comes.
    let manifest = fs::read_to_string(folder.manifests().join("a.yaml")).expect("read");
    let more = manifest.replace(
        "kind: Service\nmetadata: {name: cart,",
        "kind: Service\nmetadata: {name: none,",
    );
    let service = more
        .split("---")
        .find(|one| one.contains("kind: Service\n"))
        .expect("it");
    folder.write("b.yaml", service);
    eventually("it is there", || {
        ask(proxy, "none") == (200, "cart".to_owned())
    });

    control.signal(Signal::TERM);
    assert_eq!(control.ended().code(), Some(0));
    one.stderr_line("the control plane is not reached");
    assert_eq!(ask(proxy, "cart").0, 200);
    let refused = ask(proxy, "other");
    assert_eq!(refused.0, 503, "{}", refused.1);
    eventually("it is refused at once", || {
        ask(proxy, "other").1.contains("discovery_unavailable")
    });
    // A restart goes on with what was learned, which is on the disk some seconds later.
    let file = folder.path("n1/mesh.json");
    eventually("it is on the disk", || {
        let text = fs::read_to_string(&file).unwrap_or_default();
        text.contains(&format!("{{\"Service\":\"{namespace}/none\"}},\"There\""))
    });
    one.signal(Signal::KILL);
    one.ended();
    let one = Heddle::node(&folder, "n1", at, &["--config", as_str(&config)]);
    one.stdout_line("SERVICE");
    let proxy = one.forward_proxy(&caller);
    assert_eq!(ask(proxy, "cart").0, 200);
    assert_eq!(ask(proxy, "other").0, 503);
    assert_eq!(learned(&one).len(), 2);
    let _control = Heddle::control_at(&folder, at, &[]);
    eventually("it asks again", || ask(proxy, "other").0 == 502);
    assert_eq!(ask(proxy, "cart").0, 200);
}

#[test]
fn what_is_not_used_is_forgotten_and_learned_again() {
    let (joined, _settings) = joined_on_demand(21, 1);
    let (one, namespace) = (&joined.one, &joined.namespace);
    one.stdout_line("SERVICE");
    let proxy = one.forward_proxy(&format!("{namespace}/web"));
    for _ in 0..2 {
        assert_eq!(get(proxy, "cart", "http://cart/"), (200, "cart".to_owned()));
        assert_eq!(services(one), Some(1));
        eventually("it is forgotten", || {
            learned(one).is_empty() && services(one) == Some(0)
        });
    }
    // Not while the control plane is away, however long that is.
    assert_eq!(get(proxy, "cart", "http://cart/").0, 200);
    joined.control.signal(Signal::TERM);
    one.stderr_line("the control plane is not reached");
    let away = Instant::now();
    eventually(
        "it is away for longer than what is not used is kept",
        || away.elapsed() >= Duration::from_secs(4),
    );
    assert_eq!(learned(one).len(), 1);
    assert_eq!(get(proxy, "cart", "http://cart/"), (200, "cart".to_owned()));
}

#[test]
fn the_ranges_of_the_mesh_come_from_the_control_plane() {
    let (folder, namespace) = mesh(24);
    let settings = Folder::new();
    let config = settings.path("settings.yaml");
    fs::write(&config, "mesh: {address_ranges: [127.9.0.0/16]}").expect("written");
    let at = free_address();
    let control = Heddle::control_at(&folder, at, &["--config", as_str(&config)]);
    let node = join_with(&folder, "n1", at, &["--discovery", "on-demand"]);
    node.stdout_line("SERVICE");
    let socket = folder.path("n1.sock");
    let dump = heddle(&["config", "dump", "--socket", as_str(&socket)]);
    let dump: Value = serde_json::from_slice(&dump.stdout).expect("JSON");
    assert_eq!(dump["mesh"]["address_ranges"], json!(["127.9.0.0/16"]));
    // What is outside of them is refused by itself.
    let outside = format!(
        "{{apiVersion: heddle.dev/v1alpha1, kind: LocalWorkload, metadata: {{name: out, namespace: {namespace}}}, \
         spec: {{nodeName: n1, address: 127.10.0.1}}}}"
    );
    folder.write("b.yaml", &outside);
    control.stderr_line("127.10.0.1 is in none of the mesh's address ranges");
    // Others are used after a restart, which is said.
    fs::write(&config, "mesh: {address_ranges: [127.0.0.0/8]}").expect("written");
    control.signal(Signal::HUP);
    control.stderr_line("they take effect at the next start");
}
