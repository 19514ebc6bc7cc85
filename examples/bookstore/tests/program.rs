//! The program in each of its roles, without a mesh: one page from four processes, and a clean exit.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

/// A running role, which is killed on drop.
struct Running {
    child: Child,
    address: SocketAddr,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Starts a role, with the addresses of others in the variables that Kubernetes sets in a pod.
fn start(role: &[&str], others: &[(&str, &Running)]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bookstore"));
    command.args(role).args(["--listen", "127.0.0.1:0"]);
    for (name, other) in others {
        command.env(
            format!("{name}_SERVICE_HOST"),
            other.address.ip().to_string(),
        );
        command.env(
            format!("{name}_SERVICE_PORT"),
            other.address.port().to_string(),
        );
    }
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let output = child.stdout.take().expect("its output");
    BufReader::new(output).read_line(&mut line).expect("a line");
    let address = line.trim().strip_prefix("listening on ");
    let address = address
        .expect("where it listens")
        .parse()
        .expect("an address");
    Running { child, address }
}

/// The whole answer to a GET.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it accepts");
    let request = format!("GET {path} HTTP/1.1\r\nHost: bookstore\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn a_page_has_what_the_other_three_say() {
    let details = start(&["details"], &[]);
    let ratings = start(&["ratings"], &[]);
    let reviews = start(&["reviews", "--version", "v2"], &[("RATINGS", &ratings)]);
    let others = [("DETAILS", &details), ("REVIEWS", &reviews)];
    let page = get(start(&["productpage"], &others).address, "/products/1");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(
        page.contains("Ada Weaver") && page.contains("★★★★★"),
        "{page}"
    );
}

#[test]
fn it_ends_cleanly_when_it_is_told_to() {
    let mut details = start(&["details"], &[]);
    let pid = details.child.id().to_string();
    let told = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(told.expect("kill runs").success());
    let status = details.child.wait().expect("it ends");
    assert!(status.success(), "{status}");
}
