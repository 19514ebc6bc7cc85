use std::path::Path;
use std::time::Duration;

use super::{GivenSettings, Settings, SettingsError, Within};

fn given(text: &str) -> GivenSettings {
    GivenSettings::parse(Path::new("s.yaml"), text.to_owned()).expect("valid for itself")
}

fn parse(text: &str) -> Result<Settings, SettingsError> {
    GivenSettings::parse(Path::new("s.yaml"), text.to_owned())?.checked()
}

fn refused(text: &str) -> String {
    let parsed = parse(text);
    parsed.expect_err("it must be refused").to_string()
}

#[test]
fn nothing_is_the_default() {
    assert_eq!(parse("").ok(), Some(Settings::default()));
    assert_eq!(parse("drain:\n").ok(), Some(Settings::default()));
}

#[test]
fn a_file_without_an_end_is_refused() {
    let read = GivenSettings::read(Some(Path::new("/dev/zero")));
    let refused = read.expect_err("it must be refused").to_string();
    assert!(refused.contains("more than 1 MiB"), "{refused}");
}

#[test]
fn what_is_written_reads_back() {
    // Any JSON text is also YAML.
    let text = serde_json::to_string(&Settings::default()).expect("JSON");
    assert_eq!(parse(&text).ok(), Some(Settings::default()));
}

#[test]
fn a_mistake_is_told_with_line_field_reason_and_remedy() {
    for (text, expected) in [
        (
            "drain:\n  timeout: 5\n",
            "s.yaml:2: drain.timeout: unknown field `timeout` (expected one of timeout_ms)",
        ),
        (
            "workloads:\n  run: true\n  stop_grace_ms: 3600001\n",
            "s.yaml:3: workloads.stop_grace_ms: 3600001 is out of range (expected 0 to 3600000)",
        ),
        (
            "drain:\n  timeout_ms: soon\n",
            "s.yaml:2: drain.timeout_ms: this is no whole number (expected 0 to 3600000)",
        ),
        (
            "admin:\n  metrics: 15020\n",
            "s.yaml:2: admin.metrics: `15020` is no address (expected ADDRESS:PORT such as 127.0.0.1:15020, or none)",
        ),
        (
            "log: {level: loud}\n",
            "s.yaml:1: log.level: unknown variant `loud` (expected one of error, warn, info, debug, trace)",
        ),
        (
            "proxy:\n  bounds:\n    blocks: 1\n",
            "s.yaml:3: proxy.bounds.blocks: 1 is out of range (expected 64 to 16777216)",
        ),
        (
            "proxy:\n  bounds:\n    blocks: 64\n    head_fields: 1000\n",
            "s.yaml:4: proxy.bounds.head_fields: 1000 is more than 128: with the fields that nodes add, a head could have more fields than another node accepts (set it to at most 128)",
        ),
        (
            "proxy:\n  bounds: {head_bytes: 65535}\n",
            "s.yaml:2: proxy.bounds.head_bytes: 65535 is more than 61439: with the fields that nodes add, a head could have more bytes than another node accepts (set it to at most 61439)",
        ),
        (
            "proxy:\n  trusted_sources: [10.0.0.0/33]\n",
            "s.yaml:2: proxy.trusted_sources[0]: /33 is too long for 10.0.0.0 (expected an address or a range such as 10.0.0.0/8)",
        ),
        (
            "proxy:\n  workers:\n    cpus: 3\n",
            "s.yaml:3: proxy.workers.cpus: this is no list (write its items in brackets: [a, b])",
        ),
        (
            "drain: 5\n",
            "s.yaml:1: drain: this is not a mapping (write each below it, indented, as `name: value`)",
        ),
        (
            "drain:\n  timeout_ms: 1\n  timeout_ms: 2\n",
            "s.yaml:3: drain: `timeout_ms` is written twice (keep one of the two)",
        ),
        (
            "workloads: {run: maybe}\n",
            "s.yaml:1: workloads.run: this is neither true nor false (write one of the two)",
        ),
        (
            "drain: {timeout_ms: 5\n",
            "s.yaml:1: drain: this is not YAML: unclosed bracket '{' (look at the indentation, quotes and brackets around this line)",
        ),
        (
            "proxy:\n  workers:\n    max: 2\n    min: 3\n",
            "s.yaml:4: proxy.workers.min: min is 3 and more than max, 2; proxy.workers.max is set in s.yaml:3 (lower min, or raise max)",
        ),
        (
            "proxy: {workers: {\n  grow_above_percent: 40}}\n",
            "s.yaml:2: proxy.workers.grow_above_percent: retire_below_percent is 50 and more than nine tenths of grow_above_percent, 40: workers would come and go without end; proxy.workers.retire_below_percent is the default (set retire_below_percent to at most 36)",
        ),
        (
            "registry:\n  etcd: ['http://a:1']\n  user: a\n",
            "s.yaml:3: registry.user: a user needs a file with the password (name it with --etcd-password-file or registry.password_file)",
        ),
        (
            "registry:\n  etcd: [etcd]\n",
            "s.yaml:2: registry.etcd: \"etcd\" is no endpoint of etcd: write one such as http://127.0.0.1:2379 (see docs/registry.md)",
        ),
        (
            "registry:\n  etcd: ['https://a:1']\n",
            "s.yaml:2: registry.etcd: https:// endpoints need the certificate of their authority: name its file with --etcd-ca (registry.ca) (see docs/registry.md)",
        ),
        (
            "registry:\n  etcd: ['http://a:1']\n  prefix: x\n",
            "s.yaml:3: registry.prefix: \"x/\" is no prefix: write one such as /heddle/v1/, of at most 128 printable characters (see docs/settings.md for what this field takes)",
        ),
        (
            "control:\n  listen: 0.0.0.0:15014\n",
            "s.yaml:2: control.listen: metrics at 127.0.0.1:15014 and nodes at 0.0.0.0:15014 cannot be served at one port; control.metrics is the default (give one of them another port)",
        ),
        (
            "qos:\n  network:\n    replace: [eth0/1]\n",
            "s.yaml:3: qos.network.replace: \"eth0/1\" is no name of an interface (write one that ip link shows)",
        ),
        (
            "qos:\n  network: {low_bytes_per_s: 2000, high_bytes_per_s: 1000}\n",
            "s.yaml:2: qos.network.low_bytes_per_s: 2000 is more than high_bytes_per_s, 1000; qos.network.high_bytes_per_s is set in s.yaml:2 (lower low_bytes_per_s, or raise high_bytes_per_s)",
        ),
        (
            "qos:\n  network:\n    mark: 0x40/0x30\n",
            "s.yaml:3: qos.network.mark: the bits 0x40 of its value are not in its mask (expected VALUE/MASK such as 0x10/0x30)",
        ),
        (
            "workloads:\n  restart_min_ms: 40000\n",
            "s.yaml:2: workloads.restart_min_ms: 40000 is more than restart_max_ms, 30000; workloads.restart_max_ms is the default (lower restart_min_ms, or raise restart_max_ms)",
        ),
    ] {
        assert_eq!(refused(text), expected);
    }
}

/// Sets the field as a flag `--restart-min-ms` would, if it existed.
fn restart_min(given: &mut GivenSettings, ms: u64) {
    let flag = "--restart-min-ms";
    given.flag(flag, "workloads.restart_min_ms", Some(ms), |to, ms| {
        to.workloads.restart_min_ms = Within::nearest(ms);
    });
}

#[test]
fn a_flag_over_the_file_takes_a_contradiction_away() {
    let mut given = given("workloads: {restart_min_ms: 200, restart_max_ms: 100}\n");
    restart_min(&mut given, 50);
    let settings = given.checked().expect("nothing contradicts");
    assert_eq!(settings.workloads.restart_min_ms.get(), 50);
}

#[test]
fn a_contradiction_names_the_flag_and_the_line_or_that_there_is_neither() {
    for (file, expected) in [
        (
            "workloads:\n  restart_min_ms: 10\n  restart_max_ms: 100\n",
            "--restart-min-ms (workloads.restart_min_ms): 40000 is more than restart_max_ms, 100; \
             workloads.restart_max_ms is set in s.yaml:3 (lower restart_min_ms, or raise restart_max_ms)",
        ),
        (
            "{}",
            "--restart-min-ms (workloads.restart_min_ms): 40000 is more than restart_max_ms, 30000; \
             workloads.restart_max_ms is the default (lower restart_min_ms, or raise restart_max_ms)",
        ),
    ] {
        let mut given = given(file);
        restart_min(&mut given, 40_000);
        let refused = given.checked().expect_err("a contradiction");
        assert_eq!(refused.to_string(), expected);
    }
}

#[test]
fn a_node_knows_only_what_it_uses_where_pods_are_intercepted_or_it_is_said() {
    let eager = "node: {discovery: {mode: eager}, interception: {enabled: true}}\n";
    let said = "node: {discovery: {mode: on-demand, forget_after_s: 60}}\n";
    for (file, seconds) in [
        ("{}", None),
        ("node: {interception: {enabled: true}}\n", Some(600)),
        (eager, None),
        (said, Some(60)),
    ] {
        let node = given(file).checked().expect("valid").node;
        let seconds = seconds.map(std::time::Duration::from_secs);
        assert_eq!(node.forget_after(), seconds, "{file}");
    }
    refused("node: {discovery: {forget_after_s: 0}}\n");
    refused("proxy: {timeouts: {discovery_ms: 0}}\n");
}

#[test]
fn a_mesh_has_so_many_address_ranges() {
    let text = |ranges: usize| {
        let ranges = (0..ranges).map(|last| format!("10.0.0.{last}/32"));
        let ranges = ranges.collect::<Vec<_>>().join(", ");
        format!("mesh: {{address_ranges: [{ranges}]}}\n")
    };
    assert_eq!(parse(&text(64)).unwrap().mesh.address_ranges.len(), 64);
    assert!(refused(&text(65)).contains("a mesh has at most 64"));
    let unclean = refused("mesh: {address_ranges: [10.0.0.1/8]}\n");
    assert!(unclean.contains("bits beyond the prefix"), "{unclean}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text(1)).unwrap();
    let of_node = GivenSettings::read_for_node(Some(file.path()));
    let of_node = of_node.expect_err("it must be refused").to_string();
    assert!(
        of_node.contains("told this by its control plane"),
        "{of_node}"
    );
}

#[test]
fn a_flag_that_was_not_given_changes_nothing() {
    let mut given = given("drain: {timeout_ms: 7}\n");
    given.flag("--drain-ms", "drain.timeout_ms", None::<u64>, |to, ms| {
        to.drain.timeout_ms = Within::nearest(ms);
    });
    assert_eq!(given.checked().expect("valid").drain.timeout_ms.get(), 7);
}

#[test]
fn a_processor_that_there_is_not_is_refused() {
    let said = refused("proxy:\n  workers: {cpus: [0, 1023]}\n");
    let expected = "s.yaml:2: proxy.workers.cpus: this process may not run on processor ";
    assert!(said.starts_with(expected), "{said}");
    assert!(said.contains(" (expected some of "), "{said}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let read = GivenSettings::read(Some(Path::new("/no/such.yaml")));
    let error = read.expect_err("it does not exist");
    assert!(
        error.to_string().starts_with("/no/such.yaml: No such file"),
        "{error}"
    );
}

#[test]
fn what_the_file_says_reaches_the_data_plane() {
    let text = "
proxy:
  timeouts: {connect_ms: 250, client_idle_ms: 0}
  bounds: {connections: 7}
  trusted_sources: [10.0.0.0/8, '::1']
";
    let settings = parse(text).expect("valid").proxy.settings();
    let default = heddle_proxy::Settings::default();
    assert_eq!(settings.timeouts.connect, Duration::from_millis(250));
    assert_eq!(settings.timeouts.client_idle, Duration::ZERO);
    assert_eq!(settings.timeouts.stream_idle, default.timeouts.stream_idle);
    assert_eq!(
        (settings.bounds.connections, settings.bounds.blocks),
        (7, default.bounds.blocks)
    );
    assert_eq!(settings.trusted_sources.len(), 2);
    assert!(settings.trusted_sources[0].contains([10, 1, 2, 3].into()));
}

#[test]
fn defaults_are_the_data_planes_own() {
    let default = heddle_proxy::Settings::default();
    let workers = heddle_proxy::Elasticity {
        max: std::thread::available_parallelism().map_or(1, usize::from),
        ..default.workers
    };
    assert_eq!(
        Settings::default().proxy.settings(),
        heddle_proxy::Settings { workers, ..default }
    );
}
