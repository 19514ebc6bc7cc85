//! Servers that grant some client addresses more than others: Dovecot, Postfix, MariaDB.
//!
//! Each grants more to its own machine, so each test checks both that a local client is trusted and that a remote one
//! is not: a client seen with the address of the server's own pod would gain privileges.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;

use heddle_lab::lab::Family::{self, V4, V6};

use super::{powerless, stage};
use crate::programs::{Serving, are_here, path, text};
use crate::stage::{Stage, until};

/// Callers with their address family, and the address that the server sees: within a node the client's own.
fn callers(stage: &Stage, server: &str) -> Vec<(&'static str, Family, IpAddr)> {
    let node = stage.address_of_node(server, V4);
    vec![
        ("near", V4, stage.address_of("near", V4)),
        ("near", V6, stage.address_of("near", V6)),
        ("near6", V6, stage.address_of("near6", V6)),
        ("far", V4, node),
        ("far", V6, node),
        ("far6", V6, node),
    ]
}

/// A folder for a server, accessible to other users.
fn folder(stage: &Stage, name: &str) -> PathBuf {
    let folder = stage.folder().join(name);
    fs::create_dir(&folder).expect("a folder");
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).expect("permissions");
    folder
}

fn url(scheme: &str, stage: &Stage, server: &str, family: Family, port: u16) -> String {
    let at = SocketAddr::new(stage.cluster_address(server, family), port);
    format!("{scheme}://{at}/")
}

/// Waits until a server has logged a text.
fn until_logged(file: &std::path::Path, what: &str) {
    until(&format!("it is logged: {what}"), || {
        fs::read_to_string(file).is_ok_and(|log| log.contains(what))
    });
}

#[test]
fn dovecot_takes_passwords_in_the_clear_from_its_own_machine_only() {
    if !are_here(&["dovecot", "curl"]) {
        return;
    }
    let Some(stage) = stage() else { return };
    let folder = folder(&stage, "dovecot");
    let settings = folder.join("dovecot.conf");
    let at = text(&folder);
    let written = format!(
        "protocols = imap
listen = *, ::
base_dir = {at}/run
state_dir = {at}/state
log_path = {at}/log
ssl = no
disable_plaintext_auth = yes
mail_location = maildir:{at}/mail
first_valid_uid = 1
passdb {{
  driver = static
  args = password=secret
}}
userdb {{
  driver = static
  args = uid=nobody gid=nogroup home={at}/mail
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = 143
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service anvil {{
  chroot =
}}
service stats {{
  chroot =
}}
"
    );
    fs::write(&settings, written).expect("settings");
    let mail = folder.join("mail");
    fs::create_dir(&mail).expect("a folder");
    let (user, group) = (65_534, 65_534);
    chown(&mail, Some(user), Some(group)).expect("its own");
    let program = path("dovecot");
    let _dovecot = stage.serve("imap", 143, &[&program, "-F", "-c", &text(&settings)]);
    let log = folder.join("log");
    let login = |client: &str, url: &str| {
        let argv = ["curl", "-sS", "-m", "8", "-u", "user:secret", url];
        stage.run(client, &argv).status.success()
    };
    // A client in the same pod may …
    assert!(login("imap", "imap://127.0.0.1/"), "a login on loopback");
    until_logged(&log, "rip=127.0.0.1");
    // … but no client through the mesh may, and the server sees the expected address of each.
    for (client, family, seen) in callers(&stage, "imap") {
        let url = url("imap", &stage, "imap", family, 143);
        assert!(!login(client, &url), "{client} by {family:?} logs in");
        until_logged(&log, &format!("rip={seen}, "));
    }
    let log = fs::read_to_string(&log).expect("a log");
    assert_eq!(log.matches("Login: ").count(), 1, "{log}");
}

#[test]
fn postfix_relays_for_its_own_machine_and_for_no_other() {
    if !are_here(&["postfix", "curl"]) {
        return;
    }
    let Some(stage) = stage() else { return };
    let folder = folder(&stage, "postfix");
    let at = text(&folder);
    let near = stage.address_of("near", V6);
    for inner in ["conf", "queue", "data"] {
        fs::create_dir(folder.join(inner)).expect("a folder");
    }
    let (user, group) = account("postfix");
    chown(folder.join("data"), Some(user), Some(group)).expect("its own");
    // `host` is Debian's default: it trusts only addresses of the machine itself.
    let main = format!(
        "compatibility_level = 3.6
queue_directory = {at}/queue
data_directory = {at}/data
maillog_file = {at}/log
maillog_file_prefixes = {at}
mynetworks_style = host
inet_protocols = all
mydestination =
myhostname = mail.example
alias_maps =
local_recipient_maps =
disable_dns_lookups = yes
smtpd_peername_lookup = no
smtpd_relay_restrictions = permit_mynetworks, check_client_access inline:{{{{{near} = OK}}}}, \
 reject_unauth_destination
default_transport = discard
"
    );
    let master = "smtp inet n - n - - smtpd
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
discard unix - - n - - discard
anvil unix - - n - 1 anvil
postlog unix-dgram n - n - 1 postlogd
";
    let settings = folder.join("conf");
    fs::write(settings.join("main.cf"), main).expect("settings");
    fs::write(settings.join("master.cf"), master).expect("settings");
    let settings = text(&settings);
    // Creates Postfix's folders.
    stage.says("smtp", &[&path("postfix"), "-c", &settings, "check"]);
    let program = "/usr/lib/postfix/sbin/master";
    let _postfix: Serving = stage.serve("smtp", 25, &[program, "-c", &settings, "-d"]);
    let letter = folder.join("letter");
    fs::write(&letter, "subject: news\n\nnone\n").expect("a letter");
    let send = |client: &str, url: &str| {
        let mut argv = vec!["curl", "-sS", "-m", "8", url];
        argv.extend(["--mail-from", "here@mail.example"]);
        let letter = text(&letter);
        argv.extend(["--mail-rcpt", "there@else.example", "-T", &letter]);
        stage.run(client, &argv).status.success()
    };
    let log = folder.join("log");
    assert!(send("smtp", "smtp://127.0.0.1/"), "from the machine itself");
    until_logged(&log, "client=unknown[127.0.0.1]");
    for (client, family, seen) in callers(&stage, "smtp") {
        let url = url("smtp", &stage, "smtp", family, 25);
        // Only one address is trusted explicitly.
        let is_relayed = send(client, &url);
        assert_eq!(is_relayed, seen == near, "{client} by {family:?}");
        until_logged(&log, &format!(" connect from unknown[{seen}]"));
    }
}

#[test]
fn mariadb_grants_to_hosts_what_others_do_not_get() {
    if !are_here(&["mariadbd", "mariadb", "mariadb-install-db", "setpriv"]) {
        return;
    }
    let Some(stage) = stage() else { return };
    let folder = folder(&stage, "mariadb");
    let (user, group) = powerless();
    chown(&folder, Some(user), Some(group)).expect("its own");
    let (user, group) = (user.to_string(), group.to_string());
    let mut powerless = vec!["setpriv", "--reuid", &user, "--regid", &group];
    powerless.push("--clear-groups");
    let data = format!("--datadir={}/data", folder.display());
    let few = [&data, "--innodb=OFF", "--default-storage-engine=Aria"];
    let mut install = vec!["mariadb-install-db", "--no-defaults", "--skip-test-db"];
    install.extend(["--auth-root-authentication-method=normal"]);
    stage.says("mariadb", &[&powerless[..], &install, &few].concat());
    // One user for each client address, and one for the machine itself.
    let (first, second) = (stage.address_of("near", V4), stage.address_of("near", V6));
    let own = [
        stage.address_of("mariadb", V4),
        stage.address_of("mariadb", V6),
    ];
    let grants = format!(
        "create user any@'%';
create user first@'{first}';
create user second@'{second}';
create user own@'{}';
create user own@'{}';
create user own@'127.0.0.1';
",
        own[0], own[1]
    );
    let grants_file = folder.join("grants.sql");
    fs::write(&grants_file, grants).expect("grants");
    let program = path("mariadbd");
    let socket = format!("--socket={}/socket", folder.display());
    let grants = format!("--init-file={}", grants_file.display());
    let mut argv = vec![program.as_str(), "--no-defaults", "--skip-name-resolve"];
    argv.extend(["--bind-address=*", "--port=3306", &socket, &grants]);
    let _mariadb = stage.serve("mariadb", 3306, &[&powerless[..], &argv, &few].concat());
    let ask = |client: &str, user: &str, host: &str| {
        let mut argv = vec!["mariadb", "--no-defaults", "--protocol=tcp", "-h", host];
        argv.extend(["-u", user, "-N", "-e", "select user()"]);
        let output = stage.run(client, &argv);
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(said)
    };
    assert!(ask("mariadb", "own", "127.0.0.1").is_some());
    for (client, family, seen) in callers(&stage, "mariadb") {
        let host = stage.cluster_address("mariadb", family).to_string();
        let user = ask(client, "any", &host);
        assert_eq!(user, Some(format!("any@{seen}")), "{client} by {family:?}");
        for (user, address) in [("first", first), ("second", second)] {
            let is_let_in = ask(client, user, &host).is_some();
            assert_eq!(
                is_let_in,
                seen == address,
                "{client} by {family:?} as {user}"
            );
        }
        let is_own = ask(client, "own", &host);
        assert_eq!(is_own, None, "{client} by {family:?} as the machine itself");
    }
}

/// The ids of a user and its group on this machine.
fn account(name: &str) -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").expect("users");
    let line = users
        .lines()
        .find(|line| line.split(':').next() == Some(name));
    let fields: Vec<&str> = line.expect(name).split(':').collect();
    let number = |at: usize| fields[at].parse().expect("a number");
    (number(2), number(3))
}
