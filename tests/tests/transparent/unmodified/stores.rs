//! Redis, memcached, PostgreSQL.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::chown;
use std::process::Stdio;

use super::{CLIENTS, powerless, stage};
use crate::programs::{are_here, path, text};
use crate::stage::until;

#[test]
fn redis_takes_commands_pipelines_and_subscribers() {
    if !are_here(&["redis-server", "redis-cli"]) {
        return;
    }
    let Some(stage) = stage() else { return };
    let folder = text(stage.folder());
    let mut argv = vec!["redis-server", "--port", "6379", "--bind", "*", "-::*"];
    argv.extend(["--protected-mode", "no", "--save", "", "--dir", &folder]);
    let _redis = stage.serve("redis", 6379, &argv);
    for client in CLIENTS {
        let redis = |words: &[&str]| {
            let argv = [&["redis-cli", "-h", "redis"], words].concat();
            stage.says(client, &argv).trim().to_owned()
        };
        // Single commands …
        stage.is_carried(client, "redis", || {
            assert_eq!(redis(&["set", client, "here"]), "OK");
            assert_eq!(redis(&["get", client]), "here");
        });
        // … five thousand in one batch …
        let commands: String = (0..5_000)
            .map(|number| format!("RPUSH list-{client} {number}\r\n"))
            .collect();
        let file = stage.folder().join(format!("pipeline-{client}"));
        fs::write(&file, commands).expect("a file");
        let script = format!("redis-cli -h redis --pipe < {}", file.display());
        let said = stage.says(client, &["sh", "-c", &script]);
        assert!(said.contains("errors: 0, replies: 5000"), "{said}");
        assert_eq!(redis(&["llen", &format!("list-{client}")]), "5000");
        // … and a subscriber that waits for a message.
        let mut listener = stage.pod(client).command("redis-cli").expect("a pod");
        let listener = listener.args(["-h", "redis", "subscribe", client]);
        let mut listener = listener
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-cli");
        until("a subscriber listens", || {
            redis(&["publish", client, "news"]) != "0"
        });
        let lines = BufReader::new(listener.stdout.take().expect("its output")).lines();
        let news = lines.map_while(Result::ok).find(|line| line == "news");
        assert_eq!(news.as_deref(), Some("news"));
        listener.kill().expect("killed");
        listener.wait().expect("it ends");
    }
}

#[test]
fn memcached_keeps_what_it_is_given() {
    if !are_here(&["memcached", "bash"]) {
        return;
    }
    let Some(stage) = stage() else { return };
    let argv = ["memcached", "-u", "nobody", "-p", "11211", "-m", "16"];
    let _memcached = stage.serve("memcached", 11211, &argv);
    for client in CLIENTS {
        let size = 500_000;
        let value: String = std::iter::repeat_n("0123456789", size / 10).collect();
        let file = stage.folder().join(format!("memcached-{client}"));
        let mut request = fs::File::create(&file).expect("a file");
        write!(
            request,
            "set {client} 0 0 {size}\r\n{value}\r\nget {client}\r\nquit\r\n"
        )
        .expect("a request");
        let script = format!(
            "exec 3<>/dev/tcp/memcached/11211 && cat {} >&3 && cat <&3",
            file.display()
        );
        stage.is_carried(client, "memcached", || {
            let said = stage.says(client, &["bash", "-c", &script]);
            let expected = format!("STORED\r\nVALUE {client} 0 {size}\r\n{value}\r\nEND\r\n");
            assert!(said == expected, "{client}: {} bytes", said.len());
        });
    }
}

#[test]
fn postgresql_takes_thousands_of_rows_and_gives_them_back() {
    if !are_here(&["initdb", "postgres", "psql", "setpriv"]) {
        return;
    }
    let Some(stage) = stage() else { return };
    // Given a database, which does not run as root …
    let folder = stage.folder().join("postgres");
    fs::create_dir(&folder).expect("a folder");
    let (user, group) = powerless();
    chown(&folder, Some(user), Some(group)).expect("its own");
    let (user, group) = (user.to_string(), group.to_string());
    let as_powerless = [
        "setpriv",
        "--reuid",
        &user,
        "--regid",
        &group,
        "--clear-groups",
    ];
    let data = text(&folder.join("data"));
    let initdb = path("initdb");
    let made = [&initdb, "-D", &data, "-A", "trust", "-N", "-U", "shop"];
    stage.says("postgres", &[&as_powerless[..], &made].concat());
    let access = folder.join("data/pg_hba.conf");
    fs::write(&access, "host all all all trust\n").expect("a file");
    let server = path("postgres");
    let argv = [&server, "-D", &data, "-c", "listen_addresses=*"];
    let more = ["-c", "unix_socket_directories=", "-c", "fsync=off"];
    let argv = [&as_powerless[..], &argv, &more].concat();
    let _postgres = stage.serve("postgres", 5432, &argv);
    for client in CLIENTS {
        let psql = |text: &str| {
            let argv = [
                "psql", "-h", "postgres", "-U", "shop", "-d", "postgres", "-Atc",
            ];
            stage.says(client, &[&argv[..], &[text]].concat())
        };
        // … when a client creates a table and copies rows into it and out of it, then they are unchanged.
        stage.is_carried(client, "postgres", || {
            psql(&format!("create table {client} (number int, words text)"));
            let rows: String = (0..5_000)
                .map(|number| format!("{number}\tthis is row {number} of {client}\n"))
                .collect();
            let file = stage.folder().join(format!("rows-{client}"));
            fs::write(&file, &rows).expect("a file");
            let copy = format!(
                "psql -h postgres -U shop -d postgres -c 'copy {client} from stdin' < {}",
                file.display()
            );
            stage.says(client, &["sh", "-c", &copy]);
            let sums = psql(&format!("select count(*), sum(number) from {client}"));
            assert_eq!(sums.trim(), "5000|12497500");
            let copied = psql(&format!(
                "copy (select * from {client} order by 1) to stdout"
            ));
            assert!(copied == rows, "{client}: {} bytes", copied.len());
        });
    }
}
