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
        let said =
            read_token_waiting(&path).map_or_else(|error| error.to_string(), |_| String::new());
        let is_right = said.contains(wanted) && said.is_empty() == wanted.is_empty();
        assert!(
            is_right,
            "{} bytes: {said:?} instead of {wanted:?}",
            text.len()
        );
    }
}
