//! A state folder on a disk that is full or read-only, and one that is not as it should be.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change,
    mount_remount, unmount,
};

use super::*;

/// A mount at a folder, removed at the end.
struct Mounted(PathBuf);

impl Mounted {
    /// A disk of 64 KiB; `None`, reported, where this process may not mount one.
    fn small(at: &Path) -> Option<Mounted> {
        fs::create_dir_all(at).expect("made");
        let made = mount(
            "none",
            at,
            "tmpfs",
            MountFlags::empty(),
            c"size=64k,mode=700",
        );
        made.map_err(|error| skipped(&format!("no mount: {error}")))
            .ok()?;
        Some(Mounted(at.to_owned()))
    }

    /// The folder itself, which can only be read.
    fn read_only(at: &Path) -> Option<Mounted> {
        let made = mount_bind(at, at);
        made.map_err(|error| skipped(&format!("no mount: {error}")))
            .ok()?;
        let mounted = Mounted(at.to_owned());
        mount_change(at, MountPropagationFlags::PRIVATE).expect("changed");
        mount_remount(at, MountFlags::BIND | MountFlags::RDONLY, "").expect("read-only");
        Some(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _gone = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// Given an agent whose disk is full, when a pod is to be changed, then status names the journal as the reason, nothing is
/// changed, and the change is made once there is room.
#[test]
fn a_full_disk_is_told_and_leaves_no_half_a_file() {
    let Some(groups) = Groups::new("full", &["batch", "web"]) else {
        return;
    };
    let Some(_disk) = Mounted::small(&groups.state()) else {
        return;
    };
    groups.manifest("web", "heddle.dev/class: online");
    let mut agent = groups.start(&[]);
    let said = groups.state().join("remarks");
    eventually("it runs, and has said so", || {
        groups.ask("status").0 == Some(0) && said.exists()
    });
    let filler = groups.state().join("filler");
    let mut file = fs::File::create(&filler).expect("made");
    while file.write(&[0; 4_096]).is_ok() {}
    groups.manifest("batch", OFFLINE);
    let journal = groups.state().join("journal");
    let why = format!(
        "not done: cpu-share of {}/batch: it cannot be set: the journal {}: No space left on device",
        groups.name,
        journal.display()
    );
    eventually("the journal is named", || {
        groups.ask("status").1.contains(&why)
    });
    assert_eq!(groups.read("batch", "cpu.idle"), "0");
    assert!(!groups.state().join("remarks.next").exists());
    signal(&agent, Signal::TERM);
    assert_eq!(agent.wait().expect("ended").code(), Some(0));
    let (code, said) = groups.ask("restore");
    assert_eq!(code, Some(0), "{said}");

    fs::remove_file(&filler).expect("removed");
    let mut agent = groups.start(&[]);
    eventually("the batch pod yields", || {
        groups.read("batch", "cpu.idle") == "1"
    });
    signal(&agent, Signal::TERM);
    assert_eq!(agent.wait().expect("ended").code(), Some(0));
}

#[test]
fn a_folder_that_can_only_be_read_still_says_what_to_put_back() {
    let Some(groups) = operator::killed("readonly") else {
        return;
    };
    {
        let Some(_disk) = Mounted::read_only(&groups.state()) else {
            return;
        };
        let refused = groups.start(&[]).wait().expect("ended");
        assert_eq!(refused.code(), Some(1), "no change without a journal");
        let (code, said) = groups.ask("restore");
        assert_eq!(code, Some(1), "{said}");
        for part in ["2 settings put back", "the journals still say", "Read-only"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(groups.read("batch", "cpu.idle"), "0");
    }
    assert_eq!(groups.ask("restore").0, Some(0));
    assert_eq!(groups.ask("status").0, Some(4));
    let Some(_disk) = Mounted::read_only(&groups.state()) else {
        return;
    };
    let (code, said) = groups.ask("restore");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("nothing is changed"), "{said}");
}

#[test]
fn a_folder_that_is_not_as_it_should_be_is_named_with_a_remedy() {
    let Some(groups) = Groups::new("wrong", &["batch"]) else {
        return;
    };
    groups.manifest("batch", OFFLINE);
    let state = groups.state();
    let run = |state: &Path| {
        let folder = groups.folder.manifests();
        let output = heddle(&["qos", "run", as_str(&folder), "--state", as_str(state)]);
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    let assert_says = |said: &str, parts: &[&str]| {
        for part in parts {
            assert!(said.contains(part), "{part}: {said}");
        }
    };
    fs::write(&state, "").expect("written");
    assert_says(&run(&state), &["qos is a file", "name another by --state"]);
    fs::remove_file(&state).expect("removed");
    fs::create_dir_all(state.join("lock")).expect("made");
    assert_says(&run(&state), &["qos/lock: it is no file: move it away"]);
    fs::remove_dir(state.join("lock")).expect("removed");
    fs::write(state.join("journal"), "garbage\n").expect("written");
    assert_says(
        &run(&state),
        &["qos/journal: ", "move the file away to go on"],
    );
    fs::remove_file(state.join("journal")).expect("removed");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).expect("set");
    let said = run(&state);
    assert_says(&said, &["other users can write to ", "chmod 0700"]);
    assert!(!said.contains("needs root"), "{said}");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).expect("set");
    let link = groups.folder.path("link");
    std::os::unix::fs::symlink(&state, &link).expect("made");
    assert_says(&run(&link), &["link is a symbolic link"]);
    assert_says(&run(&link.join("")), &["link is a symbolic link"]);
}
