use heddle_node::settings::{GivenSettings, Settings};

use super::*;

fn refused(text: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("s.yaml");
    std::fs::write(&file, text).expect("written");
    let said = GivenSettings::read(Some(&file))
        .and_then(GivenSettings::checked)
        .expect_err("it must be refused")
        .to_string();
    said.replace(&folder.path().join("").display().to_string(), "")
}

#[test]
fn defaults_are_the_authoritys_and_the_registrys_own() {
    let settings = Settings::default();
    assert_eq!(lifetimes(&settings.control), AuthoritySettings::default());
    assert_eq!(settings.registry.prefix, Layout::default().prefix());
    assert_eq!(registry(&settings.registry), Ok(None));
}

#[test]
fn a_registry_that_contradicts_itself_is_refused_with_the_line() {
    for (text, expected) in [
        (
            "registry:\n  etcd: ['http://a:1']\n  prefix: x\n",
            "s.yaml:3: registry.prefix: \"x/\" is no prefix: write one such as /heddle/v1/, of at most 128 printable \
             characters (see docs/settings.md for what this field takes)",
        ),
        (
            "registry: {\n  certificate: a.pem}\n",
            "s.yaml:2: registry.certificate: a certificate needs its key (name it with --etcd-key or \
             registry.key)",
        ),
        (
            "registry:\n  etcd: [etcd]\n",
            "s.yaml:2: registry.etcd: \"etcd\" is no endpoint of etcd: write one such as http://127.0.0.1:2379 (see \
             docs/registry.md)",
        ),
        (
            "registry:\n  ca: a.pem\n",
            "s.yaml:2: registry.ca: there is no registry to use it with (name one with --etcd or registry.etcd)",
        ),
        (
            "registry:\n  user: a\n  password_file: p\n",
            "s.yaml:2: registry.user: there is no registry to use it with; registry.password_file is set in s.yaml:3 \
             (name one with --etcd or registry.etcd)",
        ),
        (
            "registry:\n  prefix: /other/\n",
            "s.yaml:2: registry.prefix: there is no registry to use it with (name one with --etcd or registry.etcd)",
        ),
    ] {
        assert_eq!(refused(text), expected);
    }
}

#[test]
fn a_prefix_may_end_without_a_slash() {
    let settings = RegistrySettings {
        prefix: "/heddle/v1".to_owned(),
        ..RegistrySettings::default()
    };
    assert_eq!(registry(&settings), Ok(None));
    let settings = RegistrySettings {
        etcd: vec!["http://a:1".to_owned()],
        prefix: "/other".to_owned(),
        ..RegistrySettings::default()
    };
    let (access, layout) = registry(&settings).expect("right").expect("a registry");
    assert_eq!(
        (access.endpoints, layout.prefix()),
        (settings.etcd, "/other/")
    );
}
