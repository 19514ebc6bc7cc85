use std::collections::BTreeSet;

use heddle_model::report::{InForce, Report};
use heddle_model::{Mesh, Mode, Outcome as RouteOutcome};
use proptest::prelude::*;

use super::{Beside, Good, Serving};
use crate::source::folder::Scan;
use crate::{Options, Outcome, Request, explain};

mod random;

const DIR: &str = "/mesh";

/// A service account, its workload at an address of its own, and a Service in front.
fn service(name: &str, host: u32) -> String {
    format!(
        "apiVersion: v1
kind: ServiceAccount
metadata: {{name: {name}, namespace: shop}}
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {{name: {name}, namespace: shop, labels: {{app: {name}}}}}
spec:
  serviceAccountName: {name}
  address: 127.1.{}.{}
  ports: [{{port: 80}}]
---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: shop}}
spec: {{selector: {{app: {name}}}, ports: [{{port: 80, appProtocol: http}}]}}
",
        host / 200,
        host % 200 + 1,
    )
}

fn policy(name: &str, action: &str, selector: &str, caller: &str) -> String {
    format!(
        "apiVersion: heddle.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {{name: {name}, namespace: shop}}
spec:
  targetRefs: [{{kind: Pod, selector: {selector}}}]
  action: {action}
  rules: [{{sources: [{{type: ServiceAccount, serviceAccount: {{name: {caller}}}}}]}}]
"
    )
}

const ROUTE: &str = "apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop}
spec:
  parentRefs: [{group: \"\", kind: Service, name: web}]
  rules:
  - matches: [{path: {type: PathPrefix, value: /}}]
    backendRefs: [{name: web, port: 80}]
";

/// What serves one folder.
struct Served {
    serving: Serving,
    mesh: Option<Mesh>,
    report: Report,
}

impl Served {
    fn new() -> Self {
        Served {
            serving: Serving::default(),
            mesh: None,
            report: Report::default(),
        }
    }

    /// After a restart that keeps the last good versions.
    fn again(self) -> Self {
        let saved = self.saved();
        let mut again = Served::new();
        again.serving.recall(saved.as_bytes(), DIR.as_ref());
        again
    }

    fn saved(&self) -> String {
        self.serving.good.text(DIR.as_ref())
    }

    fn read(&mut self, files: &[(&str, &str)]) -> &Mesh {
        self.look(files);
        let problems = &self.report.problems;
        self.mesh
            .as_ref()
            .unwrap_or_else(|| panic!("{problems:#?}"))
    }

    fn look(&mut self, files: &[(&str, &str)]) {
        let options = Options::default();
        let beside = Beside {
            dir: DIR.as_ref(),
            options: &options,
            providers: None,
        };
        let had_content = self.mesh.is_some();
        let scan = Scan::of_texts(files);
        (self.mesh, self.report) = self.serving.read(&scan, beside, had_content);
    }

    fn refused(&self) -> Vec<(&str, InForce)> {
        let refused = self.report.refused.iter();
        refused
            .map(|one| (one.object.as_str(), one.in_force))
            .collect()
    }

    fn errors(&self) -> Vec<String> {
        let problems = self.report.problems.iter();
        problems
            .map(ToString::to_string)
            .filter(|text| text.contains(": error"))
            .collect()
    }
}

/// Which accounts may call which workloads of the namespace.
fn allowed(mesh: &Mesh) -> BTreeSet<(String, String)> {
    let mut allowed = BTreeSet::new();
    let request = Request::new("GET", "/").expect("a request");
    for workload in &mesh.workloads {
        for caller in ["anonymous", "shop/sa/web", "shop/sa/cart", "shop/sa/other"] {
            let to = format!("shop/workload/{}", workload.name.name);
            let (from, to) = (
                caller.parse().expect("a caller"),
                to.parse().expect("a workload"),
            );
            let explained = explain(mesh, &from, &to, Some(&request)).expect("an answer");
            if explained
                .endpoints
                .iter()
                .any(|one| one.outcome != Outcome::Refused)
            {
                allowed.insert((caller.to_owned(), workload.name.name.to_string()));
            }
        }
    }
    allowed
}

fn calls(mesh: &Mesh, from: &str, to: &str) -> bool {
    allowed(mesh).contains(&(from.to_owned(), to.to_owned()))
}

#[test]
fn one_broken_object_of_500_is_refused_by_itself() {
    let objects: Vec<String> = (0..500).map(|n| service(&format!("s{n}"), n)).collect();
    let names: Vec<String> = (0..500).map(|n| format!("s{n}.yaml")).collect();
    let files = |broken: &str| {
        let mut objects = objects.clone();
        objects[250] = objects[250].replace("port: 80, appProtocol: http", broken);
        objects
    };
    let read = |served: &mut Served, objects: &[String]| {
        let files: Vec<(&str, &str)> = names
            .iter()
            .map(String::as_str)
            .zip(objects.iter().map(String::as_str))
            .collect();
        served.read(&files).services.len()
    };
    let mut served = Served::new();
    assert_eq!(read(&mut served, &objects), 500);
    let broken = files("prot: 80");
    assert_eq!(read(&mut served, &broken), 500);
    assert_eq!(served.refused(), [("Service shop/s250", InForce::LastGood)]);
    let error = served.errors().join("\n");
    assert!(
        error.starts_with("/mesh/s250.yaml:16: error: Service shop/s250: spec.ports[0]"),
        "{error}"
    );
    // Also after a restart; without what was kept the others are served.
    let mut again = served.again();
    assert_eq!(read(&mut again, &broken), 500);
    let mut fresh = Served::new();
    assert_eq!(read(&mut fresh, &broken), 499);
    assert_eq!(fresh.refused(), [("Service shop/s250", InForce::Nothing)]);
    assert_eq!(read(&mut fresh, &objects), 500);
    assert_eq!(fresh.refused(), []);
}

#[test]
fn a_broken_policy_opens_nothing() {
    for action in ["DENY", "ALLOW"] {
        let [web, cart] = [service("web", 1), service("cart", 2)];
        let good = policy("p", action, "{matchLabels: {app: web}}", "cart");
        let files = |policy: &str| format!("{web}---\n{cart}---\n{policy}");
        let before = {
            let mut served = Served::new();
            let text = files(&good);
            allowed(served.read(&[("a.yaml", &text)]))
        };
        for (what, broken, closes_web_only) in [
            ("a value", good.replace(action, "DENNY"), true),
            ("a field", good.replace("action", "akshun"), true),
            (
                "the kind of source",
                good.replace("type: Serv", "type: Sorv"),
                true,
            ),
            (
                "the selector",
                good.replace("matchLabels", "matchLables"),
                false,
            ),
            ("the name", good.replace("name: p,", "nam: p,"), true),
            (
                "the namespace",
                good.replace("namespace: shop", "namespace: 'sh op'"),
                false,
            ),
            ("the kind", good.replace("kind: Auth", "kind: Aut"), true),
            ("all of it", good.replace("spec:", "spec: ]"), true),
        ] {
            let (good, broken) = (files(&good), files(&broken));
            let mut served = Served::new();
            served.read(&[("a.yaml", &good)]);
            let by_edit = allowed(served.read(&[("a.yaml", &broken)]));
            match what {
                // It may be another policy than the one that was there.
                "the name" => assert!(by_edit.is_subset(&before), "{action}: {by_edit:?}"),
                _ => assert_eq!(by_edit, before, "{action}, {what}, by an edit"),
            }
            let mut again = served.again();
            let restarted = allowed(again.read(&[("a.yaml", &broken)]));
            assert_eq!(restarted, by_edit, "{action}, {what}, after a restart");

            let mut fresh = Served::new();
            fresh.look(&[("a.yaml", &broken)]);
            let Some(mesh) = &fresh.mesh else {
                assert_eq!(what, "all of it", "the only file");
                continue;
            };
            let at_start = allowed(mesh);
            assert!(
                at_start.iter().all(|(_, to)| to != "web"),
                "{action}, {what}: {at_start:?}"
            );
            let others = at_start.iter().any(|(_, to)| to == "cart");
            assert_eq!(
                others,
                closes_web_only,
                "{action}, {what}: {:?}",
                fresh.errors()
            );
        }
    }
}

#[test]
fn a_file_that_is_no_yaml_closes_what_it_may_protect() {
    let [web, cart] = [service("web", 1), service("cart", 2)];
    let services = format!("{web}---\n{cart}");
    let good = policy("p", "DENY", "{matchLabels: {app: web}}", "cart");
    let broken = good.replace("spec:", "spec: ]");
    let mut served = Served::new();
    let mesh = served.read(&[("a.yaml", &services), ("p.yaml", &broken)]);
    assert_eq!(allowed(mesh), BTreeSet::new());
    let mesh = served.read(&[("a.yaml", &services), ("p.yaml", &good)]);
    assert!(calls(mesh, "shop/sa/other", "web") && !calls(mesh, "shop/sa/cart", "web"));
    // It is known now.
    let before = allowed(mesh);
    let mesh = served.read(&[("a.yaml", &services), ("p.yaml", &broken)]);
    assert_eq!(allowed(mesh), before);
    let unreadable = ("unreadable text", InForce::LastGood);
    let wanted = [
        unreadable,
        ("AuthorizationPolicy shop/p", InForce::LastGood),
    ];
    assert_eq!(served.refused(), wanted);
    // A text about other things closes nothing, and keeps what it had.
    let text = service("other", 3);
    let broken = text.replace("spec:", "spec: ]");
    let mesh = served.read(&[("a.yaml", &services), ("o.yaml", &broken)]);
    assert_eq!(mesh.services.len(), 2);
    assert!(
        calls(mesh, "shop/sa/cart", "web"),
        "the policy's file is gone"
    );
    assert_eq!(served.refused(), [("unreadable text", InForce::Nothing)]);
    served.read(&[("a.yaml", &services), ("o.yaml", &text)]);
    let mesh = served.read(&[("a.yaml", &services), ("o.yaml", &broken)]);
    assert_eq!(mesh.services.len(), 3);
}

#[test]
fn a_broken_route_answers_500() {
    let text = format!("{}---\n{ROUTE}", service("web", 1));
    let broken = text.replace("PathPrefix", "PathProfix");
    let mut served = Served::new();
    let before = served.read(&[("a.yaml", &text)]).services.clone();
    assert_eq!(served.read(&[("a.yaml", &broken)]).services, before);
    assert_eq!(
        served.refused(),
        [("HTTPRoute shop/web", InForce::LastGood)]
    );
    let mut again = served.again();
    assert_eq!(again.read(&[("a.yaml", &broken)]).services, before);

    for broken in [broken, text.replace("rules:", "rulez:")] {
        let mut fresh = Served::new();
        let mesh = fresh.read(&[("a.yaml", &broken)]);
        let rules = mesh.services[0].ports[0].routes.as_deref().expect("a rule");
        let [rule] = rules else { panic!("{rules:?}") };
        assert_eq!(rule.action.outcome, RouteOutcome::Forward(Vec::new()));
        assert_eq!(fresh.refused(), [("HTTPRoute shop/web", InForce::Closed)]);
    }
}

#[test]
fn a_broken_namespace_is_strict() {
    let namespace = "apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {heddle.dev/mode: strict}}
---
";
    let text = format!("{namespace}{}", service("web", 1));
    let mut served = Served::new();
    let broken = text.replace("mode: strict", "mode: strikt");
    assert_eq!(
        served.read(&[("a.yaml", &broken)]).workloads[0].mode,
        Mode::Strict
    );
    assert_eq!(served.refused(), [("Namespace shop", InForce::Closed)]);
    let open = text.replace("mode: strict", "mode: permissive");
    assert_eq!(
        served.read(&[("a.yaml", &open)]).workloads[0].mode,
        Mode::Permissive
    );
    // It was permissive until the edit, and stays so.
    let mesh = served.read(&[("a.yaml", &broken)]);
    assert_eq!(mesh.workloads[0].mode, Mode::Permissive);
}

#[test]
fn of_two_that_contradict_each_other_the_senior_one_stays() {
    let aged = |text: &str, year: u32| {
        text.replacen(
            "metadata: {",
            &format!("metadata: {{creationTimestamp: '{year}-01-01T00:00:00Z', "),
            3,
        )
    };
    // The same objects with another port.
    let one = service("web", 1);
    let two = one.replace("port: 80", "port: 81");
    let port = |mesh: &Mesh| mesh.services[0].ports[0].port;
    let mut served = Served::new();
    assert_eq!(port(served.read(&[("a.yaml", &one), ("b.yaml", &two)])), 80);
    // The account, the workload and the Service of that name.
    assert_eq!(served.refused().len(), 3);
    let (young, old) = (aged(&one, 2024), aged(&two, 2023));
    let mut served = Served::new();
    assert_eq!(
        port(served.read(&[("a.yaml", &young), ("b.yaml", &old)])),
        81
    );
    assert!(
        served.errors()[0].starts_with("/mesh/a.yaml:3: error"),
        "{:?}",
        served.errors()
    );

    // Two workloads at one address: the first in the files has it, whatever their names.
    let (second, first) = (service("a", 7), service("b", 7));
    let mut served = Served::new();
    let mesh = served.read(&[("1.yaml", &first), ("2.yaml", &second)]);
    let names: Vec<&str> = mesh
        .workloads
        .iter()
        .map(|one| one.name.name.as_str())
        .collect();
    assert_eq!(names, ["b"]);
    assert_eq!(
        served.refused(),
        [("LocalWorkload shop/a", InForce::Closed)]
    );
}

#[test]
fn what_refers_to_a_refused_object_is_refused_as_well_and_opens_nothing() {
    let target = "apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: {name: t, namespace: shop}
spec:
  destination: {kind: ServiceAccount, name: web}
  sources: [{kind: ServiceAccount, name: cart}]
  rules: [{kind: HTTPRouteGroup, name: g, matches: [m]}]
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: HTTPRouteGroup
metadata: {name: g, namespace: shop}
spec: {matches: [{name: m, pathRegex: /only-this}]}
";
    let text = format!(
        "{}---\n{}---\n{target}",
        service("web", 1),
        service("cart", 2)
    );
    let broken = text.replace("pathRegex", "pathRegeks");
    let mut fresh = Served::new();
    let mesh = fresh.read(&[("a.yaml", &broken)]);
    assert!(
        allowed(mesh).iter().all(|(_, to)| to == "cart"),
        "{:?}",
        allowed(mesh)
    );
    let wanted = [
        ("TrafficTarget shop/t", InForce::Closed),
        ("HTTPRouteGroup shop/g", InForce::Nothing),
    ];
    assert_eq!(fresh.refused(), wanted);
    let errors = fresh.errors();
    assert!(errors[0].contains("TrafficTarget shop/t: spec.rules[0].name: it is refused as well: there is no HTTPRouteGroup"), "{errors:?}");

    let mut served = Served::new();
    served.read(&[("a.yaml", &text)]);
    served.read(&[("a.yaml", &broken)]);
    assert_eq!(
        served.refused(),
        [("HTTPRouteGroup shop/g", InForce::LastGood)]
    );

    // A Service gets another name: the route has no parent any more, and a slice no Service.
    let text = format!("{}---\n{ROUTE}", service("web", 1));
    let renamed = text.replace(
        "kind: Service\nmetadata: {name: web",
        "kind: Service\nmetadata: {name: wob",
    );
    let mut served = Served::new();
    served.read(&[("a.yaml", &text)]);
    assert_eq!(served.read(&[("a.yaml", &renamed)]).services.len(), 1);
    assert_eq!(served.refused(), [("HTTPRoute shop/web", InForce::Closed)]);
}

#[test]
fn a_folder_that_cannot_be_read_or_is_empty_changes_nothing() {
    let text = service("web", 1);
    let mut served = Served::new();
    served.read(&[("a.yaml", &text)]);
    served.look(&[]);
    assert!(served.mesh.is_none() && served.report.is_refused);
    let mut fresh = Served::new();
    fresh.look(&[("a.yaml", &text.replace("kind: ", "kind: X"))]);
    assert!(
        fresh.mesh.is_none() && fresh.report.is_refused,
        "nothing is as it is written"
    );
}

#[test]
fn what_is_saved_is_the_same_again_and_garbage_is_not_used() {
    let text = format!(
        "{}---\n{ROUTE}---\n{}",
        service("web", 1),
        policy("p", "DENY", "{}", "web")
    );
    let mut served = Served::new();
    served.read(&[("a.yaml", &text)]);
    let saved = served.saved();
    // Five objects, what the policy selects, and the words of the file.
    assert_eq!(saved.lines().count(), 7);
    assert!(
        !saved.contains(DIR),
        "the folder may be called otherwise the next time"
    );
    let recall = |text: &str| Good::recall(text.as_bytes(), DIR.as_ref()).text(DIR.as_ref());
    assert_eq!(recall(&saved), saved);
    let garbage =
        format!("{{\"file\":1}}\nx\n\u{0}\n{saved}{{\"file\":\"/a\",\"line\":1,\"object\":{{}}}}");
    assert_eq!(recall(&garbage), saved);
}

/// Two mistakes of one edit, or one after the other, open nothing either.
#[test]
fn what_a_policy_protected_stays_protected_whatever_changes_beside_it() {
    let [web, cart] = [service("web", 1), service("cart", 2)];
    let p = policy("p", "DENY", "{matchLabels: {app: web}}", "cart");
    let broken = p.replace("DENY", "DENNY");
    let with = |web: &str, policy: &str| format!("{web}---\n{cart}---\n{policy}");
    let is_closed = |mesh: &Mesh| !calls(mesh, "shop/sa/cart", "web");

    // The labels change together with the selector, which has an error.
    let relabelled = web.replace("app: web", "app: front");
    let text = with(&relabelled, &broken.replace("app: web", "app: front"));
    let mut served = Served::new();
    served.read(&[("a.yaml", &with(&web, &p))]);
    assert!(is_closed(served.read(&[("a.yaml", &text)])));
    let mut again = served.again();
    assert!(is_closed(again.read(&[("a.yaml", &text)])));

    // The last good version cannot be enforced any more, while the text is about other workloads.
    let http = p.replace(
        "rules: [{",
        "rules: [{httpAttributes: {paths: [{type: PathPrefix, value: /}]}, ",
    );
    let other = http
        .replace("DENY", "DENNY")
        .replace("app: web", "app: cart");
    let tcp = web.replace("appProtocol: http", "appProtocol: tcp");
    let mut served = Served::new();
    served.read(&[("a.yaml", &with(&web, &http))]);
    served.read(&[("a.yaml", &with(&web, &other))]);
    assert!(is_closed(served.read(&[("a.yaml", &with(&tcp, &other))])));
    assert!(
        served
            .refused()
            .contains(&("AuthorizationPolicy shop/p", InForce::Closed))
    );

    // The senior one of two of one name breaks.
    let weak = p.replace("cart", "nobody");
    let services = format!("{web}---\n{cart}");
    let files = |first: &'static str, p: &str| {
        [
            (first.to_owned(), p.to_owned()),
            ("b.yaml".to_owned(), weak.clone()),
            ("c.yaml".to_owned(), services.clone()),
        ]
    };
    for text in [broken, p.replace("spec:", "spec: ]")] {
        let mut served = Served::new();
        for (policy, step) in [
            (&p, "at first"),
            (&text, "by an edit"),
            (&text, "and again"),
        ] {
            let files = files("a.yaml", policy);
            let files: Vec<(&str, &str)> = files
                .iter()
                .map(|(name, text)| (name.as_str(), text.as_str()))
                .collect();
            assert!(
                is_closed(served.read(&files)),
                "{step}: {:?}",
                served.refused()
            );
        }
        let mut fresh = Served::new();
        let files = files("a.yaml", &text);
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        assert!(is_closed(fresh.read(&files)), "{:?}", fresh.refused());
    }

    // It moves into a file that is known, and breaks there.
    let mut served = Served::new();
    served.read(&[("a.yaml", &services), ("p.yaml", &p)]);
    let moved = format!("{services}---\n{}", p.replace("spec:", "spec: ]"));
    assert!(is_closed(served.read(&[("a.yaml", &moved)])));
    let mut fresh = Served::new();
    fresh.look(&[("a.yaml", &moved)]);
    assert!(fresh.mesh.is_none(), "nothing can be used");
}

#[test]
fn nothing_takes_the_place_of_a_workload_that_is_refused() {
    let slice = "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: cart, namespace: shop, labels: {kubernetes.io/service-name: cart}}
addressType: IPv4
endpoints: [{addresses: [127.1.0.2]}, {addresses: [10.1.0.2]}]
ports: [{port: 80}]
";
    let web = service("web", 1).replace("127.1.0.2", "10.9.9.9");
    let slice = slice.replace("127.1.0.2", "10.9.9.9");
    let text = format!("{web}---\n{}---\n{slice}", service("cart", 2));
    let broken = text.replace("serviceAccountName: web", "serviceAccountName: wab");
    let addresses = |mesh: &Mesh| -> Vec<String> {
        let cart = mesh
            .services
            .iter()
            .find(|one| one.name.name.as_str() == "cart");
        let endpoints = cart.into_iter().flat_map(|cart| &cart.ports[0].endpoints);
        endpoints.map(|one| one.address.to_string()).collect()
    };
    let mut served = Served::new();
    let all = ["10.1.0.2:80", "10.9.9.9:80", "127.1.0.3:80"];
    assert_eq!(addresses(served.read(&[("a.yaml", &text)])), all);
    let mut fresh = Served::new();
    let mesh = fresh.read(&[("a.yaml", &broken)]);
    assert_eq!(
        addresses(mesh),
        [all[0], all[2]],
        "it would be called past its policies"
    );
    assert_eq!(
        fresh.refused(),
        [("LocalWorkload shop/web", InForce::Closed)]
    );
}
