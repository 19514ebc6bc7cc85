//! `heddle node`: a node of a mesh that has several.
//!
//! A node gets its mesh, its trust and its identity from a control plane, and keeps all of it on disk, so that it
//! starts and runs while the control plane cannot be reached. The rest is [`crate::serving`].
//!
//! ```text
//!   Keeper: what is wanted, held, due ──┐
//!   Trusted: roots, deny-list ──────────┼─► Core (decides) ◄──► agent (does) ◄──► Courier (network)
//!   Clock: time floor ──────────────────┘                         └──► State (disk)
//! ```

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use heddle_model::NodeName;
use heddle_model::calendar::utc;
use heddle_proxy::{AccessSink, Questions};
use heddle_transport::Clock;
use heddle_transport::secrets::JoinToken;
use rustix::fs::{Mode, OFlags};
use tokio::sync::mpsc;

use crate::admin::Location;
use crate::agent::{
    self, Found, Learned, Learning, Reporter, Setup, State, StateError, TokenFile, View, read_token,
};
use crate::exit::{Exit, Failure};
use crate::held::{self, HeldBy};
use crate::hygiene;
use crate::qos_agent::{QosAgent, Watched};
use crate::serving::{
    self, Change, Claimed, Doors, Held, Identity, LearnedView, Output, Reload, Served,
};
use crate::settings::Settings;
use crate::state_folder;

/// Capacity of the queue of changes to the main loop.
const CHANGES: usize = 4;

pub(crate) struct NodeOptions {
    pub(crate) name: NodeName,
    /// Address of the control plane, `HOST:PORT`.
    pub(crate) control: String,
    /// Address of the listener for other nodes.
    pub(crate) listen: SocketAddr,
    /// File with the token to join, or `-` for standard input.
    pub(crate) token: Option<PathBuf>,
    /// The state folder; `None` for the default.
    pub(crate) state: Option<PathBuf>,
    /// Of a node that knows only what it uses: how long something may be unused before it is forgotten.
    pub(crate) forget_after: Option<Duration>,
    /// Values from its holder, if a holder of pods has started it.
    pub(crate) held: Option<HeldBy>,
    /// The agent of node QoS, if this process runs it.
    pub(crate) qos: Option<QosAgent>,
}

/// Files that a proxy opens while it is still the holder's user. The user that it becomes may not be able to reach
/// them, since the folders above belong to root.
struct Opened {
    admin: Claimed,
    token: Option<TokenFile>,
    /// The state folder, which belongs to the proxy's user.
    state: OwnedFd,
}

impl Opened {
    fn new(options: &NodeOptions, folder: &Path, settings: &Settings) -> Result<Opened, Failure> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let state = rustix::fs::open(folder, flags, Mode::empty());
        let state = state.map_err(|error| {
            let error = std::io::Error::from(error);
            anyhow!("{}: cannot open it: {error}", folder.display())
        })?;
        Ok(Opened {
            admin: serving::claim(&Location::new(settings.admin.socket.clone()))?,
            token: options.token.clone().map(TokenFile::open),
            state,
        })
    }
}

/// Serves as a node until a signal ends it.
///
/// # Errors
/// When something is missing at the start: the admin socket, the addresses, an undamaged state folder, or a token when
/// the node has not joined.
pub(crate) fn run(
    options: NodeOptions,
    settings: Settings,
    reload: Reload,
) -> Result<Exit, Failure> {
    hygiene::keep_memory_to_ourselves().context("cannot keep keys out of core files")?;
    heddle_proxy::return_large_blocks();
    let folder = state_folder::folder(options.state.clone(), "node")?;
    let opened = match &options.held {
        Some(held) => {
            // Its name in ps, beside that of its holder.
            let _set = rustix::thread::set_name(c"heddle-proxy");
            let opened = Opened::new(&options, &folder, &settings)?;
            hygiene::give_up_privileges(held.user).context("cannot give up privileges")?;
            hygiene::end_with_parent().context("cannot end with the holder")?;
            held::is_there()?;
            let alone = hygiene::stay_alone().context("cannot keep from starting processes")?;
            Some((opened, alone))
        }
        None => None,
    };
    serving::in_runtime(&settings.clone(), async |output| {
        serve(options, (folder, opened), (settings, reload), output).await
    })
}

async fn serve(
    options: NodeOptions,
    (folder, opened): (PathBuf, Option<(Opened, bool)>),
    (settings, reload): (Settings, Reload),
    output: Output,
) -> Result<Exit, Failure> {
    let (admin, opened_token, handle) = match opened {
        Some((opened, alone)) => {
            if !alone {
                tracing::warn!(
                    "this kernel has no seccomp filters: an attacker who controls the proxy could leave \
                     processes behind that go on as the proxy (CONFIG_SECCOMP_FILTER)"
                );
            }
            (Some(opened.admin), opened.token, Some(opened.state))
        }
        None => (None, None, None),
    };
    let mut doors = Doors::open(&settings, Some(&options.name), admin)?;
    let pods = match options.held {
        Some(held) => Some(Held {
            channel: held::channel()?,
            ranges: held.ranges,
            holder_socket: held.holder_socket,
        }),
        None => None,
    };
    let NodeOptions {
        name,
        control,
        listen,
        token,
        qos,
        forget_after,
        ..
    } = options;
    let learning = forget_after.map(|forget_after| Learning {
        questions: Questions::default(),
        learned: Learned::default(),
        forget_after,
    });
    // The folder is reached by its descriptor, which stays open as long as anything is served.
    let reached = match &handle {
        Some(handle) => PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd())),
        None => folder.clone(),
    };
    let state = State::open(&reached, &folder).map_err(unusable)?;
    let token = opened_token.or(token.map(TokenFile::at));
    let clock = Arc::new(Clock::new(state.floor().map_err(unusable)?));
    let found = state.load(&name).map_err(unusable)?;
    let token = tokio::select! {
        token = token_if_needed(&found, token, &name, &clock) => token?,
        // The process at the other end of a pipe may never write the token.
        () = doors.stopped() => {
            tracing::info!("stopped while waiting for the token");
            return Ok(Exit::Ok);
        }
    };
    let (socket, listen) = serving::bind_mesh(listen)?;
    let view = View::new(name.clone(), control.clone(), listen, Arc::clone(&clock));
    let view = Arc::new(view);
    let (accesses, told) = AccessSink::new();
    let setup = Setup {
        name,
        control,
        listen,
        clock,
        state,
        found,
        token,
        learning: learning.clone(),
        reporter: Reporter::new(told),
    };
    let (sender, changes) = mpsc::channel::<Change>(CHANGES);
    tokio::spawn(agent::run(setup, Arc::clone(&view), sender));
    let served = Served {
        source: folder,
        first: None,
        changes,
        mesh_socket: Some(socket),
        identity: Some(Identity {
            denied: {
                let view = Arc::clone(&view);
                Box::new(move || view.denied())
            },
            status: Box::new(move || view.status()),
        }),
        pods,
        accesses: Some(accesses),
        learning: learning.map(
            |Learning {
                 questions, learned, ..
             }| {
                let status: LearnedView = Box::new(move |mesh| learned.status(mesh));
                (questions, status)
            },
        ),
        reload,
    };
    let qos = qos.map(Watched::start).transpose();
    let qos = qos.context("cannot handle signals")?;
    let ended = serving::serve(doors, settings, output, served).await;
    if let Some(qos) = qos {
        qos.stop().await;
    }
    ended
}

/// Reads the token if the node needs one. A node that has joined and whose certificate has not expired does not, even
/// if it was given one. The exception is a token of an authority whose root the node does not trust: the node has then
/// missed the replacement of the root, and joins again.
async fn token_if_needed(
    found: &Found,
    token: Option<TokenFile>,
    name: &NodeName,
    clock: &Clock,
) -> Result<Option<JoinToken>, Failure> {
    let why = match &found.joined {
        Some((leaf, trusted)) if leaf.not_after() >= clock.now() => {
            let is_given = token.is_some();
            let given = match token.filter(TokenFile::is_file) {
                Some(file) => read_token(file).await.ok(),
                None => None,
            };
            if let Some(token) = given
                && !trusted.has_root(&token.root_sha256)
            {
                tracing::warn!(
                    "the token names a root that this node does not trust: the node joins again with it"
                );
                return Ok(Some(token));
            }
            if is_given {
                tracing::info!("the node has joined already: the token is not used");
            }
            return Ok(None);
        }
        Some((leaf, _)) => format!("its certificate has expired at {}", utc(leaf.not_after())),
        None => "it has not joined yet".to_owned(),
    };
    match token {
        Some(token) => Ok(Some(read_token(token).await?)),
        None => Err(anyhow!(
            "node {name} needs a token, {why}: make one where the control plane runs (heddle token create \
             {name}) and hand it over with --token-file"
        )
        .into()),
    }
}

fn unusable(error: StateError) -> Failure {
    let exit = match &error {
        StateError::Folder(folder) if folder.is_busy() => Exit::Busy,
        _ => Exit::Failed,
    };
    Failure::new(exit, error)
}
