use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

use super::{NotGiven, give};
use crate::hold::user::User;

const USER: User = User {
    uid: 65_521,
    gid: 65_522,
};

/// A folder as left by a node that ran as root. `None`, with a message, where the test cannot give it to a user.
fn left_by_root() -> Option<(tempfile::TempDir, PathBuf)> {
    if !geteuid().is_root() {
        heddle_skips::skipped("only root gives away what it has");
        return None;
    }
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("node");
    let private = |path: &Path| DirBuilder::new().mode(0o700).create(path).unwrap();
    private(&folder);
    private(&folder.join("leaves"));
    for file in ["lock", "node.leaf", "floor", "leaves/0a.leaf", "token"] {
        fs::write(folder.join(file), file).unwrap();
    }
    Some((above, folder))
}

fn owner(path: &Path) -> (u32, u32) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.uid(), found.gid())
}

fn refused(folder: &Path) -> String {
    give(folder, USER).unwrap_err().to_string()
}

#[test]
fn the_folder_of_an_authority_is_not_given() {
    let Some((_above, folder)) = left_by_root() else {
        return;
    };
    fs::write(folder.join("state.json"), "{}").unwrap();
    let why = refused(&folder);
    assert!(
        why.contains("state.json: a control plane keeps its authority in this folder"),
        "{why}"
    );
    assert_eq!(owner(&folder), (0, 0));
}

#[test]
fn what_a_node_has_written_is_given_and_nothing_else() {
    let Some((above, folder)) = left_by_root() else {
        return;
    };
    // A second time changes nothing.
    for _ in 0..2 {
        give(&folder, USER).unwrap();
        for given in ["", "lock", "node.leaf", "floor", "leaves", "leaves/0a.leaf"] {
            assert_eq!(owner(&folder.join(given)), (USER.uid, USER.gid), "{given}");
        }
        assert_eq!(owner(&folder.join("token")), (0, 0));
        assert_eq!(owner(above.path()), (0, 0));
    }
    // From the reserved user id, which was used before there was a named user, to another user.
    let reserved = User {
        uid: super::RESERVED,
        gid: super::RESERVED,
    };
    let second = above.path().join("second");
    give(&second, reserved).unwrap();
    assert_eq!(owner(&second), (reserved.uid, reserved.gid));
    assert_eq!(fs::metadata(&second).unwrap().mode() & 0o777, 0o700);
    give(&second, USER).unwrap();
    assert_eq!(owner(&second), (USER.uid, USER.gid));
}

#[test]
fn what_a_hostile_proxy_has_put_there_is_refused() {
    let Some((above, folder)) = left_by_root() else {
        return;
    };
    let secret = above.path().join("shadow");
    fs::write(&secret, "of root").unwrap();
    let mesh = folder.join("mesh.json");
    symlink(&secret, &mesh).unwrap();
    assert!(refused(&folder).contains("mesh.json: it is no plain file"));
    fs::remove_file(&mesh).unwrap();
    fs::hard_link(&secret, &mesh).unwrap();
    assert!(refused(&folder).contains("mesh.json: it is no plain file"));
    fs::remove_file(&mesh).unwrap();
    let leaves = folder.join("leaves");
    fs::remove_dir_all(&leaves).unwrap();
    symlink(above.path(), &leaves).unwrap();
    assert!(refused(&folder).contains("leaves: it is no folder itself"));
    assert_eq!(owner(&secret), (0, 0));
    assert_eq!(owner(above.path()), (0, 0));
}

#[test]
fn a_folder_that_is_none_of_a_nodes_is_left_alone() {
    let Some((above, folder)) = left_by_root() else {
        return;
    };
    let link = above.path().join("link");
    symlink(&folder, &link).unwrap();
    assert!(refused(&link).contains("link: it is no folder itself"));
    assert!(refused(Path::new("/")).contains("--state"));
    // A folder without a lock is not a node's.
    let home = above.path().join("home");
    DirBuilder::new().mode(0o700).create(&home).unwrap();
    fs::write(home.join("floor"), "plan").unwrap();
    assert!(refused(&home).contains("no state folder of a node"));
    assert_eq!(owner(&home), (0, 0));
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o750)).unwrap();
    assert!(refused(&folder).contains("0750"));
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&folder, Some(1), None).unwrap();
    assert!(refused(&folder).contains("belongs to user 1, the proxy runs as user 65521:65522"));
    std::os::unix::fs::chown(&folder, Some(0), None).unwrap();
    // Nor is a folder that the proxy could replace.
    fs::set_permissions(above.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(refused(&folder).contains("can be written by it"));
    fs::set_permissions(above.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    give(&folder, USER).unwrap();
    std::os::unix::fs::chown(above.path(), Some(USER.uid), None).unwrap();
    assert!(refused(&folder).contains("belongs to it"));
}

#[test]
fn a_node_that_works_with_it_keeps_it() {
    let Some((_above, folder)) = left_by_root() else {
        return;
    };
    let lock = fs::File::open(folder.join("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    assert!(matches!(give(&folder, USER), Err(NotGiven::Busy(_))));
    assert_eq!(owner(&folder), (0, 0));
}
