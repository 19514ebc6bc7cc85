use std::collections::BTreeSet;

use heddle_model::report::{InForce, Report};
use heddle_model::{Mesh, Mode, Outcome as RouteOutcome};
use proptest::prelude::*;

use super::{Beside, Good, Serving};
use crate::source::folder::Scan;
use crate::{Options, Outcome, Request, explain};

mod closed;
mod random;
mod replicas;
mod together;

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
        (self.mesh, self.report) = self
            .serving
            .read((&scan, scan.digest()), beside, had_content);
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
    let recall = |text: &str| {
        Good::recall(text.as_bytes(), DIR.as_ref())
            .0
            .text(DIR.as_ref())
    };
    assert_eq!(recall(&saved), saved);
    let garbage =
        format!("{{\"file\":1}}\nx\n\u{0}\n{saved}{{\"file\":\"/a\",\"line\":1,\"object\":{{}}}}");
    assert_eq!(recall(&garbage), saved);
}
