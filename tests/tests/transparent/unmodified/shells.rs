//! ssh and scp; iperf3.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::{CLIENTS, stage};
use crate::programs::{are_here, path, pattern, text};
use crate::stage::until;

#[test]
fn ssh_logs_in_by_key_and_scp_copies() {
    if !are_here(&["sshd", "ssh", "scp", "ssh-keygen", "cmp"]) {
        return;
    }
    let Some(stage) = stage() else { return };
    // Given a server that accepts one key …
    let folder = stage.folder().join("ssh");
    fs::create_dir(&folder).expect("a folder");
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).expect("permissions");
    for key in ["host", "login"] {
        let file = text(&folder.join(key));
        let argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", &file];
        stage.says("ssh", &argv);
    }
    let shown = folder.display();
    let settings = format!(
        "HostKey {shown}/host
AuthorizedKeysFile {shown}/login.pub
StrictModes no
PermitRootLogin yes
UsePAM no
UseDNS no
PidFile none
Subsystem sftp internal-sftp
"
    );
    fs::write(folder.join("settings"), settings).expect("settings");
    // … and a folder that it requires, in a mount namespace of the pod.
    let script = format!(
        "mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec {} -D -e -f {shown}/settings",
        path("sshd")
    );
    let _sshd = stage.serve("ssh", 22, &["sh", "-c", &script]);
    fs::write(folder.join("large"), pattern(5_000_000)).expect("a file");
    let key = text(&folder.join("login"));
    let known = format!("UserKnownHostsFile={shown}/known");
    let options = [
        "-F",
        "none",
        "-i",
        &key,
        "-o",
        &known,
        "-o",
        "LogLevel=ERROR",
    ];
    let more = [
        "-o",
        "StrictHostKeyChecking=accept-new",
        "-o",
        "BatchMode=yes",
    ];
    let options = [&options[..], &more].concat();
    for client in CLIENTS {
        // When a user logs in and runs a command, then the command runs in the server's pod.
        stage.is_carried(client, "ssh", || {
            let argv = [&["ssh"], &options[..], &["root@ssh", "hostname"]].concat();
            assert_eq!(stage.says(client, &argv), "ssh\n");
        });
        // Within a node the server sees the client's own address.
        if client == "near" {
            let seen = [
                &["ssh", "-4"],
                &options[..],
                &["root@ssh", "echo $SSH_CONNECTION"],
            ]
            .concat();
            let seen = stage.says(client, &seen);
            let expected = format!("{} ", stage.address(client));
            assert!(seen.starts_with(&expected), "{client}: {seen}");
        }
        // Files are copied completely, in both directions.
        stage.is_carried(client, "ssh", || {
            let (file, copy) = (format!("{shown}/large"), format!("{shown}/{client}"));
            let (there, back) = (format!("root@ssh:{copy}"), format!("{copy}.back"));
            for (from, to) in [(&file, &there), (&there, &back)] {
                let argv = [&["scp", "-q"], &options[..], &[from, to]].concat();
                stage.says(client, &argv);
            }
            stage.says(client, &["cmp", &file, &back]);
        });
    }
}

#[test]
fn iperf_measures_both_directions_and_every_byte_is_counted() {
    if !are_here(&["iperf3"]) {
        return;
    }
    let Some(stage) = stage() else { return };
    let _iperf = stage.serve("iperf", 5201, &["iperf3", "-s"]);
    for client in CLIENTS {
        for direction in [&[][..], &["-R"]] {
            let counted = || {
                let node = stage.node_of(client);
                stage.counters(node).carried(client, "iperf")
            };
            let before = counted();
            let mut said = String::new();
            stage.is_carried(client, "iperf", || {
                let argv = ["iperf3", "-c", "iperf", "-t", "1", "-J"];
                said = stage.says(client, &[&argv[..], direction].concat());
            });
            let arrived = arrived(&said).unwrap_or_else(|| panic!("{client}: {said}"));
            assert!(
                arrived > 1_000_000,
                "{client} {direction:?}: {arrived} bytes"
            );
            // The received bytes were carried in that direction; some more may have been in flight.
            until("the bytes are counted", || {
                let after = counted();
                let carried = match direction {
                    [] => after.received - before.received,
                    _ => after.sent - before.sent,
                };
                carried >= arrived
            });
        }
    }
}

/// The bytes received: `end.sum_received.bytes` of iperf3's output.
fn arrived(json: &str) -> Option<u64> {
    let (_, received) = json.split_once("\"sum_received\"")?;
    let (_, bytes) = received.split_once("\"bytes\":")?;
    let digits = bytes.trim_start().split(|c: char| !c.is_ascii_digit());
    digits.into_iter().next()?.parse().ok()
}
