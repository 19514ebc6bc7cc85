use std::process::Command;
use std::{env, fs};

use heddle_model::{Policy, PolicyAction, PolicyName, PolicyRule};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

use super::super::courier::Event;
use super::super::state::tests::{Kept, name, workload};
use super::*;

/// Set in the process in which no file can grow.
const FULL: &str = "HEDDLE_TEST_OF_A_FULL_DISK";

fn failed() -> Result<(), String> {
    Err("no space".to_owned())
}

#[test]
fn a_file_that_is_written_well_hides_no_other() {
    let mut unsaved = Unsaved::default();
    unsaved.note("mesh.json".into(), Some(Write::Floor(1)), &failed());
    unsaved.note("floor".into(), Some(Write::Floor(2)), &Ok(()));
    assert_eq!(unsaved.why().as_deref(), Some("the state folder: no space"));
    unsaved.note("mesh.json".into(), Some(Write::Floor(1)), &Ok(()));
    assert_eq!(unsaved.why(), None);
}

#[test]
fn what_was_not_written_is_due_again_after_a_while() {
    let mut unsaved = Unsaved::default();
    assert_eq!(unsaved.again_in(), None);
    unsaved.note("floor".into(), Some(Write::Floor(1)), &failed());
    assert!(unsaved.again_in().is_some_and(|wait| wait <= AGAIN));
    assert!(unsaved.take_due().is_empty(), "not yet");
    unsaved.again_at = Some(Instant::now());
    assert_eq!(unsaved.take_due().len(), 1);
}

#[test]
fn what_was_found_damaged_is_well_when_it_is_written_or_not_wanted() {
    let damaged = |file: &str| Problem {
        file: file.to_owned(),
        why: format!("{file} is damaged"),
    };
    let mut unsaved = Unsaved::default();
    unsaved.found(vec![damaged("mesh.json"), damaged("ab.leaf")]);
    unsaved.forget_unwanted();
    assert_eq!(unsaved.why().as_deref(), Some("mesh.json is damaged"));
    unsaved.note("mesh.json".into(), None, &Ok(()));
    assert_eq!(unsaved.why(), None);
}

#[test]
fn trust_that_was_not_written_is_said_until_it_is() {
    let mut unsaved = Unsaved::default();
    unsaved.note("trust.json".into(), None, &failed());
    unsaved.forget_unwanted();
    assert_eq!(unsaved.why().as_deref(), Some("the state folder: no space"));
    unsaved.note("trust.json".into(), None, &Ok(()));
    assert_eq!(unsaved.why(), None);
}

#[test]
fn of_many_files_a_few_are_named() {
    let mut unsaved = Unsaved::default();
    for number in 0..9 {
        unsaved.note(format!("{number}.leaf"), None, &failed());
    }
    let why = unsaved.why().unwrap_or_default();
    assert!(why.ends_with("; and 6 files more"), "{why}");
}

/// A mesh with a workload, which a DENY policy protects or none does.
fn mesh(generation: u64, is_protected: bool) -> Mesh {
    let name = PolicyName::parse("AuthorizationPolicy shop/cart").unwrap();
    let all = PolicyRule {
        number: 0,
        sources: None,
        ports: Vec::new(),
        http: None,
    };
    let policy = Policy {
        name: name.clone(),
        action: PolicyAction::Deny,
        dry_run: false,
        rules: vec![all],
    };
    let mut workload = workload();
    workload.policies.extend(is_protected.then_some(name));
    Mesh {
        generation,
        workloads: vec![workload.into()].into(),
        policies: is_protected.then(|| Arc::new(policy)).into_iter().collect(),
        ..Mesh::default()
    }
}

impl Agent {
    async fn gets(&mut self, mesh: &Mesh) {
        let event = Event::Mesh("next".to_owned(), Box::new(mesh.clone()));
        self.happened(event).await;
    }

    /// The generation of the mesh that a restart would begin with.
    fn kept(&self) -> Option<u64> {
        let found = self.state.load(&name()).unwrap();
        found.mesh.map(|(_, mesh)| mesh.generation)
    }

    fn said(&self) -> String {
        self.view.status().problems.join("\n")
    }
}

/// Limits the size of files that this process writes, as a full disk does. Removals succeed.
fn limit_files(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    let current = bytes.or(maximum);
    setrlimit(Resource::Fsize, Rlimit { current, maximum }).unwrap();
}

#[tokio::test]
async fn on_a_full_disk_no_mesh_is_left_whose_policies_were_replaced() {
    if env::var_os(FULL).is_none() {
        // In a process of its own: the limit holds for all threads.
        let (_, module) = module_path!().split_once("::").unwrap();
        let test = format!("{module}::on_a_full_disk_no_mesh_is_left_whose_policies_were_replaced");
        let mut again = Command::new(env::current_exe().unwrap());
        again.args(["--exact", &test, "--nocapture"]).env(FULL, "");
        let said = again.output().unwrap();
        let is_run = String::from_utf8_lossy(&said.stdout).contains("1 passed");
        assert!(said.status.success() && is_run, "{said:?}");
        return;
    }
    let _not_fatal = signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).unwrap();
    let kept = Kept::new();
    let (mut agent, _served) = kept.agent();
    agent.state.save_mesh("first", &mesh(1, false)).unwrap();
    let found = agent.state.load(&name()).unwrap();
    agent.begin(found.mesh).await;
    limit_files(Some(0));
    agent.gets(&mesh(2, false)).await;
    assert_eq!(agent.kept(), Some(1), "the same policies are in force");
    assert!(agent.said().contains("mesh.json"), "{}", agent.said());
    assert!(agent.view.status().unsaved);
    agent.gets(&mesh(3, true)).await;
    assert_eq!(agent.kept(), None);
    assert!(
        agent.said().contains("no older mesh is kept"),
        "{}",
        agent.said()
    );
    agent.gets(&mesh(4, true)).await;
    assert_eq!(agent.kept(), None);
    // The newest one is written as soon as there is room.
    limit_files(None);
    agent.unsaved.again_at = Some(Instant::now());
    agent.save_again().await;
    assert_eq!((agent.kept(), agent.said().as_str()), (Some(4), ""));
    assert!(!agent.view.status().unsaved);
}

#[tokio::test]
async fn a_mesh_that_can_be_neither_written_nor_removed_is_said() {
    let kept = Kept::new();
    let (mut agent, _served) = kept.agent();
    let file = kept.path("mesh.json");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    agent.gets(&mesh(2, true)).await;
    let said = agent.said();
    assert!(said.contains("cannot be removed either: "), "{said}");
    fs::remove_dir(&file).unwrap();
    agent.gets(&mesh(3, true)).await;
    assert_eq!((agent.kept(), agent.said().as_str()), (Some(3), ""));
}
