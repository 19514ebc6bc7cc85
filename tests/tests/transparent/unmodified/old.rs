//! Clients with HTTP/1.0, with and without Host: `curl -0`, `ab` and HAProxy's health checks, and an Apache server,
//! which refuses an empty Host.

use std::fs;

use super::{CLIENTS, stage};
use crate::programs::{Serving, are_here, path, text};
use crate::stage::{Stage, until};

/// HAProxy's page with the results of its health checks.
const SHOWN: &str = "http://127.0.0.1:8404/;csv";

/// An Apache in the foreground, which writes only into its folder.
fn apache(stage: &Stage) -> Serving {
    let folder = stage.folder().join("apache");
    fs::create_dir_all(folder.join("www")).expect("a folder");
    fs::write(folder.join("www/index.html"), "this is Apache\n").expect("a page");
    let shown = folder.display();
    let settings = format!(
        "ServerRoot {shown}
DefaultRuntimeDir {shown}
PidFile {shown}/pid
ErrorLog {shown}/errors
ServerName old
Listen 80
User nobody
Group nogroup
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
DocumentRoot {shown}/www
DirectoryIndex index.html
"
    );
    let file = folder.join("apache.conf");
    fs::write(&file, settings).expect("settings");
    let file = text(&file);
    stage.serve("old", 80, &[&path("apache2"), "-f", &file, "-DFOREGROUND"])
}

#[test]
fn what_speaks_http_10_is_served_by_apache() {
    if !are_here(&["apache2", "curl", "ab", "haproxy"]) {
        return;
    }
    let Some(stage) = stage() else { return };
    // Given an Apache …
    let _server = apache(&stage);
    for client in CLIENTS {
        // … when curl calls it without a Host, then it gets the page …
        stage.is_carried(client, "old", || {
            let argv = ["curl", "-sSf", "-0", "-H", "Host:", "http://old/"];
            assert_eq!(stage.says(client, &argv), "this is Apache\n", "{client}");
        });
        // … when ab calls it many times, with and without keepalive, then no request fails …
        for options in ["-q", "-k"] {
            stage.is_carried(client, "old", || {
                let argv = ["ab", options, "-n", "40", "-c", "4", "http://old/"];
                let said = stage.says(client, &argv);
                for line in ["Complete requests:      40", "Failed requests:        0"] {
                    assert!(said.contains(line), "{client}: {said}");
                }
                assert!(!said.contains("Non-2xx"), "{client}: {said}");
            });
        }
    }
    // … and when HAProxy checks it with default settings, then the check succeeds.
    for client in ["near", "far"] {
        let file = stage.folder().join(format!("haproxy-{client}.cfg"));
        let settings = "defaults
mode http
timeout connect 5s
timeout client 5s
timeout server 5s
listen shown
bind 127.0.0.1:8404
stats enable
stats uri /
backend old
option httpchk
server it old:80 check inter 100ms fall 1 rise 1
";
        fs::write(&file, settings).expect("settings");
        let file = text(&file);
        // It starts within what is heard: it checks at once, and then no sooner than 100 ms later.
        stage.is_carried(client, "old", || {
            let _balancer = stage.serve(client, 8404, &[&path("haproxy"), "-db", "-f", &file]);
            until(&format!("HAProxy in {client} has checked"), || {
                let said = stage.says(client, &["curl", "-sSf", SHOWN]);
                let line = said.lines().find(|line| line.starts_with("old,it,"));
                let line = line.unwrap_or_else(|| panic!("{said}"));
                assert!(!line.contains(",DOWN"), "{client}: {line}");
                line.contains(",L7OK,200,")
            });
        });
    }
}
