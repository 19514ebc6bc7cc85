use super::*;

fn sleeper() -> (std::process::Child, Note) {
    let child = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let note = Note {
        what: "a sleeper".to_owned(),
        pid,
        started: started(pid).unwrap(),
        log: PathBuf::new(),
        restarts: 0,
    };
    (child, note)
}

#[test]
fn the_name_of_a_program_may_hold_anything() {
    let stat = "17 (a) b) S 1 17 17 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9";
    assert_eq!(field_of(stat, 3), Some("S"));
    assert_eq!(field_of(stat, 22), Some("4711"));
    assert_eq!(field_of("", 22), None);
    assert_eq!(field_of("17 (a) S", 22), None);
}

#[test]
fn a_process_that_was_noted_is_ended() {
    let (mut child, note) = sleeper();
    assert!(note.runs());
    end(std::slice::from_ref(&note));
    assert!(!note.runs());
    let _reaped_already = child.wait();
}

#[test]
fn a_process_that_has_the_id_of_another_is_left_alone() {
    let (mut child, note) = sleeper();
    let other = Note {
        started: note.started - 1,
        ..note.clone()
    };
    assert!(!other.runs());
    end(&[other]);
    assert!(note.runs());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn notes_that_are_none_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.json"), "{").unwrap();
    fs::write(
        folder.path().join("b.json"),
        r#"{"what":"w","pid":1,"started":2,"log":"/l"}"#,
    )
    .unwrap();
    let notes = Note::all(folder.path());
    assert_eq!(notes.len(), 1);
    assert_eq!(notes[0].what, "w");
}
