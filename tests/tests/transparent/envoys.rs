//! Pods with a stock Envoy of their own, beside pods whose traffic the proxies of nodes carry.

mod beside_nodes;
mod lazy;

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use heddle_lab::lab::Family;
use heddle_skips::skipped;

use crate::load::told;
use crate::programs::Serving;
use crate::stage::Stage;

/// HTTP on 80; bytes on 81, where clients speak first, and on 82, where servers do.
const PORTS: &str = "{name: http, port: 80, appProtocol: http}, {name: tcp-echo, port: 81}, {name: tcp-first, port: 82}";

impl Stage {
    /// Starts servers of a pod on all [`PORTS`].
    fn serve_all(&self, pod: &str) -> [Serving; 3] {
        let first = self.own(pod, "say [::]:82");
        [
            self.answer(pod, 80),
            self.answer(pod, 81),
            self.serve_by(pod, 82, first),
        ]
    }

    /// The status of a request to a Service by name, with these headers; 000 if there is no answer.
    fn status(&self, pod: &str, url: &str, headers: &[&str]) -> String {
        let mut argv = vec!["curl", "-s", "-o", "/dev/null", "-m", "8"];
        argv.extend(["-w", "%{http_code}", url]);
        argv.extend(headers.iter().flat_map(|header| ["-H", header]));
        let output = self.run(pod, &argv);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What comes back when a client in a pod sends a line to port 81 of a Service.
    fn echo(&self, pod: &str, service: &str) -> String {
        self.ask_bytes(pod, "echo", self.port_of(service, 81))
    }

    /// What a client in a pod hears first from port 82 of a Service.
    fn hear(&self, pod: &str, service: &str) -> String {
        self.ask_bytes(pod, "hear", self.port_of(service, 82))
    }

    fn port_of(&self, service: &str, port: u16) -> SocketAddr {
        SocketAddr::new(self.cluster_address(service, Family::V4), port)
    }

    fn ask_bytes(&self, pod: &str, role: &str, to: SocketAddr) -> String {
        let mut command = self.own(pod, &format!("{role} {to}"));
        let output = command.stdin(Stdio::null()).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stdout);
        told(&said).first().copied().unwrap_or_default().to_owned()
    }

    /// A counter of the Envoy of a pod; 0 if it has not counted anything there.
    fn envoy_counts(&self, pod: &str, counter: &str) -> u64 {
        let url = format!("http://127.0.0.1:15000/stats?filter=^{counter}$");
        let said = self.says(pod, &["curl", "-s", "-g", &url]);
        let number = said.trim().rsplit(' ').next().unwrap_or_default();
        number.parse().unwrap_or_default()
    }
}

/// Whether bytes have come through in both ways of speaking first: an echo, and an address of the caller.
fn is_good(echo: &str, heard: &str) -> bool {
    echo == "echo of a line" && heard.parse::<std::net::IpAddr>().is_ok()
}

/// A reader of the page copies them.
#[test]
fn the_rules_of_the_page_can_be_loaded() {
    const PAGE: &str = include_str!("../../../docs/envoy.md");
    if !rustix::process::geteuid().is_root() {
        return skipped("network namespaces need root (run the tests with sudo)");
    }
    let mut blocks = PAGE.split("```\n");
    let rules = blocks.find(|block| block.trim_start().starts_with("table ip envoy {"));
    let rules = rules.expect("the rules of the page");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), rules).expect("written");
    let loaded = Command::new("unshare")
        .args(["--net", "nft", "--file"])
        .arg(file.path())
        .output();
    let loaded = loaded.expect("unshare runs (apt-get install util-linux nftables)");
    let said = String::from_utf8_lossy(&loaded.stderr);
    assert!(loaded.status.success(), "{said}");
    for table in ["table ip envoy", "table ip6 envoy"] {
        assert!(rules.contains(table), "{table}: {rules}");
    }
}
