use super::*;

#[test]
fn parts_are_named_once_and_only_known_ones_are_taken() {
    let mut names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), PARTS.len());
    let only = |names: &[&str]| {
        let only = names.iter().map(|name| (*name).to_owned()).collect();
        ResultsOptions {
            only,
            again: false,
            draft: false,
            quick: false,
            render: false,
            programs: None,
        }
    };
    assert_eq!(only(&[]).parts().unwrap().len(), PARTS.len());
    assert_eq!(only(&["link"]).parts().unwrap()[0].name, "link");
    assert!(only(&["links"]).parts().is_err());
    let minutes: u32 = PARTS.iter().map(|part| part.minutes).sum();
    assert!(minutes <= 300, "all parts together take {minutes} minutes");
}
