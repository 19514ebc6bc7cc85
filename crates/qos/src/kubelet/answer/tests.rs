use heddle_model::{Class, Qos};
use proptest::prelude::*;

use super::{Answer, KubeletPod, MAX_PODS, pods_of};
use crate::kubelet::{PodQos, Uid};

const RECORDED: &str = include_str!("pods.json");

fn pod(uid: &str, name: &str) -> KubeletPod {
    KubeletPod {
        uid: Uid::new(uid).expect(uid),
        name: name.to_owned(),
        pod_qos: Some(PodQos::Burstable),
        qos: Qos::default(),
        faults: Vec::new(),
        host_network: false,
        address: None,
        is_static: false,
        is_resizing: false,
    }
}

/// Of a kubelet 1.36 whose resize of an idle pod was refused by the kernel. That pod has 3 shares while it is idle, which
/// the kubelet reports as a request of `3m` in `status.resources`: this is no sign of a resize.
#[test]
fn a_recorded_answer_is_read() {
    let answer = pods_of(RECORDED.as_bytes()).expect("read");
    let address = "10.80.0.1".parse().ok();
    let on_node = |pod: KubeletPod| KubeletPod {
        host_network: true,
        address,
        ..pod
    };
    let offline = Qos {
        class: Class::Offline,
        ..Qos::default()
    };
    let wanted = [
        on_node(KubeletPod {
            pod_qos: Some(PodQos::BestEffort),
            qos: offline.clone(),
            is_static: true,
            ..pod(
                "fcf5e76ea46d37cbed7ec00146203711",
                "default/static-heddle-test",
            )
        }),
        on_node(pod("02580c3d-eee3-4f97-8b66-59707ccf0df5", "default/till")),
        on_node(KubeletPod {
            qos: offline,
            is_resizing: true,
            ..pod("052d3530-2516-4e65-a16f-494bc201b04b", "default/batch")
        }),
    ];
    assert_eq!(answer.pods, wanted);
    assert_eq!(answer.left_out, 0);
}

#[test]
fn classes_addresses_and_faults_are_read() {
    let json = r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[
        {"metadata":{"uid":"1","namespace":"site","name":"a.b","annotations":
            {"volcano.sh/preemptable":"true","heddle.dev/cgroup":"system.slice/sshd.service"}},
         "spec":{"hostNetwork":true},"status":{"phase":"Running","qosClass":"Burstable","podIP":"fd00::1"}},
        {"metadata":{"uid":"2","namespace":"site","name":"b","creationTimestamp":null,"annotations":null,
            "labels":{"heddle.dev/class":"batch"}},"status":{"phase":"Pending","podIP":"x","qosClass":"New"}},
        {"metadata":{"uid":"3","namespace":"site","name":"over"},"status":{"phase":"Succeeded"}},
        {"metadata":{"uid":"4","namespace":"site","name":"a\u001bb"}},
        {"metadata":{"uid":"../5","namespace":"site","name":"c"}},
        {"metadata":{"uid":"6","namespace":"site","name":"mirror","annotations":{"kubernetes.io/config.mirror":"9"}}},
        {}]}"#;
    let answer = pods_of(json.as_bytes()).expect("read");
    let [first, second] = &answer.pods[..] else {
        panic!("{answer:?}");
    };
    let wanted = KubeletPod {
        qos: Qos {
            class: Class::Offline,
            ..Qos::default()
        },
        host_network: true,
        address: "fd00::1".parse().ok(),
        ..pod("1", "site/a.b")
    };
    assert_eq!(first, &wanted);
    assert_eq!((second.pod_qos, second.qos.class), (None, Class::Online));
    assert_eq!(second.faults[0].key, "heddle.dev/class");
    assert_eq!(answer.left_out, 4);
}

#[test]
fn an_answer_that_is_no_list_of_pods_is_refused() {
    for (json, reason) in [
        ("", "EOF"),
        ("404 page not found", "column"),
        ("[]", "kind is not PodList"),
        (r#"{"kind":"Status","items":[]}"#, "kind is not PodList"),
        (r#"{"kind":"PodList","items":{}}"#, "a list"),
        (
            r#"{"kind":"PodList","items":[{"metadata":{"uid":7}}]}"#,
            "a string",
        ),
    ] {
        let error = pods_of(json.as_bytes()).expect_err(json).to_string();
        assert!(error.contains(reason), "{json}: {error}");
    }
    let none = pods_of(br#"{"kind":"PodList","items":null}"#);
    assert_eq!(none, Ok(Answer::default()));
}

#[test]
fn too_many_pods_are_refused_and_too_many_parts_of_one_are_passed_over() {
    let many = |one: &str, number: usize| vec![one; number].join(",");
    let list = |items: &str| format!(r#"{{"kind":"PodList","items":[{items}]}}"#);
    assert!(pods_of(list(&many("{}", MAX_PODS)).as_bytes()).is_ok());
    let refused = pods_of(list(&many("{}", MAX_PODS + 2)).as_bytes());
    assert!(refused.is_err_and(|error| error.to_string().contains("10000 pods")));
    let containers = many(r#"{"name":"a"}"#, 100_000);
    let one = format!(
        r#"{{"metadata":{{"uid":"1","namespace":"a","name":"b"}},"spec":{{"containers":[{containers}]}}}}"#
    );
    assert_eq!(pods_of(list(&one).as_bytes()).expect("read").pods.len(), 1);
}

proptest! {
    #[test]
    fn any_bytes_are_an_answer_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _read = pods_of(&bytes);
    }

    /// A recorded answer that was cut, or in which some bytes were changed.
    #[test]
    fn a_broken_answer_is_taken_or_refused(
        cut in 0usize..=RECORDED.len(),
        changes in prop::collection::vec((0usize..RECORDED.len(), any::<u8>()), 0..8),
    ) {
        let mut bytes = RECORDED.as_bytes().to_vec();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        bytes.truncate(cut.max(bytes.len() / 2));
        if let Ok(answer) = pods_of(&bytes) {
            for pod in answer.pods {
                prop_assert!(pod.name.is_ascii() && !pod.name.contains(char::is_control));
            }
        }
    }
}
