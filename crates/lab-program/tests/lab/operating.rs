//! An operator's work with a lab that is up: querying nodes, watching processes, changing settings and pods.

use std::io::{BufRead, BufReader};
use std::sync::mpsc::sync_channel;

use serde_json::Value;

use super::*;

/// Output of `heddle-lab`, which must succeed.
fn lab_says(words: &[&str]) -> String {
    let mut command = Command::new(PROGRAM);
    // The user's own folder, which is empty.
    let output = run(command
        .args(words)
        .env("XDG_RUNTIME_DIR", "/no/such/folder"));
    assert!(output.status.success(), "{words:?}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Output of a command in the lab, which must succeed.
fn exec(written: &Written, place: &[&str], command: &[&str]) -> String {
    let head = ["exec", "--lab", written.name.as_str()];
    lab_says(&[&head, place, &["--"], command].concat())
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn heddle_asks_the_node_on_which_it_is_run() {
    let manifests = pod("near", "one") + &idle("caller", "two");
    let Some(written) = Written::new('p', "", &manifests) else {
        return;
    };
    if !intercepts() {
        return;
    }
    let lab = written.up();
    // On a node, commands find that node's sockets without options.
    for (node, pod) in [("one", "shop/near"), ("two", "shop/caller")] {
        let on = |command: &[&str]| exec(&written, &["--node", node], command);
        let status = json(&on(&["heddle", "status", "--output", "json"]));
        assert_eq!(status["identity"]["node"], node);
        assert_eq!(status["ready"], true);
        let pods = json(&on(&["heddle", "pods", "--output", "json"]));
        assert_eq!(pods[0]["workload"], pod, "{pods}");
        assert!(on(&["heddle", "check"]).contains(&format!("node {node} of cluster.local")));
        let config = json(&on(&["heddle", "config", "dump"]));
        // Its own, since nothing was called yet.
        let services = config["mesh"]["services"].as_array();
        let services = services.into_iter().flatten().map(|one| &one["name"]);
        assert_eq!(services.collect::<Vec<_>>(), [pod]);
    }
    let asked = "heddle explain shop/caller shop/near GET / 2>&1 || true";
    let unknown = exec(&written, &["--node", "two"], &["sh", "-c", asked]);
    assert!(unknown.contains("knows all (--control)"), "{unknown}");
    let asked = [
        "heddle",
        "explain",
        "--control",
        "shop/caller",
        "shop/near",
        "GET",
        "/",
    ];
    let explained = exec(&written, &["--underlay"], &asked);
    assert!(explained.contains("on one"), "{explained}");
    // Between the nodes, they find the control plane's.
    let status = exec(
        &written,
        &["--underlay"],
        &["heddle", "status", "--control"],
    );
    assert!(
        status.contains("control plane of cluster.local"),
        "{status}"
    );
    // Everywhere, commands find the lab's own programs.
    for place in [&["--node", "one"][..], &["--underlay"], &["shop/caller"]] {
        for program in ["heddle", "heddle-lab"] {
            let found = exec(
                &written,
                place,
                &["sh", "-c", &format!("command -v {program}")],
            );
            let expected = lab.folder().join("bin").join(program);
            assert_eq!(found.trim(), expected.to_str().expect("a path"));
        }
    }
    let labs = exec(&written, &["--node", "one"], &["heddle-lab", "list"]);
    assert!(labs.contains(&format!("{}: up", written.name)), "{labs}");
    // The library gives the same.
    let mut status = lab
        .node("one")
        .expect("one")
        .command("heddle")
        .expect("heddle");
    assert!(run(status.arg("status")).status.success());
    lab.down().expect("down");
    assert_eq!(written.traces(), Vec::<String>::new());
}

#[test]
fn in_a_pod_with_its_own_proxy_heddle_asks_that_one() {
    let Some(written) = Written::new('q', "carried: pod\n", &pod("near", "one")) else {
        return;
    };
    if !intercepts() {
        return;
    }
    let mut lab = written.up();
    let status = exec(
        &written,
        &["shop/near"],
        &["heddle", "status", "--output", "json"],
    );
    assert_eq!(json(&status)["identity"]["node"], "shop.near");
    let pods = exec(
        &written,
        &["shop/near"],
        &["heddle", "pods", "--output", "json"],
    );
    assert_eq!(json(&pods)[0]["workload"], "shop/near");
    // A pod with its own proxy cannot be added, since it is a node of the mesh; other objects can.
    let mesh = written.folder.path().join("mesh/more.yaml");
    fs::write(&mesh, pod("far", "two")).expect("a pod");
    let refused = lab.apply(&written.file()).expect_err("no pod comes");
    assert!(
        refused.to_string().starts_with("added: shop/far: "),
        "{refused}"
    );
    let text = pod("near", "one").replace(
        "kind: Service\nmetadata: {name: near,",
        "kind: Service\nmetadata: {name: also,",
    );
    let (_, service) = text.split_once("---\napiVersion: v1\n").expect("a Service");
    fs::write(&mesh, format!("apiVersion: v1\n{service}")).expect("a Service");
    let changes = lab.apply(&written.file()).expect("applied");
    assert_eq!(changes.to_string(), TAKEN_OVER);
    assert!(ask(&lab, "shop/near", "also:80", Family::V4).starts_with("near "));
}

#[test]
fn nodes_take_the_settings_of_all_or_their_own() {
    let manifests = idle("here", "one") + &idle("there", "two");
    let Some(written) = Written::new('r', "", &manifests) else {
        return;
    };
    if !intercepts() {
        return;
    }
    let file = |name: &str, text: &str| {
        fs::write(written.folder.path().join(name), text).expect("a file");
    };
    let lab_with = |nodes: &str| {
        let name = &written.name;
        let text =
            format!("name: {name}\nmanifests: mesh\nnode_settings: all.yaml\nnodes: {nodes}\n");
        file("lab.yaml", &text);
    };
    file("all.yaml", "drain: {timeout_ms: 1234}\n");
    file("two.yaml", "proxy: {between_nodes: http1}\n");
    lab_with("[one, {name: two, settings: two.yaml}]");
    let lab = written.up();
    let settings = |node: &str| {
        let config = exec(&written, &["--node", node], &["heddle", "config", "dump"]);
        let settings = &json(&config)["settings"];
        (
            settings["drain"]["timeout_ms"].clone(),
            settings["proxy"]["between_nodes"].clone(),
        )
    };
    assert_eq!(settings("one"), (1234.into(), "link".into()));
    assert_eq!(settings("two"), (10_000.into(), "http1".into()));
    lab.down().expect("down");
    // Invalid settings are refused before anything is made, with the error of heddle.
    file("two.yaml", "proxy:\n  between: http1\n");
    for command in ["up", "validate"] {
        let refused = run(Command::new(PROGRAM).arg(command).arg(written.file()));
        let text = said(&refused);
        assert!(!refused.status.success(), "{text}");
        assert!(
            text.contains("two.yaml:2: proxy.between: unknown field"),
            "{text}"
        );
    }
    assert_eq!(written.traces(), Vec::<String>::new());
    lab_with("[one, {name: two, settings: none.yaml}]");
    let refused = Plan::read(&written.file()).expect_err("there is no such file");
    let text = format!("{refused:#}");
    assert!(
        text.contains("nodes[1].settings: there is no file "),
        "{text}"
    );
}

#[test]
fn status_tells_programs_what_runs_and_what_has_ended() {
    let manifests = pod("near", "one") + &idle("caller", "two");
    let Some(written) = Written::new('s', "carried: nothing\n", &manifests) else {
        return;
    };
    let _lab = written.up();
    let status = || json(&lab_says(&["status", written.name.as_str(), "--json"]));
    let before = status();
    assert_eq!(before["name"], written.name.as_str());
    assert_eq!(
        (&before["ready"], &before["carried"]),
        (&true.into(), &"nothing".into())
    );
    assert_eq!(before["nodes"][0]["name"], "one");
    assert_eq!(before["nodes"][0]["addresses"][0], "10.251.0.1");
    let pod = &before["nodes"][0]["pods"][0];
    assert_eq!(
        (&pod["name"], &pod["addresses"][0]),
        (&"shop/near".into(), &"10.1.1.1".into())
    );
    assert_eq!(
        before["nodes"][1]["pods"][0]["processes"],
        serde_json::json!([])
    );
    assert_eq!(before["services"][1]["addresses"][0], "10.96.0.1");
    let dns = &before["nodes"][0]["processes"][0];
    assert_eq!(
        (&dns["name"], &dns["state"]),
        (&"dns-one".into(), &"running".into())
    );
    let program = pod["processes"][0].clone();
    assert_eq!(
        (&program["state"], &program["restarts"]),
        (&"running".into(), &0.into())
    );
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let started = program["started"].as_u64().expect("a time");
    assert!(
        now.expect("after 1970").as_secs().abs_diff(started) < 120,
        "{started}"
    );
    // When a program dies, then the status reports it, as text and as JSON.
    let pid = program["pid"]
        .as_i64()
        .and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.and_then(rustix::process::Pid::from_raw).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let after = status();
        let program = &after["nodes"][0]["pods"][0]["processes"][0];
        if program["state"] == "ended" {
            assert!(program["last_wrote"].as_u64().is_some(), "{program}");
            break;
        }
        assert!(Instant::now() < deadline, "{program}");
        thread::park_timeout(Duration::from_millis(20));
    }
    let text = lab_says(&["status", written.name.as_str()]);
    assert!(text.contains(" ENDED, last output at "), "{text}");
    assert!(text.contains("runs since "), "{text}");
}

/// Output when no pod changes.
const TAKEN_OVER: &str = "no pod changes; every node has the manifests";
/// A policy that denies all calls of near.
const DENY: &str = "
apiVersion: heddle.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: refused, namespace: shop}
spec:
  targetRefs: [{kind: Pod, selector: {matchLabels: {app: near}}}]
  action: DENY
  rules: [{networkAttributes: {ports: [80]}}]
";

#[test]
fn pods_come_and_go_while_a_lab_is_up() {
    for (letter, carried) in [('t', "node"), ('u', "nothing")] {
        let first = pod("near", "one") + &pod("old", "one") + &idle("caller", "one");
        let more = format!("carried: {carried}\n");
        let Some(written) = Written::new(letter, &more, &first) else {
            return;
        };
        if carried == "node" && !intercepts() {
            return;
        }
        let mut lab = written.up();
        let near = lab.pod("shop/near").expect("near").plan().clone();
        assert!(ask(&lab, "shop/caller", "near:80", Family::V4).starts_with("near "));
        let mesh = written.folder.path().join("mesh/all.yaml");
        // When one pod is added on another node and one is removed …
        let second = pod("far", "two") + &pod("near", "one") + &idle("caller", "one");
        fs::write(&mesh, &second).expect("manifests");
        let file = written.file();
        let applied = lab_says(&["apply", file.to_str().expect("a path")]);
        assert!(
            applied.contains("added: shop/far; removed: shop/old"),
            "{applied}"
        );
        // … then the new one answers by its name, in both families, and the other's name is gone …
        lab.stay();
        lab = Lab::open(&written.name).expect("it is up");
        for family in [Family::V4, Family::V6] {
            let answer = ask(&lab, "shop/caller", "far:80", family);
            assert!(answer.starts_with("far "), "{carried}: {answer}");
        }
        assert!(
            !written
                .traces()
                .iter()
                .any(|trace| trace.contains("shop.old"))
        );
        let mut getent = lab
            .pod("shop/caller")
            .expect("caller")
            .command("getent")
            .expect("getent");
        assert!(!run(getent.args(["hosts", "old"])).status.success());
        // … and the pod that stayed was not changed.
        assert_eq!(*lab.pod("shop/near").expect("near").plan(), near);
        let again = lab.apply(&file).expect("applied");
        assert!(again.is_empty(), "{again}");
        // One pod moves to another node, and another's command changes.
        let third = pod("far", "one") + &pod("near", "one").replace("value: near", "value: nearer");
        fs::write(&mesh, third + &idle("caller", "one")).expect("manifests");
        let changes = lab.apply(&file).expect("applied");
        assert_eq!(
            changes.to_string(),
            "replaced: shop/far; program restarted: shop/near"
        );
        assert!(ask(&lab, "shop/caller", "far:80", Family::V4).starts_with("far "));
        assert!(ask(&lab, "shop/caller", "near:80", Family::V4).starts_with("nearer "));
        // Other objects are in effect when `apply` returns.
        if carried == "node" {
            let policy = written.folder.path().join("mesh/policy.yaml");
            fs::write(&policy, DENY).expect("a policy");
            let changes = lab.apply(&file).expect("applied");
            assert_eq!(changes.to_string(), TAKEN_OVER);
            let answer = ask(&lab, "shop/caller", "near:80", Family::V4);
            assert!(answer.starts_with("heddle: "), "{answer}");
        }
        // A field that is fixed while the lab is up is refused.
        let fixed = fs::read_to_string(&file).expect("a file") + "hooks: nft\n";
        fs::write(&file, fixed).expect("a file");
        let refused = lab.apply(&file).expect_err("hooks stay");
        assert!(refused.to_string().starts_with("hooks: "), "{refused}");
        lab.down().expect("down");
        assert_eq!(written.traces(), Vec::<String>::new());
    }
}

#[test]
fn what_went_wrong_with_a_pod_is_gone_on_with_the_next_time() {
    let Some(written) = Written::new('w', "carried: nothing\n", &idle("caller", "one")) else {
        return;
    };
    let mut lab = written.up();
    let mesh = written.folder.path().join("mesh");
    // Given a pod whose program does not exist …
    let program = std::env::current_exe().expect("this program");
    let shown = program.display().to_string();
    fs::write(
        mesh.join("late.yaml"),
        pod("late", "two").replace(&shown, "./late"),
    )
    .expect("a pod");
    let refused = lab.apply(&written.file()).expect_err("it cannot start");
    assert!(
        format!("{refused:#}").contains("the program of pod shop/late"),
        "{refused:#}"
    );
    // … when it does, then applying the same manifests is enough.
    std::os::unix::fs::symlink(&program, mesh.join("late")).expect("a link");
    let changes = lab.apply(&written.file()).expect("applied");
    assert_eq!(changes.to_string(), "added: shop/late");
    assert!(ask(&lab, "shop/caller", "late:80", Family::V4).starts_with("late "));
    assert!(lab.apply(&written.file()).expect("applied").is_empty());
}

/// A process that is killed when the test ends, even by a panic.
struct Follower(std::process::Child);

impl Drop for Follower {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[test]
fn a_folder_that_is_followed_needs_no_further_word() {
    let Some(written) = Written::new('v', "carried: nothing\n", &idle("caller", "one")) else {
        return;
    };
    let lab = written.up();
    let follower = Command::new(PROGRAM)
        .arg("apply")
        .arg(written.file())
        .arg("--watch")
        .stdout(Stdio::piped())
        .spawn();
    let mut follower = Follower(follower.expect("apply"));
    let told = BufReader::new(follower.0.stdout.take().expect("piped"));
    let (says, said_of_it) = sync_channel(16);
    thread::spawn(move || {
        told.lines()
            .map_while(Result::ok)
            .try_for_each(|line| says.send(line))
    });
    let next = || {
        let line = said_of_it.recv_timeout(Duration::from_secs(20));
        line.expect("it says what it has done")
    };
    assert!(next().contains("nothing changes"));
    let mesh = written.folder.path().join("mesh");
    // Given invalid manifests for a moment, then the next change is still applied.
    fs::write(mesh.join("new.yaml"), "kind: [\n").expect("written");
    thread::park_timeout(Duration::from_millis(1_500));
    fs::write(mesh.join("new.yaml"), pod("new", "two")).expect("written");
    while !next().contains("added: shop/new") {}
    let now = Lab::open(&written.name).expect("it is up");
    assert!(ask(&now, "shop/caller", "new:80", Family::V4).starts_with("new "));
    drop(now);
    lab.down().expect("down");
    // Without the lab there is nothing left to watch.
    assert!(follower.0.wait().expect("it ends").success());
    assert_eq!(written.traces(), Vec::<String>::new());
}

#[test]
fn a_lab_is_checked_without_root_and_nothing_is_made() {
    let example = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/lab/bookstore.yaml"
    );
    let said = lab_says(&["validate", example]);
    assert_eq!(
        said,
        "valid: lab bookstore of 2 nodes, 7 pods, 6 Services, 0 warnings\n"
    );
}
