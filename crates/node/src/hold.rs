//! The holder's process: runs for `heddle node --intercept`, with the proxy as its child.
//!
//! ```text
//!   heddle node --intercept …            the holder: privileged, one thread
//!     └─ heddle node --intercept … --held    the proxy: no privileges, where the holder is root another user;
//!                                            its end of the channel is standard input
//! ```

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, anyhow};
use heddle_intercept::holder::{self, Claim, Config, EachTurn, Ended, HolderError, Own, Turn};
use heddle_intercept::hooks::{self, Kind};
use heddle_intercept::{Exclude, PortRange, cgroup};
use heddle_model::Cidr;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::process::geteuid;

use crate::admin::{AdminSocket, Location};
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::hygiene;
use crate::logging;
use crate::qos_agent::QosAgent;
use crate::service_manager::ServiceManager;
use crate::serving::limits;
use crate::settings::{Interception, Metrics, Settings};
use crate::state_folder;
use crate::user;
use folder::NotGiven;

mod folder;

/// The machine's own network namespace, which belongs to no pod: that of the first process, or of a kernel thread, in
/// case the first process is not accessible.
const HOST_NAMESPACES: [&str; 2] = ["/proc/1/ns/net", "/proc/2/ns/net"];
/// Accept backlog of the socket for operators.
const BACKLOG: i32 = 16;

pub(crate) struct HolderOptions {
    pub(crate) interception: Interception,
    /// Address for other nodes. With one proxy for one pod, this port is the proxy's and not the pod's.
    pub(crate) listen: SocketAddr,
    /// The node's state folder; `None` for the default.
    pub(crate) state: Option<PathBuf>,
    /// The agent of node QoS, if the node runs it.
    pub(crate) qos: Option<QosAgent>,
}

/// Holds pods until a signal ends it.
///
/// # Errors
/// When a privilege is missing, or the kernel lacks a feature.
pub(crate) fn run(options: HolderOptions, settings: &Settings) -> Result<Exit, Failure> {
    // Its name in ps; setting it fails on no kernel.
    let _set = rustix::thread::set_name(c"heddle-holder");
    let stderr = Console::start(std::io::stderr()).context("cannot start a thread")?;
    logging::start(stderr, settings.log.level, settings.log.format)
        .context("cannot start the log")?;
    let HolderOptions {
        interception: intercept,
        listen,
        state,
        qos,
    } = options;
    if intercept.mesh_ranges.is_empty() {
        return Err(anyhow!(
            "nothing would be intercepted: say which addresses the mesh's pods and Services have with \
             --mesh-range, such as --mesh-range 10.0.0.0/8"
        )
        .into());
    }
    // Each pod takes descriptors, and a shell's default limit is enough for about a hundred pods.
    limits::raise();
    // Done first, while this process still has all of root's privileges.
    let hooks = hooks_options(&intercept)?;
    let host = HOST_NAMESPACES
        .iter()
        .find_map(|path| File::open(path).ok());
    if host.is_none() {
        tracing::warn!(
            "{} cannot be read: if an operator enrolls the machine's own network, it is not detected",
            HOST_NAMESPACES.join(" and ")
        );
    }
    let proxy = user::of_proxy(intercept.proxy_user.as_deref()).map_err(|error| anyhow!(error))?;
    let folder = state_folder::folder(state, "node")?;
    if let Some(user) = proxy {
        folder::check_above(&folder, user).map_err(not_given)?;
    }
    // Once the claim is taken, the previous holder and its proxy are gone.
    let claim = Claim::take(memory(&folder)).map_err(unclaimed)?;
    match proxy {
        Some(user) => folder::give(&folder, user).map_err(not_given)?,
        None => tracing::warn!(
            "the holder is not root: the proxy runs as the same user, and could change the holder's file of pods"
        ),
    }
    hygiene::keep_what_holding_takes(proxy, qos.is_some()).map_err(|error| anyhow!(error))?;
    let location = Location::holder(intercept.holder_socket.clone());
    let (_claim, requests) = requests_socket(&location)?;
    tracing::info!("holder socket {}", location.path.display());
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(user) = proxy {
        arguments.push(format!("--held-as={user}").into());
    }
    let mut manager = ServiceManager::default();
    let mut is_stopping = false;
    // After the last turn it is stopped.
    let qos = Rc::new(RefCell::new(qos));
    let watched = Rc::clone(&qos);
    let each_turn = EachTurn(Box::new(move |turn| {
        // It asks the proxy, so it is started after the first one.
        if let Some(agent) = &mut *watched.borrow_mut()
            && turn == Turn::Holding
        {
            agent.turn(Instant::now());
        }
        manager.turn(Instant::now(), turn == Turn::Holding);
        if turn == Turn::Stopping && !std::mem::replace(&mut is_stopping, true) {
            manager.stopping();
        }
    }));
    let config = Config {
        each_turn,
        program: "/proc/self/exe".into(),
        arguments,
        proxy: proxy.map_or_else(|| geteuid().as_raw(), |user| user.uid),
        requests,
        claim,
        hooks,
        host,
        proxy_timeout: intercept.proxy_timeout_s.seconds(),
        own: intercept.pod.clone().map(|workload| Own {
            workload,
            exclude: Exclude {
                inbound_ports: left_alone(&intercept, listen, settings),
                ..Exclude::default()
            },
        }),
    };
    let ended = holder::run(config);
    if let Some(agent) = qos.take() {
        agent.stop();
    }
    // The proxy cannot remove its socket itself: the folder belongs to this user.
    AdminSocket::clear(&Location::new(settings.admin.socket.clone()));
    match ended.map_err(|error| anyhow!(error))? {
        Ended::Stopped => Ok(Exit::Ok),
        Ended::Proxy(code) => Ok(Exit::of(code)),
    }
}

/// Path of the file with the enrolled pods: beside the state folder, which belongs to the proxy's user.
pub fn memory(state: &Path) -> PathBuf {
    state.with_added_extension("pods.json")
}

fn unclaimed(error: HolderError) -> Failure {
    let exit = match error.is_busy() {
        true => Exit::Busy,
        false => Exit::Failed,
    };
    Failure::new(exit, error)
}

fn not_given(error: NotGiven) -> Failure {
    let exit = match error {
        NotGiven::Busy(_) => Exit::Busy,
        NotGiven::Wrong(..) => Exit::Failed,
    };
    Failure::new(exit, error)
}

/// Inbound ports that are not intercepted in one pod's namespace: the excluded ones, and the proxy's own.
fn left_alone(intercept: &Interception, listen: SocketAddr, settings: &Settings) -> Vec<PortRange> {
    let metrics = match settings.admin.metrics {
        Metrics::At(at) => Some(at.port()),
        Metrics::None => None,
    };
    let own = [Some(listen.port()), metrics].into_iter().flatten();
    let own = own.filter_map(PortRange::one);
    intercept
        .exclude_inbound
        .iter()
        .copied()
        .chain(own)
        .collect()
}

fn hooks_options(intercept: &Interception) -> Result<hooks::Options, Failure> {
    let inside = intercept.mesh_ranges.iter().map(|cidr| (cidr, true));
    let outside = intercept.exclude_ranges.iter().map(|cidr| (cidr, false));
    let range = |(network, inside): (&Cidr, bool)| hooks::Range {
        network: *network,
        inside,
    };
    let kind = match (intercept.hooks, &intercept.pods_cgroup) {
        (Kind::Bpf, None) => {
            return Err(anyhow!(
                "--hooks bpf needs the cgroup above all pods: name it with --pods-cgroup"
            )
            .into());
        }
        (Kind::Nft, _) | (Kind::Auto, None) if intercept.pod.is_some() => {
            return Err(anyhow!(
                "--pod needs --pods-cgroup and hooks by BPF: in the namespace of one pod, packet filters cannot \
                 tell the proxy's own connections from the pod's"
            )
            .into());
        }
        (Kind::Auto, None) => {
            tracing::warn!(
                "without --pods-cgroup packet filter rules are used instead of BPF programs: there is no guard"
            );
            Kind::Nft
        }
        // Only BPF works in the namespace of one pod.
        (_, Some(_)) if intercept.pod.is_some() => Kind::Bpf,
        (kind, _) => kind,
    };
    let own_cgroup = match kind {
        Kind::Nft => PathBuf::new(),
        _ => cgroup::own().context("the cgroup of this process")?,
    };
    if let Some(group) = &intercept.pods_cgroup {
        let events = std::fs::read_to_string(group.join("cgroup.events"));
        if events.is_ok_and(|events| events.contains("populated 0")) {
            tracing::warn!(
                "no process is beneath --pods-cgroup {}: what runs elsewhere is not intercepted",
                group.display()
            );
        }
    }
    Ok(hooks::Options {
        pods_cgroup: intercept.pods_cgroup.clone().unwrap_or_default(),
        own_cgroup,
        bpffs: Some(intercept.bpffs.clone()),
        ranges: inside.chain(outside).map(range).collect(),
        kind,
    })
}

/// Opens the socket for operators.
fn requests_socket(location: &Location) -> Result<(crate::admin::AdminSocket, OwnedFd), Failure> {
    let open = || {
        socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
    };
    let is_served = |path: &Path| {
        let address = SocketAddrUnix::new(path);
        address.is_ok_and(|address| open().is_ok_and(|asks| connect(&asks, &address).is_ok()))
    };
    let bound = crate::admin::AdminSocket::claim(location, is_served, |path| {
        let socket = open()?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    });
    bound.map_err(crate::serving::unclaimed)
}

#[cfg(test)]
mod tests;
