use super::*;
use crate::authority;

fn rendered(template: &str) -> String {
    rendered_for(template, &Work::new(2, 3, 9000))
}

fn rendered_for(template: &str, work: &Work) -> String {
    let listen = "127.0.0.1:8000".parse().expect("address");
    let admin = "127.0.0.1:8001".parse().expect("address");
    configuration(template, work, listen, admin, Path::new("/run/lab")).expect("renders")
}

#[test]
fn every_peer_gets_every_endpoint_once_and_one_for_the_canary() {
    for template in [
        include_str!("../../peers/nginx.conf.j2"),
        include_str!("../../peers/haproxy.cfg.j2"),
        include_str!("../../peers/envoy.yaml.j2"),
        include_str!("../../peers/heddle.yaml.j2"),
    ] {
        let text = rendered(template);
        assert!(!text.contains("{{") && !text.contains("{%"), "{text}");
        for index in 0..6_u8 {
            let address = format!("127.1.0.{}", index + 1);
            let expected = if index % 3 == 0 { 2 } else { 1 };
            assert_eq!(
                text.matches(&address).count(),
                expected,
                "{address} in {text}"
            );
        }
    }
}

#[test]
fn the_peers_do_the_same_work() {
    let nginx = rendered(include_str!("../../peers/nginx.conf.j2"));
    assert!(nginx.contains("keepalive 32;") && nginx.contains("access_log off"));
    assert!(nginx.contains("stub_status") && nginx.contains("worker_processes 1"));
    assert!(nginx.contains("proxy_set_header X-Forwarded-For $remote_addr"));
    let haproxy = rendered(include_str!("../../peers/haproxy.cfg.j2"));
    assert!(haproxy.contains("nbthread 1") && haproxy.contains("http-reuse always"));
    assert!(haproxy.contains("set-header X-Forwarded-For %[src]"));
    assert_eq!(haproxy.matches("use_backend").count(), 2, "{haproxy}");
    let envoy = rendered(include_str!("../../peers/envoy.yaml.j2"));
    assert!(envoy.contains("use_remote_address: true") && envoy.contains("normalize_path: true"));
    assert!(envoy.contains("server_header_transformation: PASS_THROUGH"));
    for text in [nginx, haproxy, envoy] {
        assert!(
            text.contains("echo1.lab") && text.contains("/api/"),
            "{text}"
        );
    }
}

#[test]
fn one_service_has_a_large_pool_and_is_chosen_by_one_comparison() {
    let work = Work::new(1, 1, 9000);
    let nginx = rendered_for(include_str!("../../peers/nginx.conf.j2"), &work);
    assert_eq!(nginx.matches("keepalive 512;").count(), 2, "{nginx}");
    let haproxy = rendered_for(include_str!("../../peers/haproxy.cfg.j2"), &work);
    assert!(
        haproxy.contains("use_backend echo0.lab if known") && !haproxy.contains("use_backend %["),
        "{haproxy}"
    );
}

#[test]
fn every_peer_passes_bytes_on_with_one_worker() {
    let nginx = rendered(include_str!("../../peers/nginx-tcp.conf.j2"));
    assert!(nginx.contains(&format!("load_module {NGINX_STREAM};")));
    assert!(nginx.contains("worker_processes 1;") && nginx.contains("proxy_timeout 3600s;"));
    let haproxy = rendered(include_str!("../../peers/haproxy-tcp.cfg.j2"));
    assert!(haproxy.contains("nbthread 1") && haproxy.contains("mode tcp"));
    let envoy = rendered(include_str!("../../peers/envoy-tcp.yaml.j2"));
    for text in [nginx, haproxy, envoy] {
        assert!(!text.contains("{{") && !text.contains("{%"), "{text}");
        assert_eq!(text.matches("127.1.0.1").count(), 1, "{text}");
    }
}

#[test]
fn a_status_yields_the_addresses_for_any_caller() {
    let work = Work::new(2, 1, 9000);
    let listener = |service: &str, caller: &str, address: &str| {
        format!(
            r#"{{"service":"lab/{service}","port":8080,"caller":{caller},"kind":"service","address":"{address}"}}"#
        )
    };
    let only_one = [
        listener("echo0", "\"lab/echo0\"", "127.64.0.1:8080"),
        listener("echo0", "null", "127.64.0.2:8080"),
    ];
    let json = |listeners: &[String]| format!(r#"{{"listeners":[{}]}}"#, listeners.join(","));
    assert_eq!(
        targets_from_status(json(&only_one).as_bytes(), &work, None),
        None
    );
    let [first, second] = only_one;
    let all = [first, second, listener("echo1", "null", "127.64.0.3:8080")];
    assert_eq!(
        targets_from_status(json(&all).as_bytes(), &work, None),
        Some(vec![
            "echo0.lab@127.64.0.2:8080".to_owned(),
            "echo1.lab@127.64.0.3:8080".to_owned()
        ])
    );
    assert_eq!(targets_from_status(b"not ready", &work, None), None);
}

#[test]
fn versions_are_found_in_what_programs_say() {
    assert_eq!(version("nginx version: nginx/1.22.1"), Some("1.22.1"));
    assert_eq!(
        version("HAProxy version 2.6.12-1+deb12u4 2026/10/17"),
        Some("2.6.12")
    );
    assert_eq!(
        version("envoy  version: 9e558093/1.40.0/Clean/RELEASE"),
        Some("1.40.0")
    );
    assert_eq!(version("heddle 0.1.0"), Some("0.1.0"));
    assert_eq!(version("none"), None);
}

#[test]
fn both_kinds_of_pairs_get_the_same_policy_and_identities() {
    let work = Work {
        traffic: Traffic::MutualTls,
        ..Work::new(1, 1, 9000)
    };
    let identity = |account| authority::identity(account).expect("a name").to_string();
    let near = rendered_for(include_str!("../../peers/envoy.yaml.j2"), &work);
    assert_eq!(near.matches("UpstreamTlsContext").count(), 2, "{near}");
    assert!(near.contains(&identity("far")) && near.contains("/run/lab/near.key"));
    let far = rendered_for(include_str!("../../peers/envoy-far.yaml.j2"), &work);
    assert!(far.contains(&identity("near")) && far.contains("/run/lab/far.key"));
    assert!(far.contains("require_client_certificate: true"));
    let heddle = rendered_for(include_str!("../../peers/heddle.yaml.j2"), &work);
    assert!(heddle.contains("nodeName: near") && heddle.contains("nodeName: far"));
    assert!(heddle.contains("serviceAccount: { name: near }"));
    for text in [near, far, heddle] {
        assert!(!text.contains("{{") && !text.contains("{%"), "{text}");
    }
    assert!(
        !rendered_for(include_str!("../../peers/envoy-far.yaml.j2"), &work).contains("or_rules")
    );
    let (method, path) = ALLOWED;
    assert!(method == "GET" && path.starts_with("/api/v1/"));
    for (method, path) in REFUSED {
        // each for one reason alone
        assert!((method == "GET") != path.starts_with("/api/v1/"));
    }
}

#[test]
fn one_node_may_have_the_policy_of_a_pair() {
    let work = Work {
        policy: true,
        ..Work::new(1, 1, 9000)
    };
    let heddle = rendered_for(include_str!("../../peers/heddle.yaml.j2"), &work);
    assert!(!heddle.contains("nodeName"), "{heddle}");
    assert!(heddle.contains("serviceAccount: { name: near }"));
    assert_eq!(heddle.matches("serviceAccountName: ").count(), 2);
}

#[test]
fn pairs_may_take_bodies_and_speak_http2_between_them() {
    let work = Work {
        traffic: Traffic::MutualTls,
        methods: &["GET", "POST"],
        http2: true,
        ..Work::new(1, 1, 9000)
    };
    let near = rendered_for(include_str!("../../peers/envoy.yaml.j2"), &work);
    assert_eq!(near.matches("http2_protocol_options").count(), 2, "{near}");
    assert!(near.contains("codec_type: HTTP1") && near.contains("alpn_protocols: [h2]"));
    let far = rendered_for(include_str!("../../peers/envoy-far.yaml.j2"), &work);
    assert!(
        far.contains("codec_type: HTTP2") && far.contains("exact: POST"),
        "{far}"
    );
    let heddle = rendered_for(include_str!("../../peers/heddle.yaml.j2"), &work);
    assert!(heddle.contains("methods: [GET, POST]"), "{heddle}");
}

#[test]
fn peers_that_forward_calls_speak_http2_on_both_sides() {
    let envoy = rendered(include_str!("../../peers/envoy-grpc.yaml.j2"));
    assert_eq!(
        envoy.matches("http2_protocol_options").count(),
        2,
        "{envoy}"
    );
    assert!(envoy.contains("codec_type: HTTP2") && envoy.contains("reject_all: true"));
    let haproxy = rendered(include_str!("../../peers/haproxy-grpc.cfg.j2"));
    assert_eq!(haproxy.matches("proto h2").count(), 4, "{haproxy}");
    assert!(haproxy.contains("nbthread 1") && haproxy.contains("http-reuse always"));
    let forwarder = rendered(include_str!("../../peers/forward.yaml.j2"));
    for text in [envoy, haproxy, forwarder] {
        assert!(!text.contains("{{") && !text.contains("{%"), "{text}");
        assert!(
            text.contains("127.1.0.1") && text.contains("9000"),
            "{text}"
        );
    }
}
