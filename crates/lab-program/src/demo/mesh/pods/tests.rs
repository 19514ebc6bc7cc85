use super::*;
use crate::demo::acts::{INTRUDER, READER};
use crate::demo::manifests::ManifestFolder;

#[test]
fn the_lab_is_what_the_story_needs() {
    let manifests = ManifestFolder::write_for_pods().unwrap();
    let [file, settings] = ["lab.yaml", "control.yaml"].map(|name| manifests.scratch().join(name));
    fs::write(&settings, SETTINGS).unwrap();
    fs::write(&file, text(manifests.dir(), &settings, &[INTRUDER, READER])).unwrap();
    let plan = Plan::read(&file).unwrap();
    assert_eq!(plan.name.as_str(), LAB);
    assert_eq!(plan.settings, Some(settings));
    let nodes: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(nodes, NODES);
    let later = plan.pods.iter().filter(|pod| !pod.enrolled);
    let later: Vec<String> = later.map(|pod| pod.workload.to_string()).collect();
    assert_eq!(later, [INTRUDER, READER]);
    assert_eq!(plan.pods.len(), 8);
}
