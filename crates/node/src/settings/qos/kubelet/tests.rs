use super::{KubeletSettings, KubeletUrl};

#[test]
fn urls_are_read_and_written() {
    for (text, written) in [
        ("https://127.0.0.1:10250", "https://127.0.0.1:10250"),
        ("https://node-1.site", "https://node-1.site:10250"),
        ("https://[::1]/", "https://[::1]:10250"),
        ("http://127.0.0.1", "http://127.0.0.1:10255"),
        ("http://[::1]:7", "http://[::1]:7"),
    ] {
        let url: KubeletUrl = text.parse().expect(text);
        assert_eq!(url.to_string(), written);
    }
    for wrong in [
        "",
        "127.0.0.1:10250",
        "ftp://127.0.0.1",
        "https://",
        "https://a:0",
        "https://a:x",
        "https://a/pods",
        "https://user@a",
        "https://[::1",
        "https://[a]",
        "https://::1",
        "https://a b",
        "http://10.0.0.1:10255",
        "http://localhost:10255",
    ] {
        let read: Result<KubeletUrl, String> = wrong.parse();
        assert!(read.is_err(), "{wrong}: {read:?}");
    }
}

#[test]
fn fields_that_contradict_each_other_are_told() {
    let file = || Some("a".into());
    let with = |url: &str| {
        let mut settings = KubeletSettings::default();
        settings.set_url(url.parse().expect(url));
        settings
    };
    let tls = "https://a";
    let told = |settings: KubeletSettings| settings.contradiction().map(|wrong| wrong.fields);
    for (settings, fields) in [
        (KubeletSettings::default(), None),
        (with(tls), None),
        (
            KubeletSettings {
                token_file: file(),
                ..KubeletSettings::default()
            },
            Some(vec!["qos.kubelet.token_file"]),
        ),
        (
            KubeletSettings {
                cgroup_root: "/a/..".to_owned(),
                ..with(tls)
            },
            Some(vec!["qos.kubelet.cgroup_root"]),
        ),
        (
            KubeletSettings {
                certificate: file(),
                ..with(tls)
            },
            Some(vec!["qos.kubelet.certificate"]),
        ),
        (
            KubeletSettings {
                key: file(),
                ..with(tls)
            },
            Some(vec!["qos.kubelet.key"]),
        ),
        (
            KubeletSettings {
                key: file(),
                certificate: file(),
                token_file: file(),
                ..with(tls)
            },
            Some(vec!["qos.kubelet.token_file", "qos.kubelet.certificate"]),
        ),
        (
            KubeletSettings {
                token_file: file(),
                ..with("http://127.0.0.1")
            },
            Some(vec!["qos.kubelet.url", "qos.kubelet.token_file"]),
        ),
    ] {
        assert_eq!(told(settings), fields);
    }
}
