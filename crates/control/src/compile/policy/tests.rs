use std::path::Path;

use heddle_model::{AppProtocol, Mesh, Mode, NodeName, TrustDomain};
use proptest::prelude::*;

use super::regex::{Pattern, translate};
use crate::{Options, Placement, load_text, load_with};

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
    /// What is taken for plain text means that text and no other.
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
        // What changes no outcome does not change what is spoken either.
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
        placement: Placement::OneNode,
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
