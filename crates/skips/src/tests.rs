use std::fs;
use std::panic::Location;

use super::{name, record};

#[test]
fn a_skip_has_the_name_of_its_test() {
    let named = name(std::thread::current().name(), Location::caller());
    assert!(named.starts_with("heddle_skips"), "{named}");
    let is_alone = std::thread::current().name() == Some("main");
    let end = "::tests::a_skip_has_the_name_of_its_test";
    assert!(is_alone || named.ends_with(end), "{named}");
    let elsewhere = name(None, Location::caller());
    assert!(elsewhere.contains("tests.rs:"), "{elsewhere}");
}

#[test]
fn a_skip_is_one_line() {
    let file = std::env::temp_dir().join(format!("heddle-skips-{}", std::process::id()));
    record(&file, "a::b", "no root\n\there").expect("written");
    record(&file, "a::c", "no BPF").expect("written");
    let text = fs::read_to_string(&file).expect("a file");
    fs::remove_file(&file).expect("removed");
    assert_eq!(text, "a::b\tno root  here\na::c\tno BPF\n");
}
