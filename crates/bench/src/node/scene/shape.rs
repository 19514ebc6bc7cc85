//! What a lab has: its pods and nodes.

use std::path::Path;

use super::{CLASS, NAMESPACE};
use crate::node::PORT;

/// The servers of a lab. The client is always on the first node.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::node) struct SceneShape {
    /// Servers on the client's node: `near0`, …
    pub(in crate::node) near: u32,
    /// Servers on a second node, if there is any: `far0`, …
    pub(in crate::node) far: u32,
    /// CPU time that an answer takes a server, in microseconds.
    pub(in crate::node) work_us: u64,
    /// Whether there are two more pods on the client's node: `batch`, in which nothing runs, and its server `sink`; and
    /// two like them on the second node, `batch-apart` and `sink-apart`.
    pub(in crate::node) batch: bool,
    /// Whether a server's Envoy knows every Service, as Heddle does, and not only its own.
    pub(in crate::node) sidecars_know_all: bool,
}

impl SceneShape {
    /// Names of the servers, with their nodes.
    pub(super) fn servers(self) -> impl Iterator<Item = (String, &'static str)> {
        let near = (0..self.near).map(|index| (format!("near{index}"), "one"));
        let far = (0..self.far).map(|index| (format!("far{index}"), "two"));
        let sinks = [("sink".to_owned(), "one"), ("sink-apart".to_owned(), "two")];
        let sinks = self.batch.then_some(sinks).into_iter().flatten();
        near.chain(far).chain(sinks)
    }

    /// The nodes, as a plan of a lab lists them.
    pub(super) fn nodes(self) -> &'static str {
        match self.far > 0 || self.batch {
            true => "[one, two]",
            false => "[one]",
        }
    }

    pub(super) fn manifests(self, program: &Path) -> String {
        let mut text = format!(
            "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: client, namespace: {NAMESPACE}}}\n\
             ---\napiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\n\
             metadata: {{name: client, namespace: {NAMESPACE}}}\n\
             spec: {{nodeName: one, serviceAccountName: client}}\n"
        );
        let batch = [
            ("batch", "one", format!("{CLASS}: online")),
            ("batch-apart", "two", String::new()),
        ];
        for (name, node, label) in batch.iter().filter(|_| self.batch) {
            text.push_str(&format!(
                "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: {name}, namespace: {NAMESPACE}}}\n\
                 ---\napiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata: {{name: {name}, namespace: \
                 {NAMESPACE}, labels: {{{label}}}}}\nspec: {{nodeName: {node}, serviceAccountName: {name}}}\n"
            ));
        }
        for (name, node) in self.servers() {
            let (program, work_us) = (program.display(), self.work_us);
            text.push_str(&format!(
                "---\napiVersion: v1\nkind: ServiceAccount\n\
                 metadata: {{name: {name}, namespace: {NAMESPACE}}}\n\
                 ---\napiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\n\
                 metadata: {{name: {name}, namespace: {NAMESPACE}, labels: {{app: {name}}}}}\n\
                 spec:\n  nodeName: {node}\n  serviceAccountName: {name}\n  ports: [{{port: {PORT}}}]\n  \
                 command: [\"{program}\", upstream, --listen, \"[::]:{PORT}\", --work-us, \"{work_us}\"]\n\
                 ---\napiVersion: v1\nkind: Service\n\
                 metadata: {{name: {name}, namespace: {NAMESPACE}}}\n\
                 spec: {{selector: {{app: {name}}}, ports: [{{port: {PORT}, appProtocol: http}}]}}\n"
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use heddle_lab::lab::Plan;

    use super::*;

    #[test]
    fn manifests_are_what_a_lab_takes() {
        let shape = SceneShape {
            near: 2,
            far: 1,
            work_us: 7,
            batch: false,
            sidecars_know_all: false,
        };
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("mesh")).expect("a folder");
        let manifests = shape.manifests(Path::new("/bin/heddle-lab"));
        fs::write(folder.path().join("mesh/all.yaml"), manifests).expect("a file");
        let file = folder.path().join("lab.yaml");
        fs::write(&file, "name: t\nnodes: [one, two]\nmanifests: mesh\n").expect("a file");
        let plan = Plan::read(&file).expect("a plan");
        assert_eq!((plan.pods.len(), plan.services.len()), (4, 3));
        assert!(
            plan.pod("lab/far0")
                .is_some_and(|pod| pod.node.as_str() == "two")
        );
    }
}
