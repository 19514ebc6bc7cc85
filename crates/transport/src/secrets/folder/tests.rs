use super::*;

#[test]
fn what_cannot_be_written_is_named_as_it_would_be_called() {
    let above = tempfile::tempdir().unwrap();
    let path = above.path().join("state");
    let folder = Folder::open(&path).unwrap();
    // Even root cannot create a file in a folder that was removed.
    std::fs::remove_dir(&path).unwrap();
    let said = folder.write("trust.json", b"{}").unwrap_err().to_string();
    let expected = format!(
        "{}: cannot make the file",
        path.join("trust.json").display()
    );
    assert!(said.starts_with(&expected), "{said}");
}
