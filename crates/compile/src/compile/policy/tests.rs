use std::path::Path;

use heddle_model::{AppProtocol, Mesh, Mode, NodeName, TrustDomain};
use proptest::prelude::*;

use super::regex::{Pattern, translate};
use crate::{Addresses, Options, Placement, load_text, load_with};

#[test]
fn expressions_that_say_what_plain_text_can() {
    let exact = |text: &str| Some(Pattern::Exact(text.into()));
    let start = |text: &str| Some(Pattern::Start(text.into()));
    let prefix = |text: &str| Some(Pattern::Prefix(text.into()));
    for (text, expected) in [
        (".*", Some(Pattern::Any)),
        ("^.*$", Some(Pattern::Any)),
        ("/.*", start("/")),
        ("/api", exact("/api")),
        ("^/api$", exact("/api")),
        ("/api/.*", start("/api/")),
        ("/api.*", start("/api")),
        ("/api(/.*)?", prefix("/api")),
        ("/api/(/.*)?", None),
        (r"/index\.html", exact("/index.html")),
        (r"/a\.*", None),
        (r"/a\\.*", start(r"/a\")),
        (r"/a\$", exact("/a$")),
        (r"/a\d", None),
        (r"/a\", None),
        ("/index.html", None),
        ("/a+", None),
        ("/a|/b", None),
        ("/[ab]", None),
        ("/a(b)?", None),
        ("/.*/b", None),
        ("", exact("")),
    ] {
        assert_eq!(translate(text), expected, "{text}");
    }
}

proptest! {
    /// An expression taken for plain text matches only that text.
    #[test]
    fn a_translation_holds_no_operator(text in r"[\^]?[/a.\\*+?()|\[\]{}$-]{0,8}[$]?") {
        if let Some(Pattern::Exact(plain)) = translate(&text) {
            let escaped: String = plain
                .chars()
                .flat_map(|c| {
                    let escape = c.is_ascii_punctuation().then_some('\\');
                    escape.into_iter().chain([c])
                })
                .collect();
            prop_assert_eq!(translate(&escaped), Some(Pattern::Exact(plain)));
        }
    }
}

fn mesh(text: &str) -> Mesh {
    let (mesh, report) = load_text(Path::new("/mesh/a.yaml"), text.as_bytes());
    mesh.unwrap_or_else(|| panic!("{:?}", report.problems))
}

const UNDECLARED: &str = "
apiVersion: v1
kind: Service
metadata: {name: a}
spec: {selector: {app: a}, ports: [{name: one, port: 80}, {name: two, port: 81}]}
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {name: a, labels: {app: a}}
spec: {address: 127.1.0.1, ports: [{port: 80}, {port: 81}]}
---
apiVersion: heddle.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: a}
";

#[test]
fn a_rule_on_requests_makes_its_ports_http() {
    let target = "targetRefs: [{kind: Pod, selector: {}}], action: ALLOW";
    let (http, unknown) = (AppProtocol::Http, AppProtocol::Undeclared);
    for (rules, expected) in [
        (
            "rules: [{networkAttributes: {ports: [80]}}]",
            [unknown, unknown],
        ),
        ("rules: [{httpAttributes: {methods: [GET]}}]", [http, http]),
        (
            "rules: [{networkAttributes: {ports: [81]}, httpAttributes: {methods: [GET]}}]",
            [unknown, http],
        ),
        // A dry-run policy does not change the protocol either.
        (
            "dryRun: true, rules: [{httpAttributes: {methods: [GET]}}]",
            [unknown, unknown],
        ),
    ] {
        let mesh = mesh(&format!("{UNDECLARED}spec: {{{target}, {rules}}}"));
        let ports = &mesh.services[0].ports;
        assert_eq!([ports[0].protocol, ports[1].protocol], expected, "{rules}");
    }
}

#[test]
fn what_manifests_leave_open_is_the_callers_to_say() {
    let dir = tempfile::TempDir::new().unwrap();
    let manifests = "
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {name: a, labels: {heddle.dev/mode: permissive}}
spec: {address: 127.1.0.1, nodeName: one}
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {name: b}
spec: {address: 127.1.0.2}
---
apiVersion: heddle.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: a}
spec:
  targetRefs: [{kind: Pod, selector: {}}]
  action: ALLOW
  rules: [{sources: [{type: SPIFFE, spiffe: spiffe://example.org/ns/default/sa/default}]}]
";
    std::fs::write(dir.path().join("a.yaml"), manifests).unwrap();
    let mut options = Options {
        trust_domain: TrustDomain::parse("example.org").unwrap(),
        default_mode: Mode::Strict,
        lazy_envoys: false,
        placement: Placement::OneNode,
        addresses: Addresses::Written,
        address_ranges: Vec::new(),
    };
    let (mesh, report) = load_with(dir.path(), &options);
    let mesh = mesh.unwrap();
    assert_eq!(mesh.check_invariants(), Ok(()));
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!(mesh.trust_domain, options.trust_domain);
    let modes: Vec<Mode> = mesh
        .workloads
        .iter()
        .map(|workload| workload.mode)
        .collect();
    assert_eq!(modes, [Mode::Permissive, Mode::Strict]);

    options.placement = Placement::ByNode;
    let (mesh, report) = load_with(dir.path(), &options);
    let [warning] = report.problems.as_slice() else {
        panic!("{:?}", report.problems);
    };
    assert_eq!(warning.object.as_deref(), Some("LocalWorkload default/b"));
    let own = mesh.unwrap().for_node(&NodeName::parse("one").unwrap());
    assert_eq!(own.check_invariants(), Ok(()));
    assert_eq!(own.workloads.len(), 1);

    let (mesh, report) = load_with(dir.path(), &Options::default());
    assert!(mesh.is_none());
    assert!(
        report.problems[0]
            .reason
            .contains("this mesh is cluster.local")
    );
}

/// Workloads on two nodes are reached by their address, so only one of them may have it.
#[test]
fn two_nodes_do_not_share_an_address_and_port() {
    let workload = |name: &str, address: &str| {
        format!(
            "---\napiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata: {{name: {name}}}\n\
             spec: {{nodeName: {name}, address: {address}, ports: [{{port: 8080}}]}}\n"
        )
    };
    let options = Options {
        placement: Placement::ByNode,
        ..Options::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let load = |second: &str| {
        let text = workload("n1", "127.1.0.1") + &workload("n2", second);
        std::fs::write(dir.path().join("a.yaml"), text).unwrap();
        load_with(dir.path(), &options)
    };
    let (mesh, report) = load("127.1.0.1");
    assert!(mesh.is_none());
    let [error] = report.problems.as_slice() else {
        panic!("{:?}", report.problems);
    };
    assert_eq!(error.object.as_deref(), Some("LocalWorkload default/n2"));
    assert!(
        error
            .reason
            .contains("LocalWorkload default/n1 has port 8080")
    );
    assert!(
        error.remedy.contains("such as 127.1.0.2"),
        "{}",
        error.remedy
    );
    assert!(load("127.1.0.2").0.is_some());
}

#[test]
fn so_many_policies_concern_a_workload_and_no_more() {
    let target = "targetRefs: [{kind: Pod, selector: {}}], action: ALLOW";
    let policy = |n: usize| {
        format!(
            "---\napiVersion: heddle.dev/v1alpha1\nkind: AuthorizationPolicy\n\
             metadata: {{name: a{n}}}\nspec: {{{target}}}\n"
        )
    };
    let workload = UNDECLARED.rsplit_once("---").unwrap().0;
    for (count, errors) in [(1_024, 0), (1_025, 1)] {
        let text: String = (0..count).map(policy).collect();
        let text = format!("{workload}{text}");
        let (_, report) = load_text(Path::new("/mesh/a.yaml"), text.as_bytes());
        assert_eq!(report.errors(), errors, "{:?}", report.problems);
    }
}

const GOOD: [&str; 3] = [
    concat!(
        include_str!("../../../fixtures/good-policies/base.yaml"),
        "---\n",
        include_str!("../../../fixtures/good-policies/policies.yaml")
    ),
    include_str!("../../../fixtures/good-traffic-targets/manifests.yaml"),
    include_str!("../../explain/tests/mesh.yaml"),
];

/// Words that occur in manifests, and some that should not.
const WORDS: [&str; 16] = [
    "8080", "0", "tcp", "http", "[]", "{}", "", "null", "strict", "DENY", "ALLOW", "GET", "\"*\"",
    "true", "shop", "/a/..",
];

proptest! {
    /// After any mutation of valid manifests, an accepted mesh fulfils its invariants, and every question gets an
    /// answer.
    #[test]
    fn what_is_taken_keeps_its_promises(
        which in 0..GOOD.len(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 0..4, 0..WORDS.len()), 1..4),
    ) {
        let mut lines: Vec<String> = GOOD[which].lines().map(str::to_owned).collect();
        for (line, change, word) in changes {
            let at = line.index(lines.len());
            match change {
                0 => {
                    lines.remove(at);
                }
                1 => lines.insert(at, lines[at].clone()),
                2 => {
                    let kept = lines[at].split_once(": ").map_or("", |(key, _)| key).to_owned();
                    lines[at] = format!("{kept}: {}", WORDS[word]);
                }
                _ => {
                    let words: Vec<&str> = lines[at].split(", ").collect();
                    lines[at] = words[..words.len() - 1].join(", ");
                }
            }
        }
        let (mesh, report) = load_text(Path::new("/mesh/a.yaml"), lines.join("\n").as_bytes());
        prop_assert_eq!(mesh.is_none(), report.has_errors());
        if let Some(mesh) = mesh {
            prop_assert_eq!(mesh.check_invariants(), Ok(()));
            let node = NodeName::parse("edge-1").unwrap();
            prop_assert_eq!(mesh.for_node(&node).check_invariants(), Ok(()));
            for service in &mesh.services {
                let to = service.name.to_string().parse().unwrap();
                prop_assert!(crate::explain(&mesh, &crate::Caller::Anonymous, &to, None).is_ok());
            }
        }
    }
}
