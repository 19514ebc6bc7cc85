//! FTP, which opens a data connection for each transfer, to a negotiated port.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};

use heddle_lab::lab::Family::{V4, V6};

use super::{CLIENTS, FTP_DATA, stage};
use crate::programs::{are_here, path, pattern, text};
use crate::stage::until;

#[test]
fn ftp_works_by_a_headless_service_that_declares_its_passive_ports() {
    if !are_here(&["vsftpd", "curl"]) {
        return;
    }
    let Some(stage) = stage() else { return };
    // Given a server that limits its data connections to the ports declared by a headless Service …
    let folder = stage.folder().join("ftp");
    let upload = folder.join("root/upload");
    fs::create_dir_all(&upload).expect("a folder");
    fs::create_dir(folder.join("empty")).expect("a folder");
    for inner in ["", "root", "empty"] {
        let open = PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.join(inner), open).expect("permissions");
    }
    chown(&upload, Some(anonymous()), None).expect("its own");
    let bytes = pattern(300_000);
    fs::write(folder.join("root/file"), &bytes).expect("a file");
    let settings = folder.join("vsftpd.conf");
    let at = text(&folder);
    let (first, last) = (FTP_DATA[0], FTP_DATA[FTP_DATA.len() - 1]);
    let written = format!(
        "listen_ipv6=YES
listen=NO
background=NO
anonymous_enable=YES
no_anon_password=YES
local_enable=NO
write_enable=YES
anon_upload_enable=YES
anon_root={at}/root
secure_chroot_dir={at}/empty
pasv_min_port={first}
pasv_max_port={last}
seccomp_sandbox=NO
xferlog_enable=NO
"
    );
    fs::write(&settings, written).expect("settings");
    let _vsftpd = stage.serve("ftp", 21, &[&path("vsftpd"), &text(&settings)]);
    let sent = folder.join("sent");
    // The content may look like a request.
    let words = "GET / HTTP/1.1\r\nhost: ftp\r\n\r\n".repeat(2_000);
    fs::write(&sent, &words).expect("a file");
    let sent = text(&sent);
    for client in CLIENTS {
        // … when it is called by the Service's name, in extended passive mode, which is curl's default, and in passive
        // mode …
        let mut ways = vec![vec![]];
        if !client.ends_with('6') {
            ways.push(vec!["--disable-epsv", "-4"]);
        }
        for (number, way) in ways.iter().enumerate() {
            let got = folder.join(format!("got-{client}-{number}"));
            let got_at = text(&got);
            let get = ["curl", "-sS", "-m", "20", "-o", &got_at, "ftp://ftp/file"];
            let name = format!("{client}-{number}");
            let to = format!("ftp://ftp/upload/{name}");
            let put = ["curl", "-sS", "-m", "20", "-T", &sent, &to];
            stage.is_carried(client, "ftp", || {
                stage.says(client, &[&get[..], way].concat());
                stage.says(client, &[&put[..], way].concat());
            });
            // … then files are transferred completely in both directions.
            assert!(fs::read(&got).expect("a file") == bytes, "{client} {way:?}");
            let arrived = fs::read_to_string(upload.join(&name)).expect("a file");
            assert!(arrived == words, "{client} {way:?}");
        }
    }
    // In active mode the server dials the client, which has to name its own address; on another node the server
    // mistakes that for another client's address.
    let active = |client: &str, family| {
        let own = stage.address_of(client, family).to_string();
        let server = SocketAddr::new(stage.address_of("ftp", family), 21);
        let url = format!("ftp://{server}/file");
        let argv = [
            "curl",
            "-sS",
            "-m",
            "8",
            "-P",
            &own,
            "-o",
            "/dev/null",
            &url,
        ];
        stage.run(client, &argv).status.success()
    };
    assert!(
        active("near", V4) && active("near", V6),
        "active on one node"
    );
    assert!(!active("far", V4), "active from another node");
}

#[test]
fn a_port_that_was_agreed_upon_and_is_no_services_is_hinted_at() {
    let Some(stage) = stage() else { return };
    let other = stage.at("ftp", 45_678);
    let script = format!("exec 3<>/dev/tcp/{} && cat <&3", other.replace(':', "/"));
    stage.run("far", &["bash", "-c", &script]);
    until("the log of the caller's node says what to do", || {
        let log = stage.log("two");
        log.contains(&other) && log.contains("passive range")
    });
}

/// The id of the user as which vsftpd serves clients without a login.
fn anonymous() -> u32 {
    let users = fs::read_to_string("/etc/passwd").expect("users");
    let line = users.lines().find(|line| line.starts_with("ftp:"));
    let number = line.and_then(|line| line.split(':').nth(2));
    number.and_then(|number| number.parse().ok()).expect("ftp")
}
