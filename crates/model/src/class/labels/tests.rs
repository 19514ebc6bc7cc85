use std::collections::BTreeMap;

use super::{Class, Qos, QosLabels};

fn map(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    let all = all.iter();
    all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn a_label_wins_over_an_annotation() {
    let labels = map(&[("volcano.sh/preemptable", "true")]);
    let annotations = map(&[
        ("volcano.sh/preemptable", "false"),
        ("volcano.sh/quota-turbo", "true"),
        ("volcano.sh/quota-burst-time", "20000"),
        ("another", "true"),
    ]);
    let (qos, faults) = QosLabels::new(&labels, &annotations).read();
    let wanted = Qos {
        class: Class::Offline,
        quota_turbo: true,
        quota_burst_us: Some(20_000),
        latency_p99_ms: None,
        cgroup: None,
    };
    assert_eq!((qos, faults), (wanted, Vec::new()));
}

#[test]
fn what_is_not_understood_is_said_and_left_out() {
    let none = BTreeMap::new();
    let long = "x".repeat(1_000);
    for (key, value) in [
        ("heddle.dev/class", "Offline"),
        ("heddle.dev/class", &long),
        ("volcano.sh/preemptable", "True"),
        ("volcano.sh/preemptible", "true"),
        ("volcano.sh/quota-turbo", ""),
        ("volcano.sh/quota-burst-time", "-1"),
        ("volcano.sh/quota-burst-time", "60000001"),
        ("heddle.dev/latency-p99", "5"),
        ("heddle.dev/latency-p99", "0ms"),
        ("heddle.dev/latency-p99", "11s"),
        ("heddle.dev/latency-p99", &long),
    ] {
        let annotations = map(&[(key, value)]);
        let (qos, faults) = QosLabels::new(&none, &annotations).read();
        assert_eq!(qos, Qos::default(), "{key}: {value}");
        let [fault] = &faults[..] else {
            panic!("{key}: {value}: {faults:?}");
        };
        assert_eq!((fault.field, fault.key), ("metadata.annotations", key));
        assert!(fault.reason.len() < 120, "{}", fault.reason);
    }
}

#[test]
fn an_objective_is_of_an_online_pod() {
    let none = BTreeMap::new();
    let annotations = map(&[("heddle.dev/latency-p99", "1s5ms")]);
    let (qos, faults) = QosLabels::new(&none, &annotations).read();
    assert_eq!((qos.latency_p99_ms, faults.len()), (Some(1_005), 0));
    let offline = map(&[("heddle.dev/class", "offline")]);
    let (qos, faults) = QosLabels::new(&offline, &annotations).read();
    assert_eq!((qos.latency_p99_ms, faults.len()), (None, 1));
    assert!(faults[0].reason.contains("an offline pod has no objective"));
}
