//! Which owners and modes are accepted for the folder of the guard.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use heddle_intercept::hooks::{Hooks, Kind, uninstall};

use crate::stage::on_stage;

#[test]
fn a_guard_is_kept_only_where_no_other_user_can_touch_it() {
    on_stage(|stage| {
        let folder = stage.bpffs();
        let above = folder.parent().unwrap();
        let elsewhere = above.join("elsewhere");
        let mode =
            |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        // Both installing and removing hooks fail, and nothing is created in the folder.
        let refused = |said: &str| {
            let hooks = Hooks::open(&stage.options(Kind::Bpf)).unwrap_err();
            for why in [hooks, uninstall(&folder).unwrap_err()] {
                let why = why.to_string();
                assert!(why.contains(said) && why.contains("--bpffs"), "{why}");
            }
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        };
        fs::create_dir(&folder).unwrap();
        mode(&folder, 0o770);
        refused("can be written by others");
        mode(&folder, 0o707);
        refused("can be written by others");
        mode(&folder, 0o700);
        chown(&folder, Some(65_521), None).unwrap();
        refused("belongs to user 65521");
        chown(&folder, Some(0), None).unwrap();
        let before = fs::metadata(above).unwrap().mode() & 0o7777;
        mode(above, 0o777);
        refused("can be written by others");
        mode(above, before);
        fs::rename(&folder, &elsewhere).unwrap();
        symlink(&elsewhere, &folder).unwrap();
        refused("is a symbolic link");
        fs::remove_file(&folder).unwrap();
        fs::remove_dir(&elsewhere).unwrap();
        // A folder that we create is accessible only to us.
        let hooks = Hooks::open(&stage.options(Kind::Bpf)).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o7777, 0o700);
        drop(hooks);
        uninstall(&folder).unwrap();
    });
}
