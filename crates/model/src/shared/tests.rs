//! Tests of sharing.

use super::Shared;

#[test]
fn a_clone_is_the_same_object_until_it_is_written() {
    let one = Shared::from(vec![1, 2]);
    let mut other = one.clone();
    assert!(Shared::is_same(&one, &other));
    other.push(3);
    assert!(!Shared::is_same(&one, &other));
    assert_eq!((one.len(), other.len()), (2, 3), "the first is not written");
}

#[test]
fn what_nothing_else_has_is_written_in_place() {
    let mut one = Shared::from(vec![1, 2]);
    let at = std::ptr::from_ref::<Vec<i32>>(&one);
    one.push(3);
    assert_eq!(at, std::ptr::from_ref::<Vec<i32>>(&one));
}

#[test]
fn equal_content_is_equal_wherever_it_is() {
    let (one, other) = (Shared::from("a".to_owned()), Shared::from("a".to_owned()));
    assert!(!Shared::is_same(&one, &other));
    assert_eq!(one, other);
    assert_ne!(one, Shared::from("b".to_owned()));
}

#[test]
fn its_json_is_that_of_the_value() {
    let text = serde_json::to_string(&Shared::from(7)).unwrap();
    assert_eq!(text, "7");
    assert_eq!(
        serde_json::from_str::<Shared<i32>>(&text).unwrap(),
        Shared::from(7)
    );
}
