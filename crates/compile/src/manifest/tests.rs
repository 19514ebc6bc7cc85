use std::path::Path;

use heddle_model::report::Report;
use proptest::prelude::*;

use super::kind::{Verdict, judge};
use super::node::FieldPath;
use super::yaml::MAX_DOCUMENTS;
use super::*;
use crate::findings::Findings;

fn parse(text: &str) -> Result<Vec<Node>, yaml::SyntaxError> {
    yaml::parse(text.as_bytes(), &mut usize::MAX.clone())
}

fn read_text(text: &str) -> (Vec<Object>, Report) {
    let mut findings = Findings::default();
    let objects = read(
        Path::new("a.yaml"),
        text.as_bytes(),
        &mut 100_000,
        &mut findings,
    );
    (objects.valid, findings.report)
}

#[test]
fn a_path_leads_to_its_line() {
    let tree =
        &parse("# c\na: 1\nb:\n  - x: 1\n    y: [1,\n      2]\n  - z: |\n      text\nc: 1\n")
            .unwrap()[0];
    for (path, line) in [
        (FieldPath::default(), 2),
        (FieldPath::of("a"), 2),
        (FieldPath::of("b"), 3),
        (FieldPath::of("b").index(0), 4),
        (FieldPath::of("b").index(0).field("y"), 5),
        (FieldPath::of("b").index(0).field("y").index(1), 6),
        (FieldPath::of("b").index(1).field("z"), 7),
        (
            FieldPath::of("b").index(1).field("missing").field("more"),
            7,
        ),
        (FieldPath::of("b").index(9), 3),
        (FieldPath::of("c.d"), 9),
    ] {
        assert_eq!(tree.line_of(&path), line, "{path}");
    }
    let path = FieldPath::of("metadata.annotations")
        .field("heddle.dev/x")
        .index(3)
        .field("y");
    assert_eq!(path.to_string(), "metadata.annotations[heddle.dev/x][3].y");
}

#[test]
fn an_alias_is_where_it_is_used() {
    let tree = &parse("a: &a {x: 1}\nb: *a\nc:\n  <<: *a\n  y: 2\n").unwrap()[0];
    assert_eq!(tree.line_of(&FieldPath::of("b.x")), 2);
    assert_eq!(tree.line_of(&FieldPath::of("c.x")), 4);
}

#[test]
fn text_of_many_kinds_is_read() {
    for (text, documents) in [
        ("", 0),
        ("---\n---\n# nothing\n", 0),
        ("\u{feff}a: 1\n", 1),
        ("a: 1\r\nb: 2\r\n---\r\nc: 3\r\n", 2),
        (
            "{\n\t\"a\": [1, 2],\n\t\"b\": \"\\u00e9\\ud83d\\ude00\\/\"\n}\n",
            1,
        ),
        ("%YAML 1.2\n---\na: 1\n...\n", 1),
        ("a: .nan\nb: -.inf\nc: 0o17\nd: !!str 1\n", 1),
    ] {
        assert_eq!(
            parse(text).map(|found| found.len()),
            Ok(documents),
            "{text:?}"
        );
    }
}

#[test]
fn plain_words_are_what_kubectl_takes_them_for() {
    let describe = |text: &str| {
        parse(&format!("a: {text}")).unwrap()[0]
            .get("a")
            .unwrap()
            .describe()
    };
    for (text, expected) in [
        ("yes", "the boolean yes"),
        ("Off", "the boolean Off"),
        ("\"yes\"", "the string \"yes\""),
        ("1.20", "the number 1.20"),
        ("0x10", "the number 0x10"),
        ("1e3", "the number 1e3"),
        ("1.2.3", "the string \"1.2.3\""),
        ("2024-01-01", "the string \"2024-01-01\""),
        ("~", "nothing"),
        ("", "nothing"),
        ("[a]", "a list"),
    ] {
        assert_eq!(describe(text), expected);
    }
    let long = describe(&"x".repeat(100));
    assert!(long.ends_with("x…\"") && long.len() < 100, "{long}");
}

#[test]
fn what_is_no_text_is_refused_with_its_line() {
    let error = yaml::parse(b"a: 1\nb: \xff\n", &mut 100).unwrap_err();
    assert_eq!(
        (error.line, error.reason.as_str()),
        (Some(2), "this is not UTF-8 text")
    );
}

#[test]
fn size_is_bounded_in_every_direction() {
    let many_documents = "a: 1\n---\n".repeat(MAX_DOCUMENTS + 1);
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let deep_block: String = (0..100)
        .map(|depth| format!("{}a:\n", " ".repeat(depth)))
        .collect();
    let aliases = format!("a: &a [{}]\nb: [{}]", "1,".repeat(100), "*a,".repeat(900));
    for text in [many_documents, deep, deep_block, aliases] {
        let error = parse(&text).unwrap_err();
        assert!(error.reason.contains("too many values"), "{}", error.reason);
    }
    let mut values_left = 10;
    assert!(yaml::parse(b"[1, 2, 3, 4, 5]", &mut values_left).is_ok());
    assert_eq!(values_left, 4);
    assert!(yaml::parse(b"[1, 2, 3, 4, 5]", &mut values_left).is_err());
}

#[test]
fn suggestions_are_near_or_none() {
    let fields = ["parentRefs", "hostnames", "rules", "port", "type"];
    for (word, expected) in [
        ("parentRef", Some("parentRefs")),
        ("parentrefs", Some("parentRefs")),
        ("hostnmaes", Some("hostnames")),
        ("rule", Some("rules")),
        ("prot", Some("port")),
        ("host", Some("hostnames")),
        ("pts", None),
        ("x", None),
        ("somethingelse", None),
        ("", None),
    ] {
        assert_eq!(suggest::nearest(word, fields), expected, "{word:?}");
    }
    assert_eq!(suggest::distance(&"x".repeat(1000), "x"), usize::MAX);
}

#[test]
fn kinds_of_others_are_skipped_and_slips_are_not() {
    let skipped = |name: &str| Verdict::Skip(name.to_owned());
    for (api_version, kind, expected) in [
        ("v1", "Service", Verdict::Read(Kind::Service)),
        (
            "gateway.networking.k8s.io/v1beta1",
            "HTTPRoute",
            Verdict::Read(Kind::HttpRoute),
        ),
        ("v1", "Secret", skipped("Secret")),
        ("apps/v1", "Deployment", skipped("Deployment")),
        (
            "serving.knative.dev/v1",
            "Service",
            skipped("Service.serving.knative.dev"),
        ),
        (
            "gateway.networking.k8s.io/v1",
            "Gateway",
            skipped("Gateway"),
        ),
        (
            "gateway.networking.k8s.io/v1alpha2",
            "TCPRoute",
            skipped("TCPRoute.gateway.networking.k8s.io"),
        ),
        (
            "gateway.networking.k8s.io/v1alpha2",
            "UDPRoute",
            skipped("UDPRoute"),
        ),
        (
            "access.smi-spec.io/v1alpha3",
            "TrafficTarget",
            Verdict::Read(Kind::TrafficTarget),
        ),
        (
            "split.smi-spec.io/v1alpha4",
            "TrafficSplit",
            skipped("TrafficSplit"),
        ),
    ] {
        assert_eq!(judge(api_version, kind), expected, "{api_version} {kind}");
    }
    for (api_version, kind, field) in [
        ("v1", "Servcie", "kind"),
        ("policy.heddle.dev/v1", "AuthorizationPolicy", "apiVersion"),
        (
            "security.heddle.dev/v1alpha1",
            "AuthorizationPolicy",
            "apiVersion",
        ),
        ("policy.heddle.dev/v1", "Anything", "apiVersion"),
        ("policy.heddle.dev/v1alpha1", "Service", "apiVersion"),
        ("Heddle.dev/v1alpha1", "Anything", "apiVersion"),
        ("gateway.networking.k8s.io/v1", "HttpRoute", "kind"),
        ("heddle.dev/v1alpha1", "LocalWorkloads", "kind"),
        ("heddle.dev/v1alpha1", "Anything", "kind"),
        ("heddle.dev/v2", "LocalWorkload", "apiVersion"),
        (
            "gateway.networking.x-k8s.io/v1alpha1",
            "AuthorizationPolicy",
            "apiVersion",
        ),
        ("specs.smi-spec.io/v1alpha3", "TCPRoute", "apiVersion"),
        ("smi-spec.io/v1alpha3", "TrafficTarget", "apiVersion"),
        ("v1", "LocalWorkload", "apiVersion"),
        ("discovery.k8s.io/v1beta1", "EndpointSlice", "apiVersion"),
        ("hedle.dev/v1alpha1", "LocalWorkload", "apiVersion"),
        ("heddle.io/v1alpha1", "LocalWorkload", "apiVersion"),
        ("networking.k8s.io/v1", "HTTPRoute", "apiVersion"),
        ("gateway.networking.k8s/v1", "HTTPRoute", "apiVersion"),
        ("policy.linkerd.io/v1beta3", "HTTPRoute", "apiVersion"),
        ("x-k8s.io/v1", "ReferenceGrant", "apiVersion"),
        ("apps/v1", "Service", "apiVersion"),
        ("core/v1", "Namespace", "apiVersion"),
    ] {
        let verdict = judge(api_version, kind);
        assert!(
            matches!(&verdict, Verdict::Refuse { field: found, .. } if *found == field),
            "{api_version} {kind}: {verdict:?}"
        );
    }
}

#[test]
fn a_policy_of_another_mesh_is_a_warning() {
    let ours = "write it as AuthorizationPolicy of heddle.dev/v1alpha1";
    for (api_version, kind, remedy) in [
        ("security.istio.io/v1", "AuthorizationPolicy", ours),
        (
            "security.istio.io/v1",
            "PeerAuthentication",
            "to refuse callers without an identity, label workloads heddle.dev/mode: strict",
        ),
        (
            "security.istio.io/v1",
            "RequestAuthentication",
            "no token is checked here: let the endpoint do it",
        ),
        ("policy.linkerd.io/v1alpha1", "AuthorizationPolicy", ours),
        ("policy.linkerd.io/v1beta1", "ServerAuthorization", ours),
        ("policy.linkerd.io/v1beta3", "Server", ours),
        ("consul.hashicorp.com/v1alpha1", "ServiceIntentions", ours),
        ("kuma.io/v1alpha1", "MeshTrafficPermission", ours),
        ("kuma.io/v1alpha1", "TrafficPermission", ours),
        ("theheddle.dev.example/v1", "AuthorizationPolicy", ours),
    ] {
        let (group, _) = api_version.split_once('/').unwrap();
        let (objects, report) = read_text(&format!(
            "apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: only-web, namespace: shop}}"
        ));
        assert!(objects.is_empty());
        assert_eq!((report.errors(), report.problems.len()), (0, 1), "{kind}");
        let said = report.problems[0].to_string();
        assert!(
            said.ends_with(&format!(
                ":2: warning: {kind} shop/only-web: it is a policy of {group} and is not enforced ({remedy})"
            )),
            "{said}"
        );
        assert_eq!(report.skipped.get(&format!("{kind}.{group}")), Some(&1));
    }
    // Kubernetes' own policies concern another layer, and a Server of an unknown group may be anything.
    for other in [
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy",
        "apiVersion: games.example/v1\nkind: Server",
    ] {
        let (_, report) = read_text(other);
        assert!(report.problems.is_empty(), "{other}");
    }
}

#[test]
fn lists_hold_objects() {
    let item = "metadata: {name: a}, spec: {ports: [{port: 80}]}";
    for (text, count) in [
        (
            format!(
                "apiVersion: v1\nkind: List\nitems: [{{apiVersion: v1, kind: Service, {item}}}]"
            ),
            1,
        ),
        (
            format!("apiVersion: v1\nkind: ServiceList\nitems: [{{{item}}}]"),
            1,
        ),
        ("apiVersion: v1\nkind: List\nitems: []".to_owned(), 0),
        ("apiVersion: v1\nkind: List\nitems:".to_owned(), 0),
    ] {
        let (objects, report) = read_text(&text);
        assert_eq!(
            (objects.len(), report.errors()),
            (count, 0),
            "{text}: {:?}",
            report.problems
        );
    }
    // kubectl never prints a list in a list.
    let (_, report) =
        read_text("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List, items: []}]");
    assert_eq!(report.skipped.get("List"), Some(&1));
}

/// The documentation page of all fields lists those without effect, too.
#[test]
fn fields_without_effect_are_documented() {
    let page = include_str!("../../../../docs/manifests.md");
    let of_probes = include_str!("../../../../docs/policy.md");
    for (page, kind) in [
        (page, "Service"),
        (page, "ServiceSpec"),
        (page, "ServicePortSpec"),
        (page, "ServiceAccount"),
        (page, "Namespace"),
        (page, "SliceEndpoint"),
        (page, "SlicePort"),
        (page, "SliceConditions"),
        (page, "HttpRouteSpec"),
        (of_probes, "LocalProbe"),
        (of_probes, "HttpGet"),
    ] {
        for field in unused::fields(kind) {
            let found = ["`", "."]
                .iter()
                .any(|before| page.contains(&format!("{before}{field}`")));
            assert!(found, "{kind}.{field}");
        }
    }
}

/// Pieces of manifests, for texts that are almost valid.
fn fragment() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "apiVersion: v1\n",
            "kind: Service\n",
            "kind: List\n",
            "metadata: {name: a}\n",
            "spec:\n",
            "  ports:\n",
            "  - port: 80\n",
            "    - {port: 80, targetPort: http}\n",
            "---\n",
            "&a ",
            "*a",
            "<<: *a\n",
            "items:\n",
            "- ",
            ": ",
            "{",
            "}",
            "[",
            "]",
            ",",
            "\n",
            "  ",
            "\t",
            "\"",
            "'",
            "|\n",
            ">-\n",
            "# c\n",
            "? ",
            "!!str ",
            "~",
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\n",
            "\u{feff}",
            "\r\n",
            "%YAML 1.2\n",
        ])
        .prop_map(str::to_owned),
        "[ -~]{0,8}",
        any::<char>().prop_map(String::from),
    ]
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(fragments in prop::collection::vec(fragment(), 0..40)) {
        read_text(&fragments.concat());
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut findings = Findings::default();
        read(Path::new("a.yaml"), &bytes, &mut 100_000, &mut findings);
    }
}

/// serde stops at the first fault; the author should not have to run the check once for each.
#[test]
fn every_value_of_a_wrong_type_is_reported_and_nothing_that_follows_from_it() {
    let text = "apiVersion: v1
kind: Service
metadata: {name: many, labels: {a: on}}
spec:
  selector: [a]
  ports:
    - {port: \"80\", portt: 1}
    - {name: 5, targetPort: [1]}
    - http
  sessionAffinity: 1
";
    let (objects, report) = read_text(text);
    assert!(objects.is_empty());
    let mut found: Vec<(u32, &str)> = report
        .problems
        .iter()
        .map(|problem| (problem.origin.line().unwrap(), problem.field.as_str()))
        .collect();
    found.sort_unstable();
    let expected = [
        (3, "metadata.labels.a"),
        (5, "spec.selector"),
        (7, "spec.ports[0].port"),
        (7, "spec.ports[0].portt"),
        (8, "spec.ports[1].name"),
        (8, "spec.ports[1].port"),
        (8, "spec.ports[1].targetPort"),
        (9, "spec.ports[2]"),
        (10, "spec.sessionAffinity"),
    ];
    assert_eq!(found, expected, "{:#?}", report.problems);
}

#[test]
fn of_very_many_values_of_a_wrong_type_some_are_reported() {
    let ports = "    - {port: x}\n".repeat(1_000);
    let text =
        format!("apiVersion: v1\nkind: Service\nmetadata: {{name: a}}\nspec:\n  ports:\n{ports}");
    let (_, report) = read_text(&text);
    assert_eq!(report.problems.len(), 10);
}

proptest! {
    /// For any values, decoding ends, and an object is read or refused with a reason.
    #[test]
    fn what_is_refused_has_a_reason(
        values in proptest::collection::vec(
            prop_oneof![
                Just("1"), Just("x"), Just("[]"), Just("{}"), Just("~"), Just("on"), Just("[1, x]"),
                Just("{a: 1}"), Just("[{}]"), Just("[{port: x}, 1]"), Just("1.5"),
            ],
            6,
        ),
    ) {
        let text = format!(
            "apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {{name: a, labels: {}}}
spec: {{address: {}, ports: {}, weight: {}, command: {}, env: {}}}
",
            values[0], values[1], values[2], values[3], values[4], values[5]
        );
        let (objects, report) = read_text(&text);
        prop_assert_eq!(objects.is_empty(), !report.problems.is_empty(), "{:#?}", report.problems);
        let mut fields: Vec<&str> = report.problems.iter().map(|p| p.field.as_str()).collect();
        fields.sort_unstable();
        let all = fields.len();
        fields.dedup();
        prop_assert_eq!(fields.len(), all, "one problem for each field");
    }
}

/// A value of a registry is read on a thread that has used a part of its stack.
#[test]
fn what_is_nested_without_end_is_refused_on_any_thread() {
    for opening in [
        "{\"a\":",
        "{a: ",
        "[",
        "{? ",
        "{'a':",
        "{[",
        "- ",
        "? ",
        "a: {\"b\": [",
        "!t {\"a\":",
        "&a {\"a\":",
    ] {
        for times in [60, 250, 5_000, 50_000] {
            for closing in ["", "}"] {
                let text = opening.repeat(times) + &closing.repeat(times);
                let small = std::thread::Builder::new().stack_size(768 * 1024);
                let parsing = small
                    .spawn(move || yaml::parse(text.as_bytes(), &mut 100_000).is_err())
                    .unwrap();
                assert!(parsing.join().expect("it ends"), "{opening} {times}");
            }
        }
    }
}
