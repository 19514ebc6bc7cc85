use super::*;

#[test]
fn pages_are_told_apart() {
    let page = |version: &str| format!(r#"{{"reviews": {{"version": "{version}"}}, "more": 1}}"#);
    assert_eq!(Page::read(page("v2").as_bytes()).unwrap(), "v2");
    for body in [page("v3"), "<html>".to_owned(), "{}".to_owned()] {
        assert!(Page::read(body.as_bytes()).is_err(), "{body}");
    }
}
