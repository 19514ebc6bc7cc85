//! Connections of the proxy to a pod's program from the address of the program's client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;

use heddle_intercept::hooks::FullTables;
use heddle_intercept::{Family, routes, sockopt};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};

use crate::capture::Capture;
use crate::handshakes;
use crate::stage::{Pod, Stage, accept, await_call, on_stage, run, within_pod};

/// Connects with a socket as the holder makes it for the proxy.
pub(crate) fn connect(
    stage: &Stage,
    pod: &Pod,
    from: SocketAddr,
    to: SocketAddr,
) -> Result<TcpStream, Errno> {
    let socket = transparent(stage, pod, from, to);
    let patience = Some(std::time::Duration::from_secs(1));
    rustix::net::sockopt::set_socket_timeout(
        &socket,
        rustix::net::sockopt::Timeout::Send,
        patience,
    )
    .unwrap();
    rustix::net::connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}

/// Fills the backlog of a listener, so that further connections to it stay in their handshake.
fn fill(stage: &Stage, pod: &Pod, busy: &TcpListener, at: SocketAddr) -> TcpStream {
    rustix::net::listen(busy, 0).unwrap();
    let client = "192.0.2.7:40000".parse().unwrap();
    let filling = connect(stage, pod, client, at).unwrap();
    // The client is connected before its connection is in the backlog.
    await_call(busy);
    filling
}

fn transparent(stage: &Stage, pod: &Pod, from: SocketAddr, to: SocketAddr) -> OwnedFd {
    let socket = stage
        .holder
        .socket(pod.netns.as_fd(), Family::of(to), SocketType::STREAM, 0);
    let socket = socket.unwrap();
    sockopt::set_transparent(&socket).unwrap();
    sockopt::set_mark(&socket, routes::MARK).unwrap();
    // The same client address and port is used for several servers.
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true).unwrap();
    rustix::net::bind(&socket, &from).unwrap();
    socket
}

#[test]
fn a_program_sees_its_clients_address_and_its_answers_do_not_leave_the_pod() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        let app = stage.serve(&pod, "[::]:80");
        // Must also work with strict reverse path filtering.
        within_pod(&pod, || {
            for path in ["all", "lo", "eth0"] {
                std::fs::write(format!("/proc/sys/net/ipv4/conf/{path}/rp_filter"), "1").unwrap();
            }
        });
        pod.enroll(&mut hooks);
        routes::prepare(pod.netns.as_fd()).unwrap();
        routes::prepare(pod.netns.as_fd()).expect("what is there stays");
        // The first two are addresses of the node; the others belong to no host here.
        let clients = [
            ("10.90.1.1:40000", "10.90.1.2"),
            ("[fd90:1::1]:40000", "[fd90:1::2]"),
            ("192.0.2.7:40000", "10.90.1.2"),
            ("[2001:db8::7]:40000", "[fd90:1::2]"),
        ];
        let capture = Capture::start();
        for (client, server) in clients {
            let client: SocketAddr = client.parse().unwrap();
            let to = format!("{server}:80").parse().unwrap();
            let mut ours = connect(stage, &pod, client, to).unwrap();
            let (mut theirs, from) = accept(&app);
            assert_eq!(from, client, "what the program sees");
            ours.write_all(b"question").unwrap();
            theirs.read_exact(&mut [0; 8]).unwrap();
            theirs.write_all(&[0; 100_000]).unwrap();
            ours.read_exact(&mut [0; 100_000]).unwrap();
            // A refusal of a port without a program gets back, too.
            let unserved = format!("{server}:81").parse().unwrap();
            assert_eq!(
                connect(stage, &pod, client, unserved).unwrap_err(),
                Errno::CONNREFUSED
            );
        }
        assert_eq!(capture.heard(), 0, "everything stayed in the pod");
        assert_eq!(handshakes::count(&hooks), 0);
    });
}

#[test]
fn a_call_of_the_proxy_that_is_under_way_opens_no_other_port_to_its_client() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        let app = stage.serve(&pod, "10.90.1.2:80");
        // A program that accepts no connections, so that connections to it stay in their handshake.
        let busy = stage.serve(&pod, "10.90.1.2:9000");
        pod.enroll(&mut hooks);
        routes::prepare(pod.netns.as_fd()).unwrap();
        let client: SocketAddr = "10.90.1.1:40001".parse().unwrap();
        let to = "10.90.1.2:9000".parse().unwrap();
        let _fills_the_queue = fill(stage, &pod, &busy, to);
        let waiting = transparent(stage, &pod, client, to);
        rustix::io::ioctl_fionbio(&waiting, true).unwrap();
        let under_way = rustix::net::connect(&waiting, &to);
        assert_eq!(under_way, Err(Errno::INPROGRESS));

        // The same client connects to another port, from the same source port, and is steered like any other.
        let dialling = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&dialling, &client).unwrap();
        let program: SocketAddr = "10.90.1.2:80".parse().unwrap();
        rustix::net::connect(&dialling, &program).unwrap();
        assert_eq!(accept(&pod.inbound).1, client);
        let none = app.accept().unwrap_err();
        assert_eq!(none.kind(), std::io::ErrorKind::WouldBlock);
    });
}

#[test]
fn a_call_of_the_proxy_ends_also_when_the_address_that_it_went_to_is_gone() {
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        let busy = stage.serve(&pod, "10.90.1.2:9000");
        pod.enroll(&mut hooks);
        routes::prepare(pod.netns.as_fd()).unwrap();
        let to = "10.90.1.2:9000".parse().unwrap();
        let _fills_the_queue = fill(stage, &pod, &busy, to);
        // Given a connection of the proxy in its handshake …
        let client = "10.90.1.1:40001".parse().unwrap();
        let waiting = transparent(stage, &pod, client, to);
        rustix::io::ioctl_fionbio(&waiting, true).unwrap();
        let under_way = rustix::net::connect(&waiting, &to);
        assert_eq!(under_way, Err(Errno::INPROGRESS));
        assert_eq!(handshakes::count(&hooks), 1);
        // … when the pod loses the address, and the connection ends …
        hooks
            .readdress(pod.id, &["10.90.1.9".parse().unwrap()])
            .unwrap();
        drop(waiting);
        // … then no entry is left by which the client could be mistaken for the proxy.
        assert_eq!(handshakes::count(&hooks), 0);
    });
}

#[test]
fn calls_for_which_there_is_no_room_are_counted() {
    /// Size of the table `visits`.
    const MOST: u16 = 16_384;
    /// First source port of the client. The range contains no port of the mesh's listeners in the pod.
    const FIRST: u16 = 16_000;
    if !handshakes::may_have(usize::from(MOST) + 1_000) {
        return;
    }
    on_stage(|stage| {
        let mut hooks = stage.hooks();
        let pod = stage.pod(1);
        within_pod(&pod, || {
            run("nft", "add table inet silence");
            run(
                "nft",
                "add chain inet silence in { type filter hook input priority 0; }",
            );
            run("nft", "add rule inet silence in tcp dport 9000 drop");
        });
        pod.enroll(&mut hooks);
        routes::prepare(pod.netns.as_fd()).unwrap();
        let to = "10.90.1.2:9000".parse().unwrap();
        let call = |port| {
            let client = SocketAddr::from(([192, 0, 2, 7], port));
            let socket = transparent(stage, &pod, client, to);
            rustix::io::ioctl_fionbio(&socket, true).unwrap();
            let under_way = rustix::net::connect(&socket, &to);
            assert_eq!(under_way, Err(Errno::INPROGRESS));
            socket
        };
        // Given as many connections in their handshake as the table holds …
        let mut waiting: Vec<OwnedFd> = (0..MOST).map(|number| call(FIRST + number)).collect();
        assert_eq!(handshakes::count(&hooks), usize::from(MOST));
        assert_eq!(hooks.full(), FullTables::default());
        // … one more counts as a full table …
        let more = call(FIRST + MOST);
        let full = FullTables {
            handshakes: 0,
            visits: 1,
        };
        assert_eq!(hooks.full(), full);
        // … and not once there is room again.
        drop((waiting.pop(), more));
        waiting.push(call(FIRST + MOST));
        assert_eq!(hooks.full(), full);
        drop(waiting);
        assert_eq!(handshakes::count(&hooks), 0);
    });
}

#[test]
fn what_was_prepared_is_taken_back() {
    on_stage(|stage| {
        let pod = stage.pod(1);
        let shown = || {
            within_pod(&pod, || {
                let mut shown = String::new();
                let table = format!("route show table {}", routes::TABLE);
                for arguments in ["rule", "-6 rule", &table, &format!("-6 {table}")] {
                    let output = Command::new("ip")
                        .args(arguments.split(' '))
                        .output()
                        .unwrap();
                    shown += &String::from_utf8(output.stdout).unwrap();
                }
                for switch in [
                    "ipv4/tcp_fwmark_accept",
                    "ipv4/fwmark_reflect",
                    "ipv6/fwmark_reflect",
                ] {
                    shown += &std::fs::read_to_string(format!("/proc/sys/net/{switch}")).unwrap();
                }
                shown
            })
        };
        let before = shown();
        within_pod(&pod, || crate::stage::ip("link set lo down"));
        routes::turn_on_loopback(pod.netns.as_fd()).unwrap();
        routes::prepare(pod.netns.as_fd()).unwrap();
        let prepared = shown();
        assert_eq!(
            prepared.matches("fwmark 0x48444c45 lookup 18500").count(),
            2,
            "{prepared}"
        );
        assert_eq!(
            prepared.matches("local default dev lo").count(),
            2,
            "{prepared}"
        );
        routes::undo(pod.netns.as_fd()).unwrap();
        assert_eq!(shown(), before);
        routes::undo(pod.netns.as_fd()).expect("there is nothing to be taken back");
    });
}
