use super::*;

#[test]
fn what_cannot_be_written_is_named_as_it_would_be_called() {
    let above = tempfile::tempdir().unwrap();
    let path = above.path().join("state");
    let folder = Folder::open(&path).unwrap();
    // Nothing can be made in a folder that is gone, by root neither.
    std::fs::remove_dir(&path).unwrap();
    let said = folder.write("trust.json", b"{}").unwrap_err().to_string();
    let expected = format!(
        "{}: cannot make the file",
        path.join("trust.json").display()
    );
    assert!(said.starts_with(&expected), "{said}");
}
