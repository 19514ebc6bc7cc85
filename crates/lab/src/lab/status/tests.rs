use super::*;

fn process(state: ProcessState, restarts: u32) -> ProcessStatus {
    ProcessStatus {
        name: "heddle-one".to_owned(),
        what: "heddle node one".to_owned(),
        pid: 17,
        state,
        started: 1_700_000_000,
        restarts,
        log: PathBuf::from("/logs/heddle-one.log"),
        last_wrote: Some(1_700_000_060),
        last_words: match state {
            ProcessState::Running => Vec::new(),
            ProcessState::Ended => vec!["heddle: it is over".to_owned()],
        },
    }
}

#[test]
fn a_process_says_since_when_it_runs_or_what_it_said_last() {
    let mut out = String::new();
    let all = [
        process(ProcessState::Running, 2),
        process(ProcessState::Ended, 0),
    ];
    processes(&mut out, "  ", &all).unwrap();
    assert_eq!(
        out,
        "  process 17 runs since 2023-11-14T22:13:20Z, 2 restarts: heddle node one, /logs/heddle-one.log\n  \
         process 17 ENDED, last output at 2023-11-14T22:14:20Z: heddle node one, /logs/heddle-one.log\n      \
         heddle: it is over\n"
    );
}

#[test]
fn the_kernels_clock_is_read_as_that_of_the_day() {
    let own = i32::try_from(std::process::id()).unwrap();
    let note = Note {
        what: "this test".to_owned(),
        pid: own,
        started: super::super::process::started(own).unwrap(),
        log: PathBuf::from("/no/such/place/test.log"),
        restarts: 0,
    };
    let status = ProcessClock::read().unwrap().process(&note);
    let now = since_1970(SystemTime::now()).unwrap();
    assert_eq!(
        (status.state, status.name.as_str()),
        (ProcessState::Running, "test")
    );
    // Boot time is rounded, and follows changes of the clock.
    assert!(status.started <= now + 2 && now - 3_600 < status.started);
    assert_eq!(status.last_wrote, None);
}
