//! A process in a control group of the test, which makes sockets there and sends them to the test: the control
//! group in which a socket is made determines its hooks.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use heddle_intercept::Family;
use heddle_intercept::channel::{pair, receive, send};
use heddle_intercept::namespace::within;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with};
use serde::{Deserialize, Serialize};

/// Environment variable with the control group, for the agent process, which is this same test program.
const CGROUP: &str = "HEDDLE_TEST_CGROUP";

/// Request for a socket. The descriptor of its namespace comes with the message.
#[derive(Serialize, Deserialize)]
struct Wanted {
    family: Family,
    kind: u32,
    protocol: u32,
}

/// The error, or `None`: then the socket comes with the message.
#[derive(Serialize, Deserialize)]
struct Made(Option<i32>);

/// The agent has closed its own descriptor of the socket, so that the test has the only one.
#[derive(Serialize, Deserialize)]
struct LetGo;

pub(crate) struct Agent {
    process: Child,
    channel: OwnedFd,
}

impl Agent {
    /// Starts the process in a control group.
    pub(crate) fn start(cgroup: &Path) -> Agent {
        let (channel, theirs) = pair().unwrap();
        let process = Command::new("/proc/self/exe")
            .args([
                "--exact",
                "agent::serves",
                "--ignored",
                "--nocapture",
                "--quiet",
            ])
            .env(CGROUP, cgroup)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Agent { process, channel }
    }

    /// Makes a blocking socket in this group and the given namespace. No other process has it open, so closing it
    /// ends its connection. `protocol` 0 is the default protocol.
    pub(crate) fn socket(
        &self,
        netns: BorrowedFd<'_>,
        family: Family,
        kind: SocketType,
        protocol: u32,
    ) -> std::io::Result<OwnedFd> {
        let wanted = Wanted {
            family,
            kind: kind.as_raw(),
            protocol,
        };
        send(&self.channel, &wanted, &[netns]).unwrap();
        wait(self.channel.as_fd());
        let (made, mut descriptors) = receive::<Made>(&self.channel).unwrap().expect("it lives");
        match made {
            Made(None) => {
                wait(self.channel.as_fd());
                let (LetGo, _) = receive(&self.channel).unwrap().expect("it lives");
                Ok(descriptors.pop().unwrap())
            }
            Made(Some(error)) => Err(std::io::Error::from_raw_os_error(error)),
        }
    }
}

impl Agent {
    /// Kills the process and waits for its end.
    pub(crate) fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(crate) fn wait(channel: BorrowedFd<'_>) {
    let mut waiting = [PollFd::new(&channel, PollFlags::IN)];
    poll(&mut waiting, None).unwrap();
}

/// Not a test: the main function of the agent process.
#[test]
#[ignore = "the other side of tests that start it themselves"]
fn serves() {
    let Some(cgroup) = std::env::var_os(CGROUP) else {
        return;
    };
    let group = Path::new(&cgroup).join("cgroup.procs");
    std::fs::write(group, std::process::id().to_string()).unwrap();
    let channel = std::io::stdin();
    loop {
        wait(channel.as_fd());
        let Ok(Some((wanted, descriptors))) = receive::<Wanted>(channel.as_fd()) else {
            return;
        };
        let made = within(descriptors[0].as_fd(), || make(&wanted)).unwrap();
        match made {
            Ok(socket) => {
                send(channel.as_fd(), &Made(None), &[socket.as_fd()]).unwrap();
                drop(socket);
                send(channel.as_fd(), &LetGo, &[])
            }
            Err(error) => send(channel.as_fd(), &Made(error.raw_os_error()), &[]),
        }
        .unwrap();
    }
}

fn make(wanted: &Wanted) -> std::io::Result<OwnedFd> {
    socket_of(
        wanted.family,
        SocketType::from_raw(wanted.kind),
        wanted.protocol,
    )
}

/// Makes a raw socket in the test process itself, in the namespace of its thread.
pub(crate) fn raw(family: Family, protocol: u32) -> std::io::Result<OwnedFd> {
    socket_of(family, SocketType::RAW, protocol)
}

fn socket_of(family: Family, kind: SocketType, protocol: u32) -> std::io::Result<OwnedFd> {
    let family = match family {
        Family::V4 => AddressFamily::INET,
        Family::V6 => AddressFamily::INET6,
    };
    let protocol = std::num::NonZeroU32::new(protocol).map(Protocol::from_raw);
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?)
}
