//! curl, wget, nginx; git over HTTP.

use std::fs;
use std::path::Path;

use super::{CLIENTS, stage};
use crate::programs::{Serving, are_here, path, pattern, text};
use crate::stage::{Stage, until};

/// An nginx in the foreground, which writes only into its folder.
fn nginx(stage: &Stage, pod: &str, folder: &Path, locations: &str) -> Serving {
    let shown = folder.display();
    let temporary = ["client_body", "fastcgi", "proxy", "scgi", "uwsgi"];
    let temporary = temporary.map(|kind| format!("{kind}_temp_path {shown}/{kind};\n"));
    let settings = format!(
        "daemon off;
master_process off;
pid {shown}/pid;
error_log stderr;
events {{}}
http {{
access_log off;
{}
server {{
listen [::]:80 ipv6only=off;
root {shown}/www;
client_max_body_size 0;
{locations}
}}
}}
",
        temporary.concat()
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, settings).expect("settings");
    let file = text(&file);
    let prefix = text(folder);
    stage.serve(pod, 80, &[&path("nginx"), "-p", &prefix, "-c", &file])
}

#[test]
fn curl_and_wget_get_pages_of_nginx() {
    if !are_here(&["nginx", "curl", "wget", "cmp"]) {
        return;
    }
    let Some(stage) = stage() else { return };
    // Given two web servers, one of them with only IPv6 …
    let large = pattern(3_000_000);
    let _servers = ["web", "web6"].map(|pod| {
        let folder = stage.folder().join(format!("nginx-{pod}"));
        fs::create_dir_all(folder.join("www")).expect("a folder");
        fs::write(folder.join("www/index.html"), format!("this is {pod}\n")).expect("a page");
        fs::write(folder.join("www/large"), &large).expect("a page");
        nginx(&stage, pod, &folder, "")
    });
    for client in CLIENTS {
        for server in ["web", "web6"] {
            let page = format!("http://{server}/");
            let page_by_full_name = format!("http://{server}.shop.svc.cluster.local/");
            let expected = format!("this is {server}\n");
            // … when curl and wget request pages, small and large, then they get them.
            stage.is_carried(client, server, || {
                assert_eq!(stage.says(client, &["curl", "-sSf", &page]), expected);
            });
            stage.is_carried(client, server, || {
                let said = stage.says(client, &["wget", "-qO-", "-t1", &page_by_full_name]);
                assert_eq!(said, expected);
            });
            let script = format!(
                "curl -sSf http://{server}/large | cmp - {}/nginx-web/www/large",
                stage.folder().display()
            );
            stage.says(client, &["sh", "-c", &script]);
        }
    }
}

#[test]
fn git_clones_and_pushes_over_http() {
    if !are_here(&["git", "git-http-backend", "fcgiwrap", "nginx"]) {
        return;
    }
    let Some(stage) = stage() else { return };
    // Given a repository behind a web server …
    let folder = stage.folder().join("git");
    fs::create_dir_all(folder.join("www")).expect("a folder");
    let repositories = folder.join("repositories");
    fs::create_dir_all(&repositories).expect("a folder");
    let git = |argv: &[&str]| stage.says("git", &[&["git"], argv].concat());
    let bare = text(&repositories.join("it.git"));
    git(&["init", "-q", "--bare", "-b", "main", &bare]);
    git(&["-C", &bare, "config", "http.receivepack", "true"]);
    let socket = folder.join("fcgi.sock");
    let mut command = stage.pod("git").command(path("fcgiwrap")).expect("a pod");
    command.arg("-s").arg(format!("unix:{}", socket.display()));
    let locations = format!(
        "location / {{
fastcgi_pass unix:{};
fastcgi_param SCRIPT_FILENAME {};
fastcgi_param GIT_PROJECT_ROOT {};
fastcgi_param GIT_HTTP_EXPORT_ALL 1;
fastcgi_param PATH_INFO $uri;
fastcgi_param QUERY_STRING $query_string;
fastcgi_param REQUEST_METHOD $request_method;
fastcgi_param CONTENT_TYPE $content_type;
fastcgi_param CONTENT_LENGTH $content_length;
fastcgi_param HTTP_CONTENT_ENCODING $http_content_encoding;
fastcgi_param HTTP_GIT_PROTOCOL $http_git_protocol;
fastcgi_param REMOTE_USER developer;
}}",
        socket.display(),
        path("git-http-backend"),
        repositories.display()
    );
    let web = nginx(&stage, "git", &folder, &locations);
    let wrapper = stage.serve_by("git", 80, command);
    until("fcgiwrap listens", || socket.exists());
    for client in CLIENTS {
        let clone = text(&folder.join(client));
        let run = |argv: &[&str]| {
            let own = [
                "git",
                "-c",
                "user.name=A",
                "-c",
                "user.email=a@b",
                "-c",
                "commit.gpgsign=false",
            ];
            stage.says(client, &[&own, argv].concat())
        };
        // … when a client clones it, adds a file and pushes …
        stage.is_carried(client, "git", || {
            run(&["clone", "-q", "http://git/it.git", &clone]);
            let more: String = (0..20_000).map(|i| format!("{client} {i}\n")).collect();
            fs::write(Path::new(&clone).join(client), more).expect("a file");
            run(&["-C", &clone, "add", "."]);
            run(&["-C", &clone, "commit", "-q", "-m", client]);
            run(&["-C", &clone, "push", "-q", "origin", "HEAD:main"]);
        });
        // … then the repository has it.
        let log = git(&["-C", &bare, "log", "-1", "--format=%s", "main"]);
        assert_eq!(log.trim(), client);
    }
    drop((wrapper, web));
}
