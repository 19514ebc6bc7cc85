//! Nodes and control planes of two versions. `scripts/skew.sh` builds the older program and runs these.

use std::net::SocketAddr;

use super::*;
use crate::harness::OURS;

/// The older program.
fn older() -> String {
    std::env::var("HEDDLE_OLDER").expect("HEDDLE_OLDER names an older program: see scripts/skew.sh")
}

/// A mesh of two nodes that learn what they call, with a control plane, each by one of two programs.
struct Mixed {
    folder: Folder,
    namespace: String,
    at: SocketAddr,
    control: Option<Heddle>,
    one: Heddle,
    _two: Heddle,
}

/// A control plane, with settings that an older one does not have if it is of this build.
fn control_by(program: &str, folder: &Folder, at: SocketAddr) -> Heddle {
    if program != OURS {
        return Heddle::control_by(program, folder, at, &[]);
    }
    let config = folder.path("control.yaml");
    fs::write(&config, "mesh: {address_ranges: [127.0.0.0/8]}").expect("written");
    Heddle::control_by(program, folder, at, &["--config", as_str(&config)])
}

const ON_DEMAND: [&str; 2] = ["--discovery", "on-demand"];

impl Mixed {
    fn new(number: u8, control: &str, [one, two]: [&str; 2]) -> Self {
        let (folder, namespace) = mesh(number);
        let at = free_address();
        let control = control_by(control, &folder, at);
        let join = |program: &str, name: &str| {
            let token = token(&folder, name);
            let joining = ["--token-file", as_str(&token)];
            let more = [&joining[..], &ON_DEMAND].concat();
            let node = Heddle::node_by(program, &folder, name, at, &more);
            node.stderr_line("listening for other nodes");
            node
        };
        let (one, two) = (join(one, "n1"), join(two, "n2"));
        one.stdout_line("SERVICE");
        Mixed {
            folder,
            namespace,
            at,
            control: Some(control),
            one,
            _two: two,
        }
    }

    /// Checks that a call goes from the first node to the other one, that a change of the mesh arrives, and that a policy
    /// is enforced.
    fn works(&self, round: usize) {
        let caller = format!("{}/web", self.namespace);
        let proxy = self.one.forward_proxy(&caller);
        let ask = |host: &str, path: &str| get(proxy, host, &format!("http://{host}{path}"));
        eventually("the request is answered", || {
            ask("cart", "/") == (200, "cart".to_owned())
        });
        // A Service that comes later.
        let (name, namespace) = (format!("late-{round}"), &self.namespace);
        let service = fs::read_to_string(self.folder.manifests().join("a.yaml")).expect("read");
        let service = service
            .split("---")
            .find(|one| one.contains("kind: Service\n"));
        let service = service
            .expect("it")
            .replace("name: cart,", &format!("name: {name},"));
        assert_eq!(ask(&name, "/").0, 502);
        self.folder.write(&format!("{name}.yaml"), &service);
        eventually("it has come", || {
            ask(&name, "/") == (200, "cart".to_owned())
        });
        let policy = format!(
            "apiVersion: heddle.dev/v1alpha1\nkind: AuthorizationPolicy\n\
             metadata: {{name: deny-{round}, namespace: {namespace}}}\n\
             spec: {{targetRefs: [{{kind: Pod, selector: {{matchLabels: {{app: cart}}}}}}], action: DENY, \
             rules: [{{httpAttributes: {{paths: [{{type: Exact, value: /secret-{round}}}]}}}}]}}\n"
        );
        self.folder.write(&format!("deny-{round}.yaml"), &policy);
        let secret = format!("/secret-{round}");
        eventually("it is refused", || ask("cart", &secret).0 == 403);
        assert_eq!(ask("cart", "/").0, 200);
    }

    /// Goes on with the same state under a control plane of another program, as an upgrade does.
    fn replace_control(&mut self, program: &str) {
        let control = self.control.take().expect("a control plane");
        control.signal(Signal::TERM);
        assert_eq!(control.ended().code(), Some(0));
        let control = control_by(program, &self.folder, self.at);
        eventually("both nodes are back", || {
            let nodes = control.status()["nodes"].as_array().cloned();
            let nodes = nodes.iter().flatten();
            nodes.filter(|node| node["address"].is_string()).count() == 2
        });
        self.control = Some(control);
    }
}

#[test]
#[ignore = "needs an older program: scripts/skew.sh"]
fn nodes_of_now_use_an_older_control_plane() {
    Mixed::new(30, &older(), [OURS, OURS]).works(0);
}

#[test]
#[ignore = "needs an older program: scripts/skew.sh"]
fn older_nodes_use_a_control_plane_of_now() {
    let older = older();
    Mixed::new(31, OURS, [&older, &older]).works(0);
}

#[test]
#[ignore = "needs an older program: scripts/skew.sh"]
fn nodes_of_both_versions_call_each_other() {
    let older = older();
    Mixed::new(32, OURS, [OURS, &older]).works(0);
    Mixed::new(33, OURS, [&older, OURS]).works(0);
}

#[test]
#[ignore = "needs an older program: scripts/skew.sh"]
fn a_control_plane_is_upgraded_and_put_back_beneath_its_nodes() {
    let older = older();
    let mut mixed = Mixed::new(34, &older, [&older, OURS]);
    mixed.works(0);
    for (round, program) in [OURS, &older, OURS].into_iter().enumerate() {
        mixed.replace_control(program);
        mixed.works(round + 1);
    }
}
