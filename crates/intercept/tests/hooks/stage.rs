//! A node and its pods for tests: namespaces, links between them, control groups, and a BPF file system.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use heddle_intercept::hooks::{self, Hooks, Kind, Options, Range};
use heddle_intercept::namespace::{self, within};
use heddle_intercept::{Exclude, Family, Fate, PodId};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::net::{SocketType, sockopt};
use rustix::thread::UnshareFlags;

use crate::agent::Agent;

/// Address ranges of the mesh (true), and exceptions (false), for all tests.
pub(crate) const MESH: [(&str, bool); 4] = [
    ("10.96.0.0/12", true),
    ("10.111.0.0/16", false),
    ("fd96::/16", true),
    ("10.90.0.0/16", true),
];
/// Timeout for events that must happen.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Stage {
    folder: PathBuf,
    cgroups: PathBuf,
    /// Makes the sockets of programs in pods.
    pub(crate) apps: Agent,
    /// Makes the sockets of the holder.
    pub(crate) holder: Agent,
}

/// A pod with its listeners, made as a holder does.
pub(crate) struct Pod {
    pub(crate) id: PodId,
    pub(crate) netns: OwnedFd,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) outbound: TcpListener,
    pub(crate) inbound: TcpListener,
}

/// Runs a test on a new thread in its own namespaces, which are the node. Mounts and links that it makes there
/// disappear with them.
pub(crate) fn on_stage(test: impl FnOnce(&Stage) + Send) {
    let cgroup2 = match possible() {
        Ok(cgroup2) => cgroup2,
        Err(why) => {
            heddle_skips::skipped(&why);
            return;
        }
    };
    // One test at a time: a process that another test starts inherits our descriptors until its exec, which
    // keeps hooks and closed listeners alive for that moment.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            #[allow(unsafe_code, reason = "nothing else moves a thread to a new namespace")]
            // SAFETY: only the mount and network namespaces are unshared, not descriptors, and this new thread has
            // used neither folders nor the network yet.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWNET) }
                .unwrap();
            let stage = Stage::set(&cgroup2);
            test(&stage);
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// The mount point of cgroup v2, or why the tests must be skipped here. Faults of the BPF programs themselves are no
/// reason to skip.
fn possible() -> Result<PathBuf, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("namespaces and BPF programs are made by root".to_owned());
    }
    let cgroup2 = cgroup2().ok_or("no control groups of version 2 are mounted")?;
    let tried = cgroup2.join(format!("heddle-hooks-{}", std::process::id()));
    let denied = |what: &str, error: io::Error| format!("{what} cannot be made: {error}");
    // Tests that run in parallel use the same name.
    match fs::create_dir(&tried) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(denied("a control group", error));
        }
        _ => drop(fs::remove_dir(&tried)),
    }
    namespace::create().map_err(|error| denied("a network namespace", error))?;
    Ok(cgroup2)
}

/// The mount point of cgroup v2.
fn cgroup2() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mut fields = mounts.lines().map(|line| line.split(' '));
    fields.find_map(|mut fields| {
        let path = fields.nth(1)?;
        (fields.next()? == "cgroup2").then(|| PathBuf::from(path))
    })
}

impl Stage {
    fn set(cgroup2: &Path) -> Stage {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("heddle-hooks-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(&name);
        let cgroups = cgroup2.join(&name);
        fs::create_dir(&folder).unwrap();
        for group in [&cgroups, &cgroups.join("pods"), &cgroups.join("own")] {
            fs::create_dir(group).unwrap();
        }
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).unwrap();
        mount("bpf", &folder, "bpf", MountFlags::empty(), None).unwrap();
        ip("link set lo up");
        Stage {
            apps: Agent::start(&cgroups.join("pods")),
            holder: Agent::start(&cgroups.join("own")),
            folder,
            cgroups,
        }
    }

    pub(crate) fn bpffs(&self) -> PathBuf {
        self.folder.join("heddle")
    }

    pub(crate) fn options(&self, kind: Kind) -> Options {
        let range = |(network, inside): (&str, bool)| Range {
            network: network.parse().unwrap(),
            inside,
        };
        Options {
            pods_cgroup: self.cgroups.join("pods"),
            own_cgroup: self.cgroups.join("own"),
            bpffs: Some(self.bpffs()),
            ranges: MESH.map(range).to_vec(),
            kind,
        }
    }

    pub(crate) fn hooks(&self) -> Hooks {
        Hooks::open(&self.options(Kind::Bpf)).unwrap()
    }

    /// Makes pod number N with the addresses 10.90.N.2 and fd90:N::2, linked to the node at .1 and ::1.
    pub(crate) fn pod(&self, number: u8) -> Pod {
        let netns = namespace::create().unwrap();
        let peer = format!("/proc/{}/fd/{}", std::process::id(), netns.as_raw_fd());
        ip(&format!(
            "link add pod{number} type veth peer name eth0 netns {peer}"
        ));
        ip(&format!("address add 10.90.{number}.1/24 dev pod{number}"));
        ip(&format!(
            "address add fd90:{number}::1/64 dev pod{number} nodad"
        ));
        ip(&format!("link set pod{number} up"));
        within(netns.as_fd(), || {
            ip("link set lo up");
            ip(&format!("address add 10.90.{number}.2/24 dev eth0"));
            ip(&format!("address add fd90:{number}::2/64 dev eth0 nodad"));
            ip("link set eth0 up");
            ip(&format!("route add default via 10.90.{number}.1"));
            ip(&format!("-6 route add default via fd90:{number}::1"));
        })
        .unwrap();
        let addresses = vec![
            format!("10.90.{number}.2").parse().unwrap(),
            format!("fd90:{number}::2").parse().unwrap(),
        ];
        Pod {
            id: PodId(number.into()),
            addresses,
            outbound: self.listener(&netns, heddle_intercept::OUTBOUND_PORT),
            inbound: self.listener(&netns, heddle_intercept::INBOUND_PORT),
            netns,
        }
    }

    /// A dual-stack listener of the holder.
    fn listener(&self, netns: &OwnedFd, port: u16) -> TcpListener {
        let socket = self
            .holder
            .socket(netns.as_fd(), Family::V6, SocketType::STREAM, 0);
        let socket = socket.unwrap();
        sockopt::set_socket_reuseaddr(&socket, true).unwrap();
        sockopt::set_ipv6_v6only(&socket, false).unwrap();
        heddle_intercept::sockopt::set_transparent(&socket).unwrap();
        let any: SocketAddr = format!("[::]:{port}").parse().unwrap();
        rustix::net::bind(&socket, &any).unwrap();
        rustix::net::listen(&socket, 1024).unwrap();
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true).unwrap();
        listener
    }

    /// A program in the pod connects.
    pub(crate) fn connect(&self, pod: &Pod, to: &str) -> Result<TcpStream, Errno> {
        let to: SocketAddr = to.parse().unwrap();
        self.connect_by(pod, Family::of(to), to)
    }

    /// As [`Stage::connect`], with a socket of the given family.
    pub(crate) fn connect_by(
        &self,
        pod: &Pod,
        by: Family,
        to: SocketAddr,
    ) -> Result<TcpStream, Errno> {
        let socket = self
            .apps
            .socket(pod.netns.as_fd(), by, SocketType::STREAM, 0)
            .unwrap();
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE)).unwrap();
        rustix::net::connect(&socket, &to)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Ok(stream)
    }

    /// Makes a listener of a program in the pod.
    pub(crate) fn serve(&self, pod: &Pod, at: &str) -> TcpListener {
        let at: SocketAddr = at.parse().unwrap();
        let socket = self
            .apps
            .socket(pod.netns.as_fd(), Family::of(at), SocketType::STREAM, 0);
        let socket = socket.unwrap();
        rustix::net::bind(&socket, &at).unwrap();
        rustix::net::listen(&socket, 16).unwrap();
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true).unwrap();
        listener
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for agent in [&mut self.apps, &mut self.holder] {
            agent.stop();
        }
        for group in [
            self.cgroups.join("pods"),
            self.cgroups.join("own"),
            self.cgroups.clone(),
        ] {
            if let Err(error) = fs::remove_dir(&group) {
                eprintln!("cannot remove {}: {error}", group.display());
            }
        }
        // The mount belongs to this thread's namespace, but the folder beneath it does not.
        let _ = rustix::mount::unmount(&self.folder, rustix::mount::UnmountFlags::DETACH);
        let _ = fs::remove_dir(&self.folder);
    }
}

impl Pod {
    pub(crate) fn hooked<'a>(&'a self, exclude: &'a Exclude, fate: Fate) -> hooks::Pod<'a> {
        hooks::Pod {
            id: self.id,
            netns: self.netns.as_fd(),
            addresses: &self.addresses,
            outbound: &self.outbound,
            inbound: &self.inbound,
            exclude,
            fate,
        }
    }

    pub(crate) fn enroll(&self, hooks: &mut Hooks) {
        hooks
            .enroll(&self.hooked(&Exclude::default(), Fate::Refuse))
            .unwrap();
    }
}

/// Waits until a connection is in a listener's backlog, and leaves it there.
pub(crate) fn await_call(listener: &TcpListener) {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut waiting = [PollFd::new(listener, PollFlags::IN)];
    let patience = PATIENCE.try_into().unwrap();
    assert_eq!(
        poll(&mut waiting, Some(&patience)).unwrap(),
        1,
        "no client connected"
    );
}

/// Waits for a connection and accepts it.
pub(crate) fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    await_call(listener);
    let (stream, from) = listener.accept().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    (
        stream,
        SocketAddr::new(from.ip().to_canonical(), from.port()),
    )
}

/// A program on the node connects to a pod.
pub(crate) fn dial(to: impl ToSocketAddrs) -> io::Result<TcpStream> {
    let to = to.to_socket_addrs()?.next().unwrap();
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Runs `ip` in the thread's namespace.
pub(crate) fn ip(arguments: &str) {
    run("ip", arguments);
}

/// Runs a program in the thread's namespace.
pub(crate) fn run(program: &str, arguments: &str) {
    let status = Command::new(program).args(arguments.split(' ')).status();
    let status = status.unwrap_or_else(|error| panic!("{program} is not installed: {error}"));
    assert!(status.success(), "{program} {arguments}");
}

/// Runs `inside` in a pod's namespace.
pub(crate) fn within_pod<T>(pod: &Pod, inside: impl FnOnce() -> T) -> T {
    within(pod.netns.as_fd(), inside).unwrap()
}
