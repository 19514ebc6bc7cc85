use super::*;

#[test]
fn only_a_clear_yes_or_just_enter_agrees() {
    for yes in ["\n", "y\n", "Yes\n", " Y \n"] {
        assert!(means_yes(yes), "{yes:?}");
    }
    for no in ["n\n", "no\n", "why\n"] {
        assert!(!means_yes(no), "{no:?}");
    }
}

#[test]
fn programs_are_found_where_they_are() {
    assert!(find("sh").is_some());
    assert!(find("no-such-program-anywhere").is_none());
}
