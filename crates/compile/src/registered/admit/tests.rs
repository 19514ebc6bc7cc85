//! Given a folder and providers, the fitting ones are compiled beside it, and the others become problems that do not
//! stop the folder from being served.

use std::path::Path;

use heddle_model::Mesh;
use heddle_model::report::{Origin, Report};

use super::tried::{Admitted, MAX_TRIALS};
use super::*;
use crate::registered::{Layout, Providers};
use crate::source::load_beside;

const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n\
    spec: {selector: {app: web}, ports: [{port: 80, targetPort: http}]}\n---\n";

fn provider(name: &str, created: i64, metadata: &str, spec: &str) -> Arc<Entry> {
    let key =
        Layout::default().provider(format!("/heddle/v1/providers/shop/web/{name}").as_bytes());
    let value = format!(
        "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata: {metadata}\nspec: {spec}\n"
    );
    Arc::new(Entry {
        origin: Origin::etcd(format!("/{name}")),
        key: key.expect("a key"),
        value: value.into_bytes(),
        created,
    })
}

/// A provider of the Service, at an address in 10.0.0.0/8.
fn web(name: &str, created: i64, address: &str) -> Arc<Entry> {
    let spec = format!("{{address: {address}, ports: [{{name: http, port: 8080}}]}}");
    provider(name, created, "{labels: {app: web}}", &spec)
}

fn compiled(folder: &str, entries: Vec<Arc<Entry>>) -> (Option<Mesh>, Report) {
    let providers = Providers {
        entries: entries.into(),
        version: 1,
        ..Providers::default()
    };
    let mut tried = Tried::default();
    load_beside(
        Path::new("a.yaml"),
        folder.as_bytes(),
        &providers,
        &mut tried,
    )
}

/// It is known without a compilation, and costs no other provider one.
#[test]
fn a_provider_outside_of_the_ranges_is_left_out_by_itself() {
    let options = Options {
        address_ranges: vec!["10.0.0.0/24".parse().unwrap()],
        ..Options::default()
    };
    let entries = [
        web("in", 1, "10.0.0.1"),
        web("out", 2, "10.0.1.1"),
        provider(
            "more",
            3,
            "{labels: {app: web}}",
            "{address: 10.0.0.3, addresses: [10.0.1.3], ports: [{name: http, port: 8080}]}",
        ),
    ];
    let entries = Entries::from(entries.to_vec());
    let (fit, problems) = candidates(&[], &entries, &options);
    let fit: Vec<&Origin> = fit.iter().map(|one| &one.entry.origin).collect();
    assert_eq!(fit, [&Origin::etcd("/in")]);
    let causes: Vec<Option<Cause>> = problems.iter().map(|one| one.cause).collect();
    assert_eq!(causes, [Some(Cause::Range); 2]);
    let said = problems[1].to_string();
    assert!(
        said.contains("10.0.1.1 is in none of the mesh's address ranges (10.0.0.0/24)"),
        "{said}"
    );
}

/// The endpoints of the only Service, and the problems as text.
fn outcome(folder: &str, entries: Vec<Arc<Entry>>) -> (Vec<String>, Vec<String>) {
    let (mesh, report) = compiled(folder, entries);
    let mesh = mesh.unwrap_or_else(|| panic!("{:?}", report.problems));
    let endpoints = mesh.services[0].ports[0].endpoints.iter();
    let said = report.problems.iter().map(ToString::to_string);
    (
        endpoints
            .map(|endpoint| endpoint.address.to_string())
            .collect(),
        said.collect(),
    )
}

#[test]
fn a_selector_matches_who_registered_as_it_matches_the_folders() {
    let folder = format!(
        "{SERVICE}apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\n\
         metadata: {{name: own, namespace: shop, labels: {{app: web}}}}\n\
         spec: {{address: 10.0.0.1, ports: [{{name: http, port: 80}}]}}\n"
    );
    let other = provider(
        "c",
        3,
        "{}",
        "{address: 10.0.0.4, ports: [{name: http, port: 8080}]}",
    );
    let (mesh, report) = compiled(
        &folder,
        vec![web("a", 1, "10.0.0.2"), web("b", 2, "10.0.0.3"), other],
    );
    let mesh = mesh.expect("a mesh");
    let endpoints: Vec<String> = mesh.services[0].ports[0]
        .endpoints
        .iter()
        .map(|e| e.address.to_string())
        .collect();
    assert_eq!(endpoints, ["10.0.0.1:80", "10.0.0.2:8080", "10.0.0.3:8080"]);
    assert_eq!(report.registered.len(), 3);
    // One of them lacks the label.
    let [uncalled] = &report.problems[..] else {
        panic!("{:?}", report.problems);
    };
    let expected = "etcd:/c: warning: no Service calls it: Service shop/web selects other labels, or another port";
    assert!(uncalled.to_string().starts_with(expected), "{uncalled}");
    // The label comes from the key, whatever labels the value has.
    let by_key = SERVICE.replace("app: web}, ports", "heddle.dev/service: web}, ports");
    let (endpoints, _) = outcome(&by_key, vec![web("a", 1, "10.0.0.2")]);
    assert_eq!(endpoints, ["10.0.0.2:8080"]);
}

#[test]
fn the_folder_comes_first_and_then_who_was_there_first() {
    let folder = format!(
        "{SERVICE}apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\n\
         metadata: {{name: web.taken, namespace: shop, labels: {{app: web}}}}\n\
         spec: {{address: 10.0.0.1, ports: [{{name: http, port: 8080}}]}}\n"
    );
    let (endpoints, said) = outcome(
        &folder,
        vec![
            web("at-the-folders", 1, "10.0.0.1"),
            web("later", 9, "10.0.0.2"),
            web("sooner", 3, "10.0.0.2"),
            web("taken", 2, "10.0.0.5"),
        ],
    );
    assert_eq!(endpoints, ["10.0.0.1:8080", "10.0.0.2:8080"]);
    let [folders, later, taken] = &said[..] else {
        panic!("{said:#?}");
    };
    assert!(folders.contains("LocalWorkload shop/web.taken has port 8080 of 10.0.0.1 already"));
    assert!(
        later.contains("etcd:/later") && later.contains("LocalWorkload shop/web.sooner has port")
    );
    assert!(taken.contains("etcd:/taken") && taken.contains("a LocalWorkload of that name"));
}

#[test]
fn an_account_is_had_only_where_the_folder_lets_it() {
    let spec = "{address: 10.0.0.2, ports: [{name: http, port: 8080}], serviceAccountName: web}";
    let entry = || vec![provider("a", 1, "{labels: {app: web}}", spec)];
    let account = |annotations: &str| {
        format!(
            "{SERVICE}apiVersion: v1\nkind: ServiceAccount\n\
             metadata: {{name: web, namespace: shop, annotations: {annotations}}}\n"
        )
    };
    let (endpoints, said) = outcome(&account("{heddle.dev/registry: allow}"), entry());
    assert_eq!((endpoints.len(), said.len()), (1, 0), "{said:?}");
    for folder in [account("{}"), SERVICE.to_owned()] {
        let (endpoints, said) = outcome(&folder, entry());
        assert!(endpoints.is_empty());
        let about = said
            .iter()
            .find(|line| line.contains("may not use ServiceAccount web"));
        assert!(
            about.is_some_and(|line| line.contains("heddle.dev/registry: allow")),
            "{said:?}"
        );
    }
    let (mesh, report) = compiled(&account("{heddle.dev/registry: yess}"), Vec::new());
    assert!(mesh.is_none());
    assert!(report.problems[0].reason.contains("\"yess\" is not known"));
}

#[test]
fn one_that_the_folder_would_not_stand_costs_no_other_its_place() {
    // A rule on requests cannot be enforced where only bytes are forwarded.
    let folder = format!(
        "{SERVICE}apiVersion: v1\nkind: Service\nmetadata: {{name: bytes, namespace: shop}}\n\
         spec: {{selector: {{app: bytes}}, ports: [{{name: tcp-any, port: 90, targetPort: http}}]}}\n---\n\
         apiVersion: heddle.dev/v1alpha1\nkind: AuthorizationPolicy\n\
         metadata: {{name: no-admin, namespace: shop}}\n\
         spec:\n  targetRefs: [{{kind: Pod, selector: {{matchLabels: {{is: guarded}}}}}}]\n  action: DENY\n  \
         rules: [{{httpAttributes: {{paths: [{{type: PathPrefix, value: /admin}}]}}}}]\n"
    );
    let wrong = provider(
        "wrong",
        1,
        "{labels: {app: bytes, is: guarded}}",
        "{address: 10.0.0.7, ports: [{name: http, port: 9090}]}",
    );
    let mut entries: Vec<Arc<Entry>> = (10..40)
        .map(|n| web(&format!("p{n}"), n, &format!("10.1.0.{n}")))
        .collect();
    entries.push(wrong);
    let (mesh, report) = compiled(&folder, entries);
    let mesh = mesh.expect("a mesh");
    assert_eq!(endpoints(&mesh, "web").len(), 30);
    let said: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    let left_out: Vec<&String> = said.iter().filter(|l| l.starts_with("etcd:")).collect();
    let [wrong] = &left_out[..] else {
        panic!("{said:#?}");
    };
    let expected =
        "etcd:/wrong: warning: with it AuthorizationPolicy shop/no-admin would be refused";
    assert!(wrong.starts_with(expected), "{wrong}");
}

/// The endpoints of a Service's only port, each with the workload that it counts as.
fn endpoints(mesh: &Mesh, name: &str) -> Vec<String> {
    let mut services = mesh.services.iter();
    let service = services.find(|service| service.name.name.as_str() == name);
    let endpoints = service.expect("a Service").ports[0].endpoints.iter();
    let shown = endpoints.map(|endpoint| match &endpoint.workload {
        Some(workload) => format!("{} {workload}", endpoint.address),
        None => format!("{} outside", endpoint.address),
    });
    shown.collect()
}

/// A Service whose EndpointSlice has an address.
fn sliced(address: &str) -> String {
    format!(
        "{SERVICE}apiVersion: v1\nkind: Service\nmetadata: {{name: sliced, namespace: shop}}\n\
         spec: {{ports: [{{name: http, port: 80}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: sliced-1, namespace: shop, labels: {{kubernetes.io/service-name: sliced}}}}\n\
         addressType: IPv4\nendpoints: [{{addresses: [{address}]}}]\nports: [{{name: http, port: 9090}}]\n---\n"
    )
}

#[test]
fn no_provider_becomes_an_address_of_an_endpoint_slice_by_registering_there() {
    let folder = sliced("10.0.0.5");
    for spec in [
        // In turn: the only workload with that address; one with that port; one that diverts to another address.
        "{address: 10.0.0.5, ports: [{name: http, port: 9999}]}",
        "{address: 10.0.0.5, ports: [{name: http, port: 9090}]}",
        "{address: 10.6.6.6, addresses: [10.0.0.5], ports: [{name: http, port: 9090}]}",
    ] {
        let evil = provider("evil", 1, "{labels: {app: web}}", spec);
        let (mesh, _) = compiled(&folder, vec![evil]);
        let mesh = mesh.expect("a mesh");
        assert_eq!(
            endpoints(&mesh, "sliced"),
            ["10.0.0.5:9090 outside"],
            "{spec}"
        );
    }
}

#[test]
fn no_workload_stops_being_an_address_of_an_endpoint_slice_because_another_registers_there() {
    let folder = sliced("10.0.0.5")
        + "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\n\
           metadata: {name: owner, namespace: shop}\nspec: {address: 10.0.0.5}\n";
    for port in [9999, 9090] {
        let spec = format!("{{address: 10.0.0.5, ports: [{{name: http, port: {port}}}]}}");
        let other = provider("a", 1, "{labels: {app: web}}", &spec);
        let (mesh, _) = compiled(&folder, vec![other]);
        let mesh = mesh.expect("a mesh");
        assert_eq!(
            endpoints(&mesh, "sliced"),
            ["10.0.0.5:9090 shop/owner"],
            "{port}"
        );
    }
    // Nor through a selector beside the EndpointSlice.
    let both = folder.replace(
        "spec: {ports: [{name: http, port: 80}]}",
        "spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 9090}]}",
    );
    let spec = "{address: 10.0.0.5, ports: [{name: http, port: 9090}]}";
    let (mesh, report) = compiled(&both, vec![provider("a", 1, "{labels: {app: web}}", spec)]);
    let mesh = mesh.expect("a mesh");
    assert_eq!(endpoints(&mesh, "sliced"), ["10.0.0.5:9090 shop/owner"]);
    let said: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    let about = said.iter().find(|line| line.starts_with("etcd:/a"));
    assert!(
        about.is_some_and(|line| line.contains("that of LocalWorkload shop/owner")),
        "{said:#?}"
    );
}

#[test]
fn who_registers_is_called_where_it_registered_and_nowhere_else() {
    // Any of them may be the oldest: none of them is at port 8080.
    let folder = format!(
        "{SERVICE}apiVersion: v1\nkind: Service\nmetadata: {{name: number, namespace: shop}}\n\
         spec: {{selector: {{app: number}}, ports: [{{port: 80, targetPort: 8080}}]}}\n"
    );
    let number = |name: &str, created: i64, port: u16| {
        let spec = format!("{{address: 10.0.0.5, ports: [{{name: http, port: {port}}}]}}");
        provider(name, created, "{labels: {app: number}}", &spec)
    };
    let others = [number("x", 1, 9001), number("y", 2, 9002)];
    let (mesh, report) = compiled(&folder, others.to_vec());
    assert!(endpoints(&mesh.expect("a mesh"), "number").is_empty());
    let said: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    let expected = "spec.ports[0].targetPort: LocalWorkload shop/web.x and 1 more registered without port 8080 \
                    and is left out (write the name of the port that it registers: http)";
    assert!(said.iter().any(|line| line.contains(expected)), "{said:#?}");
    // Nor do they block the one that is.
    let [x, y] = others;
    let (mesh, _) = compiled(&folder, vec![x, y, web("a", 3, "10.0.0.5")]);
    let mesh = mesh.expect("a mesh");
    assert_eq!(endpoints(&mesh, "web"), ["10.0.0.5:8080 shop/web.a"]);
    // If the number is registered, it works like the name.
    let (mesh, _) = compiled(&folder, vec![number("z", 1, 8080)]);
    let mesh = mesh.expect("a mesh");
    assert_eq!(endpoints(&mesh, "number"), ["10.0.0.5:8080 shop/web.z"]);
}

#[test]
fn what_goes_to_a_workload_of_the_folder_is_not_led_elsewhere() {
    let folder = format!(
        "{SERVICE}apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\n\
         metadata: {{name: own, namespace: shop}}\n\
         spec: {{address: 10.0.0.1, addresses: ['fd00::1'], nodeName: edge-1, ports: [{{port: 80}}]}}\n"
    );
    for (spec, expected) in [
        (
            "{address: 10.6.6.6, addresses: ['fd00::1'], ports: [{name: http, port: 9999}]}",
            "spec.address: fd00::1 is LocalWorkload shop/own's, which is called at 10.0.0.1",
        ),
        (
            "{address: 'fd00::1', ports: [{name: http, port: 9999}]}",
            "spec.address: fd00::1 is LocalWorkload shop/own's, which is called at 10.0.0.1",
        ),
        (
            "{address: 10.0.0.1, nodeName: edge-2, ports: [{name: http, port: 9999}]}",
            "spec.nodeName: 10.0.0.1 is LocalWorkload shop/own's, which is on node edge-1",
        ),
    ] {
        let evil = provider("evil", 1, "{labels: {app: web}}", spec);
        let (found, said) = outcome(&folder, vec![evil]);
        assert!(found.is_empty(), "{spec}");
        assert!(said.iter().any(|line| line.contains(expected)), "{said:#?}");
    }
    // Another port on the same machine is admitted.
    let beside = "{address: 10.0.0.1, nodeName: edge-1, ports: [{name: http, port: 9999}]}";
    let beside = provider("beside", 1, "{labels: {app: web}}", beside);
    assert_eq!(outcome(&folder, vec![beside]).0, ["10.0.0.1:9999"]);
}

#[test]
fn a_folder_that_is_wrong_is_not_the_providers_fault() {
    let (mesh, report) = compiled(
        &format!("{SERVICE}kind: Oops\n"),
        vec![web("a", 1, "10.0.0.2")],
    );
    assert!(mesh.is_none());
    assert!(
        report
            .problems
            .iter()
            .all(|problem| !problem.origin.is_registry())
    );
}

/// Tries these entries, of which those without weight do not fit; counts the compilations.
fn tried_with(tried: &mut Tried, entries: &[Arc<Entry>]) -> (Admitted, usize) {
    let mut entries = entries.to_vec();
    entries.sort_by_key(|entry| entry.created);
    let candidates = entries.into_iter().map(|entry| {
        let object = entry.object().expect("an object");
        Candidate { entry, object }
    });
    let mut trials = 0;
    let admitted = tried.admit(candidates.collect(), |objects| {
        trials += 1;
        let does_not_fit = |object: &Object| match &object.body {
            Body::LocalWorkload(body) => body.spec.weight == Some(0),
            _ => false,
        };
        let is_wrong = objects.iter().any(does_not_fit);
        let error = is_wrong.then(|| warning(&Origin::etcd("x"), "", "no weight".to_owned(), ""));
        (objects, error)
    });
    assert!(trials <= MAX_TRIALS, "{trials}");
    (admitted, trials)
}

/// A provider that fits beside others, or does not.
fn weighted(name: &str, created: i64, fits: bool) -> Arc<Entry> {
    let spec = format!(
        "{{address: 10.0.0.2, ports: [{{port: 80}}], weight: {}}}",
        u8::from(fits)
    );
    provider(name, created, "{}", &spec)
}

fn counted(admitted: &Admitted, reason: &str) -> usize {
    let problems = admitted.problems.iter();
    problems.filter(|p| p.reason.contains(reason)).count()
}

#[test]
fn what_is_tried_is_bounded_and_goes_on_the_next_time() {
    let mut entries: Vec<Arc<Entry>> = (0..100)
        .map(|n| weighted(&format!("wrong{n}"), n, false))
        .collect();
    entries.extend((100..500).map(|n| weighted(&format!("right{n}"), n, true)));
    let mut tried = Tried::default();
    let mut rounds = 0;
    let admitted = loop {
        let (admitted, _) = tried_with(&mut tried, &entries);
        assert_eq!(admitted.objects.len() + admitted.problems.len(), 500);
        let untried = counted(&admitted, "too many others");
        assert_eq!(tried.is_unfinished(), untried > 0);
        rounds += 1;
        assert!(rounds < 20, "{untried} are never tried");
        if untried == 0 {
            break admitted;
        }
    };
    assert!(rounds > 1);
    assert_eq!(admitted.objects.len(), 400);
    assert_eq!(counted(&admitted, "no weight"), 100);
    // From now on the ones that do not fit delay no others, whatever their position.
    entries.push(weighted("late", 1_000, true));
    let (admitted, _) = tried_with(&mut tried, &entries);
    assert_eq!(admitted.objects.len(), 401);
    assert!(!tried.is_unfinished());
}

#[test]
fn one_that_does_not_fit_costs_its_search_once() {
    let mut entries: Vec<Arc<Entry>> = (1..1_000)
        .map(|n| weighted(&format!("right{n}"), n, true))
        .collect();
    entries.push(weighted("wrong", 0, false));
    let mut tried = Tried::default();
    let (_, trials) = tried_with(&mut tried, &entries);
    assert!(trials > 10, "{trials}");
    let (admitted, trials) = tried_with(&mut tried, &entries);
    assert_eq!((admitted.objects.len(), trials), (999, 2));
    // Corrected, it is admitted.
    entries.pop();
    entries.push(weighted("wrong", 0, true));
    let (admitted, _) = tried_with(&mut tried, &entries);
    assert_eq!(
        (admitted.objects.len(), admitted.problems.len()),
        (1_000, 0)
    );
}

#[test]
fn providers_that_were_let_in_stay_while_too_much_else_does_not_fit() {
    let entries = |fits: bool| -> Vec<Arc<Entry>> {
        let one = |n: i64| weighted(&format!("p{n}"), n, fits || n % 100 != 0);
        (0..1_000).map(one).collect()
    };
    let mut tried = Tried::default();
    tried.all_fit(entries(true));
    // Ten of the admitted ones become wrong at once, more than the trials can isolate.
    let mut now = entries(false);
    now.push(weighted("new", 2_000, true));
    let (admitted, _) = tried_with(&mut tried, &now);
    assert!(tried.is_unfinished());
    assert_eq!(admitted.objects.len(), 990);
    for _ in 0..10 {
        tried_with(&mut tried, &now);
    }
    let (admitted, _) = tried_with(&mut tried, &now);
    assert!(!tried.is_unfinished());
    assert_eq!(admitted.objects.len(), 991);
}
