//! `heddle root`.

use std::fmt::Write;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use heddle_model::calendar::utc;
use heddle_model::printable;
use heddle_node::exit::{Exit, Failure, say};
use heddle_node::table::count;
use heddle_node::time::{self, duration};

use super::Asked;
use crate::order::{Order, RootStage, RootStatus, SuppliedRoot};

/// Most nodes that are named in a list.
const NAMED: usize = 10;
/// How long `--force` waits for nodes to confirm that they trust a new root.
const FORCE_WAITS: Duration = Duration::from_secs(5);
/// Time between two queries of a rotation's progress.
const ASK_EVERY: Duration = Duration::from_millis(300);

/// Look at the root of the mesh, or replace it
///
/// The root is what every node trusts for every identity. It is replaced in steps, so that no node is
/// refused on the way: every node trusts both, then the new one signs, then, when everything that the old one
/// signed has expired, the new one is trusted alone.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: RootCommand,
}

#[derive(Debug, clap::Subcommand)]
enum RootCommand {
    /// Show which root signs, until when, and how far a rotation is
    #[command(after_help = "Exit codes:
  0  answered
  1  failed
  2  wrong command line
  4  no running heddle answers on the admin socket")]
    Status {
        #[command(flatten)]
        asked: Asked,
    },
    /// Replace the root, in one command
    ///
    /// Begins, waits until every node that holds a certificate has confirmed that it trusts both roots, and
    /// switches to the new one. The rest happens by itself, when everything that the old root signed has
    /// expired. When this command is interrupted, the rotation goes on all the same; called again, it
    /// says that it has joined the rotation, since when that is under way and how far it is, and waits again.
    /// A rotation survives restarts of the control plane.
    ///
    /// Nodes that are away are waited for until their certificates expire. When one is gone for good, deny
    /// its identity (`heddle deny add`), or go on without it by force: it has to join again. Join tokens
    /// that were made before the switch are void after it.
    #[command(after_help = "Examples:
  heddle root rotate
  heddle root rotate --wait 10m
  heddle root rotate --force
  heddle root rotate --certificate next.pem --key next.key

Exit codes:
  0  the new root signs
  1  failed, refused, or not switched within --wait
  2  wrong command line
  4  no running heddle answers on the admin socket")]
    Rotate {
        /// Take the next step at once: switch without nodes that have not confirmed, or, when the new root
        /// signs already, drop the old one although what it signed may be in use
        #[arg(long)]
        force: bool,
        /// Use this root instead of making one: its certificate in PEM
        #[arg(long, value_name = "FILE", requires = "key")]
        certificate: Option<PathBuf>,
        /// With --certificate: its private key in PEM, of ECDSA P-256 or P-384, unencrypted
        #[arg(long, value_name = "FILE", requires = "certificate")]
        key: Option<PathBuf>,
        /// Longest wait for nodes [default: no limit]
        #[arg(long, value_name = "DURATION", value_parser = time::parse)]
        wait: Option<Duration>,
        #[command(flatten)]
        asked: Asked,
    },
    /// Cancel a rotation before the new root signs
    #[command(after_help = "Exit codes: as for `heddle root rotate`")]
    Cancel {
        #[command(flatten)]
        asked: Asked,
    },
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    match args.command {
        RootCommand::Status { asked } => {
            let status: RootStatus = asked.order(&Order::RootStatus)?;
            asked.show(&status, text)
        }
        RootCommand::Rotate {
            force,
            certificate,
            key,
            wait,
            asked,
        } => {
            let supplied = certificate.zip(key).map(supplied).transpose()?;
            let order = Order::RootRotate {
                force: false,
                supplied,
            };
            match force {
                false => rotate(&asked, &order, wait),
                true => rotate_by_force(&asked, &order),
            }
        }
        RootCommand::Cancel { asked } => {
            let status: RootStatus = asked.order(&Order::RootCancel)?;
            asked.show(&status, |_| {
                "the rotation was given up: the old root is trusted alone again\n".to_owned()
            })
        }
    }?;
    Ok(Exit::Ok)
}

/// Makes the paths absolute: the control plane reads the files, and may have another working directory.
fn supplied((certificate, key): (PathBuf, PathBuf)) -> Result<SuppliedRoot, Failure> {
    let absolute = |path: PathBuf| {
        std::path::absolute(&path).with_context(|| format!("cannot find {}", path.display()))
    };
    Ok(SuppliedRoot {
        certificate: absolute(certificate)?,
        key: absolute(key)?,
    })
}

fn rotate(asked: &Asked, order: &Order, wait: Option<Duration>) -> Result<(), Failure> {
    let began = Instant::now();
    let mut status: RootStatus = asked.order(order)?;
    let joined = status.joined;
    if joined {
        say(format_args!("heddle: {}", joining(&status)));
    }
    let mut said = None;
    while status.stage == RootStage::Begun {
        if said.as_ref() != Some(&status.waits_for) {
            say(format_args!("heddle: waiting: {}", waiting(&status)));
            said = Some(status.waits_for.clone());
        }
        if wait.is_some_and(|wait| began.elapsed() >= wait) {
            return Err(anyhow!(
                "{}; the rotation goes on by itself when they have (or call it with --force, or \
                 `heddle root cancel`)",
                waiting(&status)
            )
            .into());
        }
        thread::park_timeout(ASK_EVERY);
        status = asked.order(&Order::RootStatus)?;
        // A rotation cannot finish between two queries, so steady means that it was cancelled.
        if status.stage == RootStage::Steady {
            return Err(anyhow!("the rotation was given up meanwhile").into());
        }
    }
    asked.show(&RootStatus { joined, ..status }, text)
}

/// Connected nodes confirm within moments, so the short wait skips only nodes that are away.
fn rotate_by_force(asked: &Asked, begin: &Order) -> Result<(), Failure> {
    let status: RootStatus = asked.order(&Order::RootStatus)?;
    if status.stage == RootStage::Steady {
        let mut status: RootStatus = asked.order(begin)?;
        let began = Instant::now();
        while status.stage == RootStage::Begun && began.elapsed() < FORCE_WAITS {
            thread::park_timeout(ASK_EVERY);
            status = asked.order(&Order::RootStatus)?;
        }
        if status.stage != RootStage::Begun {
            return asked.show(&status, text);
        }
    }
    let force = Order::RootRotate {
        force: true,
        supplied: None,
    };
    // Printed before the order: its last step ends the rotation that this command joined.
    if status.stage != RootStage::Steady {
        say(format_args!("heddle: {}", joining(&status)));
    }
    let status: RootStatus = asked.order(&force)?;
    asked.show(&status, text)
}

/// Message that a rotation was already under way, since when, and its stage.
fn joining(status: &RootStatus) -> String {
    let stage = match status.stage {
        RootStage::Begun => "two roots are trusted, the old one signs",
        RootStage::Switched => "two roots are trusted, the new one signs",
        RootStage::Steady => "it is over",
    };
    format!("joined the rotation{}: {stage}", since(status))
}

/// When the current rotation began, if that is known.
fn since(status: &RootStatus) -> String {
    match status.began_at {
        Some(at) => format!(
            " that began at {}, {} ago",
            utc(at),
            duration(status.now.saturating_sub(at))
        ),
        None => " that is under way".to_owned(),
    }
}

fn waiting(status: &RootStatus) -> String {
    let waits = &status.waits_for;
    if waits.is_empty() {
        return "every node trusts both roots, switching".to_owned();
    }
    format!(
        "{} not confirmed the new root: {}",
        some_have(waits, status),
        named(waits)
    )
}

/// Nodes that have not confirmed their trust since the control plane started; no rotation waits for them.
fn unheard(status: &RootStatus) -> String {
    format!(
        "{} not confirmed what they trust since the control plane started: {}",
        some_have(&status.unheard, status),
        named(&status.unheard)
    )
}

fn some_have(some: &[String], status: &RootStatus) -> String {
    match status.nodes {
        1 => format!("{} of 1 node has", some.len()),
        nodes => format!("{} of {nodes} nodes have", some.len()),
    }
}

/// The first [`NAMED`] nodes, and the number of the others.
fn named(nodes: &[String]) -> String {
    let named: Vec<&str> = nodes.iter().take(NAMED).map(String::as_str).collect();
    let named = printable(&named.join(", ")).to_string();
    match nodes.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// State of the root as text.
pub(super) fn text(status: &RootStatus) -> String {
    let left = duration(status.expires.saturating_sub(status.now));
    let digest = status.sha256.get(..16).unwrap_or(&status.sha256);
    let (digest, expires) = (printable(digest), utc(status.expires));
    let mut out = match status.site {
        true => {
            format!("a site of root {digest}, its intermediate expires at {expires}, in {left}\n")
        }
        false => {
            format!("root {digest}, its signing certificate expires at {expires}, in {left}\n")
        }
    };
    let _infallible = match status.stage {
        RootStage::Steady => writeln!(
            out,
            "no rotation under way; {}",
            match status.unheard.is_empty() {
                true => format!("trusted by {}", count(status.nodes, "node")),
                false => unheard(status),
            }
        ),
        RootStage::Begun => writeln!(
            out,
            "rotation{}: two roots are trusted, the old one signs; {}",
            since(status),
            waiting(status)
        ),
        RootStage::Switched => {
            let old = status.old_until.map(utc).unwrap_or_default();
            let finish = status.finish_from.map(utc).unwrap_or_default();
            writeln!(
                out,
                "rotation{}: the new root signs; certificates of the old one may be in use until {old}, and it is \
                 no longer trusted from {finish} on{}",
                since(status),
                match status.waits_for.is_empty() {
                    true => String::new(),
                    false => format!("; {}", waiting(status)),
                }
            )
        }
    };
    out
}
