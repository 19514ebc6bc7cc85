use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use super::{read, replace};

#[test]
fn what_somebody_else_could_have_written_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.pods.json");
    replace(&path, b"[]").unwrap();
    assert_eq!(read(&path).unwrap(), []);
    fs::set_permissions(&path, Permissions::from_mode(0o622)).unwrap();
    assert!(
        read(&path)
            .unwrap_err()
            .to_string()
            .contains("somebody else")
    );
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let link = folder.path().join("link.pods.json");
    symlink(&path, &link).unwrap();
    read(&link).unwrap_err();
}

#[test]
fn nothing_is_written_through_what_lies_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.pods.json");
    let secret = folder.path().join("shadow");
    fs::write(&secret, "of root").unwrap();
    symlink(&secret, folder.path().join("node.pods.json.next")).unwrap();
    replace(&path, b"[]").unwrap();
    assert_eq!(fs::read(&secret).unwrap(), b"of root");
    assert_eq!(read(&path).unwrap(), []);
}
