use super::*;
use crate::manifest::{Body, SERVICE_LABEL};
use crate::registered::MAX_REQUESTS_ANNOTATION;

fn place() -> Origin {
    Origin::etcd("/heddle/v1/providers/shop/reviews/a")
}

fn key() -> ProviderKey {
    ProviderKey::new("shop", "reviews", "a").expect("a key")
}

fn workload(metadata: &str, spec: &str) -> String {
    format!(
        "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata: {metadata}\nspec: {spec}\n"
    )
}

const SPEC: &str = "{address: 10.0.0.5, ports: [{name: http, port: 9080}]}";

/// The problem reported for an invalid value.
fn said(value: &str) -> String {
    let problem = judge(&place(), &key(), value.as_bytes()).expect_err("it is wrong");
    assert_eq!(problem.origin, place());
    problem.to_string()
}

#[test]
fn a_value_is_a_local_workload_that_its_key_names() {
    let json = r#"{"apiVersion":"heddle.dev/v1alpha1","kind":"LocalWorkload",
        "metadata":{"labels":{"app":"reviews"},"annotations":{"heddle.dev/max-requests":"200"}},
        "spec":{"address":"10.0.0.5","ports":[{"name":"http","port":9080}],"weight":3}}"#;
    for value in [
        json,
        &workload("{labels: {app: reviews}}", SPEC),
        &workload("{name: reviews.a, namespace: shop}", SPEC),
        &workload("", SPEC),
    ] {
        assert_eq!(judge(&place(), &key(), value.as_bytes()), Ok(()), "{value}");
    }
    let object = read(&place(), &key(), json.as_bytes()).expect("an object");
    assert_eq!(object.name.as_str(), "reviews.a");
    assert_eq!(object.namespace.as_str(), "shop");
    let metadata = &object.metadata;
    assert_eq!(
        metadata.labels.get(SERVICE_LABEL).map(String::as_str),
        Some("reviews")
    );
    assert_eq!(
        metadata.labels.get("app").map(String::as_str),
        Some("reviews")
    );
    let most = metadata.annotations.get(MAX_REQUESTS_ANNOTATION);
    assert_eq!(most.map(String::as_str), Some("200"));
    assert!(matches!(object.body, Body::LocalWorkload(_)));
}

#[test]
fn a_wrong_value_says_what_is_wrong() {
    let many = "x".repeat(MAX_VALUE_BYTES + 1);
    let bomb = format!("a: &a [{}]\nb: [*a, *a]\n", "1, ".repeat(1_500));
    let service =
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80}]}\n";
    for (value, expected) in [
        ("", "one object"),
        ("{}", "this is no Kubernetes object"),
        ("[]", "this is no Kubernetes object"),
        ("{{{", "this is not YAML"),
        (&many, "the value has more than 16 KiB"),
        (&bomb, "too many values"),
        (service, "only LocalWorkloads register"),
        (
            "apiVersion: heddle.dev/v1\nkind: LocalWorkload\n",
            "not read in version",
        ),
        (
            "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorklod\n",
            "did you mean LocalWorkload?",
        ),
        (
            &workload("{name: other}", SPEC),
            "metadata.name: this is the string \"other\"",
        ),
        (&workload("{namespace: kube}", SPEC), "metadata.namespace"),
        (&workload("[a]", SPEC), "metadata"),
        (&workload("{}", "{address: 10.0.0.5}"), "it has no port"),
        (
            &workload("{}", "{ports: [{port: 80}]}"),
            "spec.address: this field is required",
        ),
        (
            &workload("{}", "{address: web, ports: [{port: 80}]}"),
            "is no IP address",
        ),
        (
            &workload("{}", "{address: 127.64.0.1, ports: [{port: 80}]}"),
            "Heddle puts its own",
        ),
        (
            &workload("{}", "{address: '::ffff:10.0.0.5', ports: [{port: 80}]}"),
            "spec.address: ::ffff:10.0.0.5 is 10.0.0.5",
        ),
        (
            &workload(
                "{}",
                "{address: 10.0.0.5, addresses: ['::ffff:127.64.0.1'], ports: [{port: 80}]}",
            ),
            "spec.addresses[0]: ::ffff:127.64.0.1 is 127.64.0.1",
        ),
        (
            &workload("{}", "{address: 10.0.0.5, ports: [{port: 0}]}"),
            "0 is no port",
        ),
        (
            &workload("{}", "{address: 10.0.0.5, ports: [{port: 80}], weight: 0}"),
            "0 is no weight",
        ),
        (
            &workload("{}", "{address: 10.0.0.5, ports: [{port: 80}], wieght: 2}"),
            "did you mean weight?",
        ),
        (
            &workload(
                "{}",
                "{address: 10.0.0.5, ports: [{port: 80}], nodeName: A_B}",
            ),
            "spec.nodeName",
        ),
        (
            &workload(
                "{}",
                "{address: 10.0.0.5, ports: [{port: 80}], command: [sh]}",
            ),
            "what runs on a machine",
        ),
        (
            &workload(
                "{}",
                "{address: 10.0.0.5, ports: [{port: 80}], env: [{name: A}]}",
            ),
            "what runs on a machine",
        ),
        (
            &workload(
                "{}",
                "{address: 10.0.0.5, ports: [{port: 80}], livenessProbe: {tcpSocket: {port: 80}}}",
            ),
            "health checks, which bypass policies",
        ),
        (
            &workload("{labels: {heddle.dev/mode: permissive}}", SPEC),
            "labels of heddle.dev",
        ),
        (
            &workload("{labels: {heddle.dev/service: other}}", SPEC),
            "labels of heddle.dev",
        ),
        (
            &workload("{annotations: {heddle.dev/max-requests: '0'}}", SPEC),
            "no number of requests",
        ),
        (
            &workload("{annotations: {heddle.dev/max-requests: '+5'}}", SPEC),
            "no number of requests",
        ),
        (
            &workload("{annotations: {heddle.dev/max: '5'}}", SPEC),
            "a LocalWorkload has no such annotation",
        ),
        (
            &(workload("{}", SPEC) + "---\n" + &workload("{}", SPEC)),
            "one object",
        ),
    ] {
        let problem = said(value);
        assert!(problem.contains(expected), "{value}\n  said: {problem}");
    }
    assert!(judge(&place(), &key(), b"\xff\xfe").is_err());
}

#[test]
fn what_to_do_about_a_value_is_said_of_values_and_not_of_files() {
    let many = format!("a: &a [{}]\nb: [*a, *a]\n", "1, ".repeat(1_500));
    let broken = workload("{}", SPEC) + "oops: [\n";
    for value in [
        "",
        "[]",
        "a: 1",
        "kind: LocalWorkload",
        "{{{",
        &many,
        &broken,
    ] {
        let problem = said(value);
        assert!(problem.contains("(write one LocalWorkload"), "{problem}");
        let is_of_files = |word: &str| problem.contains(word);
        assert!(
            !["file", "folder"].into_iter().any(is_of_files),
            "{problem}"
        );
    }
    assert!(
        said(&broken).contains(", in its line "),
        "{}",
        said(&broken)
    );
    let weight = workload("{}", "{address: 10.0.0.5, ports: [{port: 80}], weight: 0}");
    assert!(said(&weight).contains("to take it out, stop its registrar"));
}

#[test]
fn an_account_that_is_not_there_is_for_others_to_judge() {
    let spec = "{address: 10.0.0.5, ports: [{port: 80}], serviceAccountName: reviews}";
    assert_eq!(
        judge(&place(), &key(), workload("{}", spec).as_bytes()),
        Ok(())
    );
    let spec = "{address: 10.0.0.5, ports: [{port: 80}], serviceAccountName: 'no account'}";
    assert!(said(&workload("{}", spec)).contains("no account"));
}

mod any {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_value_ends_the_process(value in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _judged = judge(&place(), &key(), &value);
        }

        #[test]
        fn nor_does_one_that_is_nearly_right(
            at in 0..200_usize, with in "[ -~]{0,4}", cut in 0..4_usize
        ) {
            let right = workload("{labels: {app: reviews}}", SPEC);
            let at = at.min(right.len());
            let end = (at + cut).min(right.len());
            let value = format!("{}{with}{}", &right[..at], &right[end..]);
            if let Ok(object) = read(&place(), &key(), value.as_bytes()) {
                prop_assert_eq!(object.name.as_str(), "reviews.a");
                prop_assert_eq!(object.namespace.as_str(), "shop");
            }
        }
    }
}
