//! Given a folder and providers, the tally says of each provider whether it is called, and if not, why.

use std::collections::BTreeMap;
use std::path::Path;

use heddle_model::ServiceName;
use heddle_model::report::{Origin, Report};

use super::*;
use crate::registered::admit::Tried;
use crate::registered::{Layout, ProviderKey};
use crate::source::load_beside;

const FOLDER: &str = "apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: heddle.dev/v1alpha1
kind: LocalWorkload
metadata: {name: own, namespace: shop, labels: {app: web}}
spec: {address: 10.0.0.1, ports: [{name: http, port: 8080}]}
";

fn key(path: &str) -> ProviderKey {
    let key = format!("/heddle/v1/providers/{path}");
    let key = Layout::default().provider(key.as_bytes());
    key.expect("a key")
}

fn entry(path: &str, app: &str, more: &str) -> Arc<Entry> {
    let value = format!(
        "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata: {{labels: {{app: {app}}}}}\n\
         spec: {{ports: [{{name: http, port: 8080}}], {more}}}\n"
    );
    Arc::new(Entry {
        origin: Origin::etcd(format!("/heddle/v1/providers/{path}")),
        key: key(path),
        value: value.into_bytes(),
        created: 1,
    })
}

fn compiled(folder: &str, providers: &Providers) -> Report {
    let file = Path::new("a.yaml");
    let (_, report) = load_beside(file, folder.as_bytes(), providers, &mut Tried::default());
    report
}

fn workload(name: &str) -> WorkloadName {
    WorkloadName::parse(name).expect("a name")
}

#[test]
fn who_is_called_and_who_is_not_is_counted() {
    let providers = Providers {
        entries: vec![
            entry("shop/web/a", "web", "address: 10.0.0.2"),
            entry("shop/web/b", "other", "address: 10.0.0.3"),
            entry("shop/web/c", "web", "address: 10.0.0.1"),
            entry(
                "shop/web/d",
                "web",
                "address: 10.0.0.4, serviceAccountName: admin",
            ),
            entry("shop/ghost/e", "ghost", "address: 10.0.0.5"),
        ]
        .into(),
        by_cause: BTreeMap::from([(Cause::Value, 1)]),
        wrong: vec![key("shop/web/f")],
        version: 1,
        ..Providers::default()
    };
    let report = compiled(FOLDER, &providers);
    let tally = &report.registry;
    let expected = [
        (Cause::Value, 1),
        (Cause::Taken, 1),
        (Cause::Account, 1),
        (Cause::Uncalled, 2),
    ];
    assert_eq!(tally.problems, BTreeMap::from(expected));
    let of = |name: &str| {
        let providing = tally.services[&ServiceName::parse(name).expect("a name")];
        (providing.called, providing.registered)
    };
    assert_eq!((of("shop/web"), of("shop/ghost")), ((1, 5), (0, 1)));
    let uncalled = [workload("shop/ghost.e"), workload("shop/web.b")];
    assert_eq!(tally.uncalled, BTreeSet::from(uncalled));
    let left_out: Vec<&WorkloadName> = tally.left_out.keys().collect();
    assert_eq!(left_out, [&workload("shop/web.c"), &workload("shop/web.d")]);
    let why = &tally.left_out[&workload("shop/web.c")];
    assert_eq!(
        why,
        "LocalWorkload shop/own has port 8080 of 10.0.0.1 already"
    );
    let said: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    for expected in [
        "shop/ghost/e: warning: no Service calls it: there is no Service shop/ghost, and no other",
        "shop/web/b: warning: no Service calls it: Service shop/web selects other labels",
    ] {
        assert!(said.iter().any(|line| line.contains(expected)), "{said:#?}");
    }
}

#[test]
fn of_many_that_no_service_calls_the_first_are_told_and_the_others_counted() {
    let one = |n: usize| {
        let (path, address) = (format!("shop/web/p{n:03}"), format!("address: 10.1.0.{n}"));
        entry(&path, "other", &address)
    };
    let providers = Providers {
        entries: (1..=100).map(one).collect(),
        version: 1,
        ..Providers::default()
    };
    let report = compiled(FOLDER, &providers);
    assert_eq!(report.registry.problems[&Cause::Uncalled], 100);
    assert_eq!(report.problems.len(), MAX_TOLD + 1);
    let last = report.problems.iter().map(ToString::to_string).next_back();
    let last = last.expect("a problem");
    assert!(
        last.contains("/p021: warning: no Service calls it, nor 79 more"),
        "{last}"
    );
}

#[test]
fn while_the_folder_is_wrong_no_provider_is_said_to_be_uncalled() {
    let providers = Providers {
        entries: vec![entry("shop/web/b", "other", "address: 10.0.0.3")].into(),
        version: 1,
        ..Providers::default()
    };
    let report = compiled(&format!("{FOLDER}---\nkind: Oops\n"), &providers);
    assert!(report.has_errors());
    assert_eq!(report.registry.problems, BTreeMap::new());
    assert!(report.registry.uncalled.is_empty());
}
