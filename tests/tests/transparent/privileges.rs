//! Limits what a compromised proxy can do: it has no privileges of root or of an operator.

use std::fs::{self, File, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use heddle_intercept::request::{self, Request};
use rustix::fs::OFlags;
use rustix::process::{Gid, Pid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::deaths::{holder, kill_both, proxy_of};
use crate::programs::text;
use crate::stage::{Scene, Stage, until};

/// The values on a line of `/proc/PID/status` (proc(5)).
fn status(pid: Pid, field: &str) -> Vec<String> {
    let path = format!("/proc/{}/status", pid.as_raw_nonzero());
    let status = fs::read_to_string(path).expect("a process");
    let lines = status.lines();
    let mut values = lines.filter_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let value = values.next().unwrap_or_default();
    value.split_whitespace().map(str::to_owned).collect()
}

/// Checks that a proxy has no privilege; returns its user and group.
fn unprivileged(proxy: Pid) -> (u32, u32) {
    let id = |field: &str| {
        let ids = status(proxy, field);
        assert_eq!(ids.len(), 4, "{field}: {ids:?}");
        assert!(ids.iter().all(|id| *id == ids[0]), "{field}: {ids:?}");
        ids[0].parse::<u32>().expect("a number")
    };
    let (uid, gid) = (id("Uid"), id("Gid"));
    assert!(uid != 0 && gid != 0, "{uid}:{gid}");
    assert!(status(proxy, "Groups").is_empty());
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(status(proxy, set), ["0000000000000000"], "{set}");
    }
    assert_eq!(status(proxy, "NoNewPrivs"), ["1"]);
    // Every thread has a seccomp filter.
    let tasks = fs::read_dir(format!("/proc/{}/task", proxy.as_raw_nonzero()));
    for task in tasks.expect("its threads").flatten() {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        // The file of a thread that has just ended is empty.
        assert!(
            status.is_empty() || status.contains("\nSeccomp:\t2\n"),
            "{status}"
        );
    }
    (uid, gid)
}

fn state(stage: &Stage) -> PathBuf {
    stage.node("one").admin_socket().with_file_name("state")
}

/// Every path in a node's state folder, and the folder itself.
fn everything(folder: &Path) -> Vec<PathBuf> {
    let within = |folder: &Path| {
        let entries = fs::read_dir(folder).expect("a folder").flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let mut all = within(folder);
    all.extend(within(&folder.join("leaves")));
    all.push(folder.to_owned());
    all
}

fn owner(path: &Path) -> (u32, u32) {
    let found = fs::symlink_metadata(path).expect("a file");
    (found.uid(), found.gid())
}

#[test]
fn a_proxy_has_no_privilege_and_owns_nothing_but_the_state_of_its_node() {
    let Some(stage) = Scene::default().pod("server", "one").up() else {
        return;
    };
    // Given a node that was started by root …
    let holder = holder(&stage);
    let proxy = proxy_of(holder).expect("a proxy");
    assert_eq!(status(holder, "Uid"), ["0", "0", "0", "0"]);
    // … then its proxy has no privilege, and the state folder is the proxy's …
    let (uid, gid) = unprivileged(proxy);
    for path in everything(&state(&stage)) {
        assert_eq!(owner(&path), (uid, gid), "{}", path.display());
    }
    // … but the file with the holder's own state is not.
    let memory = state(&stage).with_extension("pods.json");
    assert_eq!(owner(&memory), (0, 0));
    assert_eq!(fs::metadata(&memory).expect("a file").mode() & 0o777, 0o600);
    // Root still gets answers, from the holder and from the proxy …
    let socket = stage.node("one").admin_socket();
    for command in ["status", "check"] {
        let said = stage.heddle(&[command, "--socket", &text(&socket)]);
        assert!(said.is_ok(), "{command}: {said:?}");
    }
    let asks = stage.node("one").holder_socket();
    request::ask(&asks, &Request::List, None).expect("root may ask");
    // … but cannot enroll the network of the machine itself …
    let machine = ["/proc/self/ns/net", "--holder-socket", &text(&asks)];
    let enroll = [&["enroll", "shop/machine", "--netns"][..], &machine].concat();
    let why = stage.heddle(&enroll).expect_err("that is no pod");
    assert!(why.contains("is the network of the machine"), "{why}");
    // … and the holder refuses the proxy's user, even if socket and folder were open to all.
    fs::set_permissions(&asks, Permissions::from_mode(0o666)).expect("permissions");
    let flags = OFlags::PATH.bits().cast_signed();
    let reached = File::options().read(true).custom_flags(flags).open(&asks);
    let reached = reached.expect("the socket's place");
    let path = PathBuf::from(format!("/proc/self/fd/{}", reached.as_raw_fd()));
    let asked = std::thread::spawn(move || {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        // Changes only this thread, which ends here.
        set_thread_groups(&[]).expect("no groups");
        set_thread_res_gid(gid, gid, gid).expect("its group");
        set_thread_res_uid(uid, uid, uid).expect("its user");
        request::ask(&path, &Request::List, None)
    });
    let why = asked.join().expect("it ends").expect_err("refused");
    assert!(why.to_string().contains("never the proxy's user"), "{why}");
}

#[test]
fn a_node_goes_on_with_the_state_of_a_proxy_that_was_root() {
    let Some(stage) = Scene::default().pod("server", "one").up() else {
        return;
    };
    let _server = stage.answer("server", 80);
    // Given a state folder that was written by root, as by proxies of earlier versions …
    let killed = kill_both(&stage);
    for path in everything(&state(&stage)) {
        chown(&path, Some(0), Some(0)).expect("chown");
    }
    // … when the node is started again …
    let again = killed.start(&stage);
    // … then it continues with that state; it cannot join again, since its token is used up.
    stage.until_served("server");
    let proxies = || {
        let all = fs::read_dir("/proc").expect("processes").flatten();
        let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let pids = numbers.filter_map(Pid::from_raw);
        let state = text(&state(&stage));
        let is_ours = |pid: &Pid| {
            let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()));
            let line = line.map(|line| String::from_utf8_lossy(&line).into_owned());
            line.is_ok_and(|line| {
                let mut words = line.split('\0');
                words.clone().any(|word| word == "--held") && words.any(|word| word == state)
            })
        };
        pids.filter(is_ours).collect::<Vec<_>>()
    };
    until("there is one proxy", || proxies().len() == 1);
    let user = unprivileged(proxies()[0]);
    for path in everything(&state(&stage)) {
        assert_eq!(owner(&path), user, "{}", path.display());
    }
    drop(again);
}
