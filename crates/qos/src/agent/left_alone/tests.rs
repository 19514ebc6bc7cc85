use super::super::tests::{Tree, agent, at, everything, offline};
use crate::cgroup::{Knob, Value};

#[test]
fn what_another_program_writes_is_left_alone_for_a_minute() {
    let Some(mut tree) = Tree::new("foreign", &["batch"]) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut agent = agent(everything(), folder.path());
    agent.set_pods(vec![tree.pod("batch", offline())]);
    agent.tick(at(0));
    tree.set("batch", Knob::CpuShare, Value::Amount(700));
    for second in [1, 2, 59] {
        agent.tick(at(second));
        assert_eq!(tree.value("batch", Knob::CpuShare), Value::Amount(700));
        let told = agent.remarks().not_done;
        let told = told
            .iter()
            .find(|one| one.setting.starts_with("cpu-share of "));
        let why = "another program set it to 700, which stays; tried again in a minute";
        assert_eq!(told.map(|one| one.why.as_str()), Some(why));
    }
    agent.tick(at(62));
    assert_eq!(tree.value("batch", Knob::CpuShare), Value::Idle);
    let told = agent.remarks().not_done;
    assert!(
        !told
            .iter()
            .any(|one| one.setting.starts_with("cpu-share of "))
    );
    assert!(agent.restore());
    assert_eq!(tree.value("batch", Knob::CpuShare), Value::Amount(700));
}
