use super::*;

#[test]
fn a_token_is_read_with_what_white_space_is_around_it() {
    let token = format!(
        "heddle-{}.{}.{}",
        "A".repeat(12),
        "B".repeat(42) + "A",
        "ab".repeat(32)
    );
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("token");
    let blank = |count: usize| " ".repeat(count);
    let fits = MAX_TOKEN_FILE - token.len();
    for (text, wanted) in [
        (token.clone(), ""),
        (format!("\n{token}\n\n"), ""),
        (token.clone() + &blank(fits), ""),
        (blank(fits) + &token, ""),
        (token.clone() + &blank(fits + 1), "more than a token"),
        (blank(fits + 1) + &token, "more than a token"),
        (blank(MAX_TOKEN_FILE), "is empty"),
        (blank(MAX_TOKEN_FILE + 1), "more than a token"),
        (blank(1_000_000), "more than a token"),
        (String::new(), "is empty"),
        (token.replace('.', ","), "holds no token"),
    ] {
        std::fs::write(&path, &text).expect("written");
        for file in [TokenFile::at(path.clone()), TokenFile::open(path.clone())] {
            assert!(file.is_file());
            let read = read_token_waiting(file);
            let said = read.map_or_else(|error| error.to_string(), |_| String::new());
            let is_right = said.contains(wanted) && said.is_empty() == wanted.is_empty();
            assert!(
                is_right,
                "{} bytes: {said:?} instead of {wanted:?}",
                text.len()
            );
        }
    }
}

#[test]
fn a_token_that_was_opened_is_read_by_a_process_that_may_not_open_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("token");
    let token = format!(
        "heddle-{}.{}.{}",
        "A".repeat(12),
        "B".repeat(42) + "A",
        "ab".repeat(32)
    );
    // A missing file is reported only when the token is needed.
    let missing = TokenFile::open(path.clone());
    assert!(!missing.is_file());
    let said = read_token_waiting(missing)
        .err()
        .map(|error| error.to_string());
    assert!(said.is_some_and(|said| said.contains("cannot read the token")));
    // Opening a pipe does not wait; reading it does.
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        &path,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    )
    .expect("a pipe");
    let opened = TokenFile::open(path.clone());
    assert!(!opened.is_file());
    let read = std::thread::spawn(move || read_token_waiting(opened));
    std::fs::write(&path, &token).expect("written");
    std::fs::remove_file(&path).expect("removed");
    assert!(read.join().expect("it ends").is_ok());
}
