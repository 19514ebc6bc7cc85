//! What an operator is told about pods that the agent cannot help, and about what a killed agent has left.

use super::*;

/// An agent that has changed processors and memory of the batch pod, and was killed.
pub(super) fn killed(name: &str) -> Option<Groups> {
    let groups = Groups::new(name, &["batch"])?;
    groups.manifest("batch", OFFLINE);
    let mut agent = groups.start(&[]);
    eventually("processors and memory are changed", || {
        groups.ask("status").1.contains("2 settings changed")
    });
    signal(&agent, Signal::KILL);
    agent.wait().expect("ended");
    Some(groups)
}

#[test]
fn what_is_not_done_for_a_pod_is_told_for_as_long_as_it_is_so() {
    let Some(groups) = Groups::new("notes", &["batch/inner"]) else {
        return;
    };
    groups.manifest("batch", OFFLINE);
    groups.manifest("gone", OFFLINE);
    let inner = format!(
        "apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata:\n  name: inner\n  namespace: qos\n  \
         annotations: {{heddle.dev/cgroup: {}/batch/inner}}\nspec: {{ports: [{{port: 81}}]}}\n",
        groups.name
    );
    groups.folder.write("inner.yaml", &inner);
    let mut agent = groups.start(&[]);
    let told = |part: &str| groups.ask("status").1.contains(part);
    eventually("a missing group is told", || {
        told("heddle.dev/cgroup of qos/gone: there is no control group")
    });
    assert!(told(
        "heddle.dev/class of qos/inner: its control group is that of qos/batch or in it"
    ));
    groups.manifest("batch", "heddle.dev/class: online");
    eventually("a class that stays is told", || {
        told("heddle.dev/class of qos/batch: it is offline and cannot become online")
    });
    groups.folder.write("wrong.yaml", "kind: [\n");
    eventually("what cannot be read is told", || {
        told("wrong.yaml: unreadable text: refused, and left out")
    });
    groups.folder.write("wrong.yaml", "");
    groups.manifest("gone", "heddle.dev/class: online");
    groups.manifest("batch", OFFLINE);
    eventually("what is over is told no more", || {
        !told("qos.folder") && !told("qos/batch: it is offline")
    });
    signal(&agent, Signal::TERM);
    assert_eq!(agent.wait().expect("ended").code(), Some(0));
}

#[test]
fn a_damaged_file_holds_up_no_other() {
    let Some(groups) = killed("damaged") else {
        return;
    };
    fs::write(groups.state().join("network"), "garbage\n").expect("written");
    fs::write(groups.state().join("threads"), "../../x").expect("written");
    let (code, said) = groups.ask("restore");
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(groups.read("batch", "cpu.idle"), "0", "{said}");
    for part in ["2 settings put back", "qos/network: ", "qos/threads: "] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn values_of_other_programs_are_named() {
    let Some(groups) = killed("foreign") else {
        return;
    };
    fs::write(groups.file("batch", "cpu.idle"), "0").expect("written");
    fs::write(groups.file("batch", groups.weight()), "333").expect("written");
    let (code, said) = groups.ask("restore");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("batch is 333\n"), "{said}");
    assert_eq!(groups.read("batch", groups.weight()), "333");
}

#[test]
fn what_is_left_alone_is_told_with_the_value_of_the_other_program() {
    let Some(groups) = Groups::new("alone", &["batch"]) else {
        return;
    };
    groups.manifest("batch", OFFLINE);
    let mut agent = groups.start(&[]);
    eventually("the batch pod yields", || {
        groups.read("batch", "cpu.idle") == "1"
    });
    fs::write(groups.file("batch", "cpu.idle"), "0").expect("written");
    fs::write(groups.file("batch", groups.weight()), "333").expect("written");
    let why = format!(
        "not done: cpu-share of {}/batch: another program set it to ",
        groups.name
    );
    eventually("it is told", || groups.ask("status").1.contains(&why));
    assert!(groups.ask("status").1.contains("; tried again in a minute"));
    signal(&agent, Signal::TERM);
    assert_eq!(agent.wait().expect("ended").code(), Some(0));
}

#[test]
fn lines_that_cannot_be_read_are_told_until_the_copy_is_removed() {
    let Some(groups) = killed("garbled") else {
        return;
    };
    let journal = groups.state().join("journal");
    let said = fs::read_to_string(&journal).expect("read");
    let header = said.lines().next().expect("a header");
    fs::write(&journal, format!("{header}\ngarbage\ngarbage\n")).expect("written");
    let assert_says = |command: &str, wanted: i32, part: &str| {
        let (code, said) = groups.ask(command);
        assert_eq!(code, Some(wanted), "{said}");
        assert!(said.contains(part), "{part}: {said}");
    };
    assert_says("status", 6, "2 lines of the journal cannot be read");
    assert_says("restore", 1, "cannot be read at line 2, 3");
    for (command, code) in [("status", 6), ("restore", 1), ("restore", 1)] {
        assert_says(
            command,
            code,
            "journal.damaged has lines that cannot be read",
        );
    }
    let mut agent = groups.start(&[]);
    eventually("a running agent does not hide it", || {
        let (code, said) = groups.ask("status");
        code == Some(0) && said.contains("journal.damaged has lines")
    });
    signal(&agent, Signal::TERM);
    assert_eq!(agent.wait().expect("ended").code(), Some(0));
    fs::remove_file(groups.state().join("journal.damaged")).expect("removed");
    assert_says("status", 4, "nothing is changed");
}

#[test]
fn a_dry_run_says_what_a_killed_agent_has_left() {
    let Some(groups) = killed("left") else {
        return;
    };
    let manifests = groups.folder.manifests();
    let log = groups.folder.path("log");
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.args(["qos", "run", "--dry-run", as_str(&manifests)]);
    command.args(["--state", as_str(&groups.state())]);
    let errors = fs::File::create(&log).expect("a file");
    let mut agent = command.stderr(errors).spawn().expect("started");
    let said = || fs::read_to_string(&log).expect("read");
    eventually("it says what is left", || {
        said().contains(
            "an agent was killed before it had put back 2 settings: that would be done first",
        ) && said().contains("would go from idle to ")
            && said().contains("to idle: offline")
    });
    signal(&agent, Signal::TERM);
    assert_eq!(agent.wait().expect("ended").code(), Some(0), "{}", said());
    assert_eq!(groups.read("batch", "cpu.idle"), "1", "nothing is changed");
    assert_eq!(groups.ask("restore").0, Some(0));
}

#[test]
fn a_state_folder_that_is_not_there_is_an_error_and_is_not_made() {
    let folder = Folder::new();
    let state = folder.path("nowhere");
    for command in ["status", "restore"] {
        let output = heddle(&["qos", command, "--state", as_str(&state)]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("nowhere does not exist"), "{said}");
    }
    assert!(!state.exists());
}

#[test]
fn status_shows_what_it_can_read_and_finds_the_folder_in_the_settings() {
    let Some(groups) = Groups::new("garbage", &["batch"]) else {
        return;
    };
    groups.manifest("batch", OFFLINE);
    let settings = groups.folder.path("heddle.yaml");
    let text_of = format!("qos: {{state: {}}}\n", groups.state().display());
    fs::write(&settings, text_of).expect("written");
    let mut agent = groups.start(&[]);
    eventually("the batch pod yields", || {
        groups.read("batch", "cpu.idle") == "1"
    });
    fs::write(groups.state().join("remarks"), "garbage").expect("written");
    fs::write(groups.state().join("latency.json"), "garbage").expect("written");
    let output = heddle(&["qos", "status", "--config", as_str(&settings)]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for part in ["cpu-share", "is not known", "qos)"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    signal(&agent, Signal::TERM);
    assert_eq!(agent.wait().expect("ended").code(), Some(0));
}
