//! `heddle envoy`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use heddle_envoy::bootstrap::{
    Bootstrap, LINK_CHAIN, LINK_KEY, LINK_ROOTS, Link, bootstrap, link_secrets,
};
use heddle_model::calendar::utc;
use heddle_model::{TrustDomain, WorkloadName, printable};
use heddle_node::exit::{Exit, Failure, say};
use heddle_node::hygiene;
use heddle_node::time;

use super::Asked;
use crate::order::{EnvoyLinked, Order};

/// The file in `--into` with which the Envoy is started.
const BOOTSTRAP: &str = "envoy.json";

/// Let a workload have a stock Envoy of its own, which the control plane configures
///
/// For a workload with the annotation `heddle.dev/proxy: envoy`: its Envoy speaks mutual TLS with the proxies of nodes
/// and with other Envoys, and the policies of the mesh hold for it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: EnvoyCommand,
}

#[derive(Debug, clap::Subcommand)]
enum EnvoyCommand {
    /// Print the bootstrap with which the Envoy of a workload starts
    ///
    /// It has the certificate and the key in it, with which the Envoy connects to the control plane: treat it as a
    /// secret. With --into these are in files of their own, and calling the command again renews them while the Envoy
    /// runs.
    #[command(after_help = "Examples:
  heddle envoy bootstrap shop/web > web.json
  envoy -c web.json --concurrency 1 --disable-hot-restart --drain-time-s 5
  heddle envoy bootstrap shop/web --control 10.0.0.5:9443 --into /run/envoy

Exit codes:
  0  printed, or written
  1  failed, or the control plane refuses
  2  wrong command line
  4  no running heddle answers on the admin socket")]
    Bootstrap {
        /// The workload: NAMESPACE/NAME
        #[arg(value_name = "WORKLOAD", value_parser = workload)]
        workload: WorkloadName,
        /// Where the Envoy reaches the control plane; may be repeated [default: where it listens]
        #[arg(long, value_name = "ADDRESS:PORT")]
        control: Vec<SocketAddr>,
        /// How long the certificate lives, 1h to 90d: a connected Envoy gets along without it, one that connects does not
        #[arg(long, alias = "life", value_name = "DURATION", default_value = "30d", value_parser = time::parse)]
        ttl: Duration,
        /// The folder that all files are written to; it is made if need be
        #[arg(long, value_name = "FOLDER")]
        into: Option<PathBuf>,
        #[command(flatten)]
        asked: Asked,
    },
}

pub(super) fn workload(text: &str) -> Result<WorkloadName, String> {
    WorkloadName::parse(text).map_err(|error| format!("{error}, such as shop/web"))
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    hygiene::keep_memory_to_ourselves().context("cannot keep keys out of core files")?;
    let EnvoyCommand::Bootstrap {
        workload,
        control,
        ttl,
        into,
        asked,
    } = args.command;
    if let Some(folder) = &into {
        check_owner(folder, &workload)?;
    }
    let linked: EnvoyLinked = asked.order(&Order::EnvoyLink {
        workload: workload.to_string(),
        ttl_s: ttl.as_secs(),
    })?;
    let control = match control.is_empty() {
        false => control,
        true if linked.listen.ip().is_unspecified() => {
            let port = linked.listen.port();
            return Err(anyhow!(
                "the control plane listens on all addresses: write the one that the Envoy reaches \
                 (--control ADDRESS:{port})"
            )
            .into());
        }
        true => vec![linked.listen],
    };
    if control.iter().all(|address| address.ip().is_loopback()) {
        say(format_args!(
            "heddle: the Envoy is told that the control plane is at {}, which it reaches only in the same network namespace: for \
             another one let the control plane listen on an address there (heddle control --listen)",
            control[0]
        ));
    }
    let trust_domain = TrustDomain::parse(&linked.trust_domain);
    let trust_domain = trust_domain.context("the answer is not understood")?;
    let parts = |link| Bootstrap {
        workload: &workload,
        trust_domain: &trust_domain,
        control: &control,
        link,
    };
    match into {
        None => {
            let whole = bootstrap(&parts(Link::Inline {
                chain: &linked.chain_pem,
                key: &linked.key_pem,
                roots: &linked.roots_pem,
            }));
            super::print(&format!("{whole:#}\n"))?;
        }
        Some(folder) => {
            let made = fs::create_dir_all(&folder);
            made.with_context(|| {
                let folder = folder.display();
                format!("cannot make the folder {folder} (--into names a folder, not a file)")
            })?;
            let folder = fs::canonicalize(&folder)
                .with_context(|| format!("cannot find {}", folder.display()))?;
            write(&folder, LINK_CHAIN, &linked.chain_pem)?;
            write(&folder, LINK_KEY, &linked.key_pem)?;
            write(&folder, LINK_ROOTS, &linked.roots_pem)?;
            let whole = bootstrap(&parts(Link::Folder(&folder)));
            write(&folder, BOOTSTRAP, &format!("{whole:#}\n"))?;
            // Last: the Envoy reads all of it again when one of these is replaced.
            for (file, secret) in link_secrets(&folder) {
                write(&folder, file, &format!("{secret:#}\n"))?;
            }
            say(format_args!(
                "heddle: start it with envoy -c {} --concurrency 1 --disable-hot-restart --drain-time-s 5",
                folder.join(BOOTSTRAP).display()
            ));
        }
    }
    say(format_args!(
        "heddle: the Envoy of {workload} can connect to the control plane until {}",
        utc(linked.not_after)
    ));
    Ok(Exit::Ok)
}

/// Checks that a folder does not have the files of another workload's Envoy, which may be running.
fn check_owner(folder: &Path, workload: &WorkloadName) -> Result<(), Failure> {
    let path = folder.join(BOOTSTRAP);
    // What is not there, or is not understood, is no Envoy's.
    let owner = fs::read(&path).ok().and_then(|text| {
        let text: serde_json::Value = serde_json::from_slice(&text).ok()?;
        Some(text.pointer("/node/id")?.as_str()?.to_owned())
    });
    match owner.filter(|owner| *owner != workload.to_string()) {
        None => Ok(()),
        Some(owner) => Err(anyhow!(
            "{} is of the Envoy of {} (--into another folder, or remove it)",
            path.display(),
            printable(&owner)
        )
        .into()),
    }
}

/// Moves a new file, which only its owner can read, in the place of the one before.
fn write(folder: &Path, name: &str, text: &str) -> Result<(), Failure> {
    let path = folder.join(name);
    let partial = folder.join(format!(".{name}.new"));
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&partial);
    let written = file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    let moved = written.and_then(|()| fs::rename(&partial, &path));
    moved.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}
