//! `heddle check`.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use heddle_model::calendar::utc;
use heddle_model::printable;
use heddle_node::admin::{self, Location};
use heddle_node::exit::{Exit, Failure};
use heddle_node::status::{HeldStatus, IdentityStatus, RegistryStatus};
use heddle_node::table::{self, count};
use heddle_node::time::duration;
use serde::Serialize;

use super::holder::Interception;
use super::status::{StatusAnswer, who};
use crate::colour;
use crate::output::OutputFormat;

#[cfg(test)]
mod tests;

/// Check a running node's identities, and whether an operator should look
///
/// Shows when the certificate of each identity expires and is renewed, what the node trusts, whether the control plane
/// is reached, whether the clock can be right, and until when the node can serve without any renewal. For a node that
/// intercepts: how many pods it serves, by which hooks, and whether there is a guard. For one that follows a registry:
/// whether it is reached, and which of its values are wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heddle check
  heddle check --output json | jq -r '.problems[]'
  heddle check --probe

Exit codes:
  0  all is well
  1  failed
  2  wrong command line
  4  no running heddle answers on the admin socket
  6  degraded: an identity is missing, expired, denied, was not issued in three attempts, or has a quarter
     of its life left without having been renewed; the control plane is away for more than a minute, or
     while certificates are due for renewal; the clock is behind what is certain; or what the control plane
     sent, or the state folder, cannot be used; pods are held, lost or refused by an old guard, or their
     holder does not answer; the registry is not reached, or something in it is wrong. With --probe: pods cannot be enrolled here")]
pub(crate) struct Args {
    /// The admin socket of the running heddle [default: as for `heddle up`]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Socket of the node's holder, which is asked if the proxy does not answer, as for `heddle node --holder-socket`
    #[arg(long, value_name = "PATH")]
    holder_socket: Option<PathBuf>,
    /// How to print it
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: OutputFormat,
    /// Show instead what this machine offers for intercepting the traffic of pods. Tries everything, and leaves nothing
    /// behind; needs root
    #[arg(long, conflicts_with_all = ["socket", "holder_socket"])]
    probe: bool,
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    if args.probe {
        return probe(args.output);
    }
    let at = Location::new(args.socket);
    let answer = admin::get(&at, "/status")
        .map_err(|error| super::node_unanswered(error, &at, args.holder_socket))?;
    let status = match who(&answer).context("the answer is not understood")? {
        StatusAnswer::Node(status) => status,
        StatusAnswer::Control(_) => {
            let said = "a control plane answers there: ask it with heddle status, a node with heddle check";
            return Err(anyhow!(said).into());
        }
    };
    let identity = status.identity.as_ref();
    let registry = status.registry.as_ref().map(|registry| RegistryCheck {
        registry,
        problems: registry_problems(registry, &status.config.problems),
    });
    let interception = status.interception.as_ref().map(Interception::ask);
    let json = json(identity, interception.as_ref(), registry.as_ref());
    let text = || {
        let of_node = match identity {
            Some(identity) => text(identity, interception.as_ref()),
            None => "one node alone: it needs no identities\n".to_owned(),
        };
        let registry = registry.as_ref();
        of_node + &registry.map_or_else(String::new, RegistryCheck::text)
    };
    super::print(
        &args
            .output
            .written(&json.context("the answer has no JSON")?, text)?,
    )?;
    let of_identity = identity.is_some_and(|identity| !identity.problems.is_empty());
    let of_pods = interception.is_some_and(|pods| !pods.problems().is_empty());
    let of_registry = registry.is_some_and(|registry| !registry.problems.is_empty());
    Ok(match of_identity || of_pods || of_registry {
        true => Exit::Degraded,
        false => Exit::Ok,
    })
}

/// Status of the registry, and its problems for the operator.
#[derive(Serialize)]
struct RegistryCheck<'s> {
    #[serde(flatten)]
    registry: &'s RegistryStatus,
    problems: Vec<String>,
}

impl RegistryCheck<'_> {
    fn text(&self) -> String {
        let mut out = registry(self.registry) + "\n";
        // The first line already says why the registry is not reached.
        for problem in self
            .problems
            .iter()
            .filter(|text| Some(*text) != unreached(self.registry).as_ref())
        {
            let _infallible = writeln!(out, "  {}", printable(problem));
        }
        out
    }
}

/// Problems of the registry and of its entries.
fn registry_problems(registry: &RegistryStatus, of_config: &[String]) -> Vec<String> {
    let of_values = of_config.iter().filter(|line| line.starts_with("etcd:"));
    unreached(registry)
        .into_iter()
        .chain(of_values.cloned())
        .collect()
}

fn unreached(registry: &RegistryStatus) -> Option<String> {
    let why = registry.problem.as_deref().unwrap_or("not yet");
    (!registry.connected).then(|| format!("the registry is not reached: {why}"))
}

/// State of the connection to the registry, in one line.
pub(super) fn registry(status: &RegistryStatus) -> String {
    let (endpoint, time) = (printable(&status.endpoint), duration(status.for_s));
    let providers = count(status.providers, "provider");
    let prefix = printable(&status.prefix);
    match (&status.problem, status.connected) {
        (_, true) => format!("registry {endpoint} {prefix}: followed for {time}, {providers}"),
        (None, false) => format!("registry {endpoint} {prefix}: not reached yet, for {time}"),
        (Some(why), false) => format!(
            "registry {endpoint} {prefix}: NOT REACHED for {time}, {providers} as known before: {}",
            printable(why)
        ),
    }
}

/// JSON of the identities, the interception and the registry.
fn json(
    identity: Option<&IdentityStatus>,
    interception: Option<&Interception<'_>>,
    registry: Option<&RegistryCheck<'_>>,
) -> serde_json::Result<serde_json::Value> {
    let mut value = serde_json::to_value(identity)?;
    if let Some(registry) = registry {
        if value.is_null() {
            value = serde_json::json!({});
        }
        if let Some(fields) = value.as_object_mut() {
            fields.insert("registry".to_owned(), serde_json::to_value(registry)?);
        }
    }
    if let (Some(fields), Some(interception)) = (value.as_object_mut(), interception) {
        fields.insert(
            "interception".to_owned(),
            serde_json::to_value(interception)?,
        );
    }
    Ok(value)
}

/// Prints the features that this machine offers for interception.
fn probe(output: OutputFormat) -> Result<Exit, Failure> {
    let found = heddle_intercept::probe::probe();
    super::print(&output.written(&found, || found.to_string())?)?;
    Ok(match found.hooks {
        Some(_) => Exit::Ok,
        None => Exit::Degraded,
    })
}

fn text(status: &IdentityStatus, interception: Option<&Interception<'_>>) -> String {
    let of_pods = interception.map_or(&[][..], Interception::problems);
    let mut out = summary(status, of_pods.len()) + "\n";
    for problem in status.problems.iter().chain(of_pods) {
        let _infallible = writeln!(out, "  {}", printable(problem));
    }
    let _infallible = writeln!(out, "{}", control(status));
    if let Some(trust) = &status.trust {
        let _infallible = writeln!(
            out,
            "trust: bundle {} with {}, deny-list {} with {} in force",
            trust.bundle_generation,
            count(trust.roots, "root"),
            trust.deny_generation,
            match trust.denied {
                1 => "1 entry".to_owned(),
                n => format!("{n} entries"),
            }
        );
    }
    let clock = &status.clock;
    let _infallible = match clock.degraded {
        true => writeln!(
            out,
            "clock: {} what is certain; {} counts",
            colour::bad("BEHIND"),
            utc(clock.now)
        ),
        false => writeln!(out, "clock: {}", utc(clock.now)),
    };
    if let Some(until) = status.serves_until {
        let _infallible = writeln!(out, "{}", lasts(until, clock.now));
    }
    if let Some(interception) = interception {
        let _infallible = writeln!(out, "{}", interception.text());
    }
    if !status.identities.is_empty() {
        out.push('\n');
        out.push_str(&identities(&status.identities, clock.now));
    }
    out
}

/// Name and state of the node, in one line.
///
/// `more` is the number of problems beside those of identities.
pub(super) fn summary(status: &IdentityStatus, more: usize) -> String {
    let name = match &status.trust_domain {
        Some(domain) => format!("node {} of {domain}", status.node),
        None => format!("node {}", status.node),
    };
    let state = match status.problems.len() + more {
        0 => colour::good("all is well"),
        n => colour::bad(format!("DEGRADED, {}", count(n, "problem"))),
    };
    let at = match status.mesh_address {
        Some(address) => format!(", other nodes connect at {address}"),
        None => String::new(),
    };
    let held = count_identities(&status.identities, status.clock.now);
    format!("{}: {state}, {held}{at}", printable(&name))
}

/// Number of usable identities, and of all that are wanted.
fn count_identities(all: &[HeldStatus], now: u64) -> String {
    let serves = |held: &&HeldStatus| {
        held.refused.is_none() && held.not_after.is_some_and(|until| now <= until)
    };
    let held = all.iter().filter(serves).count();
    match all.len() {
        1 => format!("{held} of 1 identity"),
        n => format!("{held} of {n} identities"),
    }
}

fn control(status: &IdentityStatus) -> String {
    let control = &status.control;
    let (address, time) = (printable(&control.address), duration(control.for_s));
    match (&control.problem, control.connected) {
        (_, true) => format!("control plane {address}: connected for {time}"),
        (None, false) => format!("control plane {address}: not reached yet, for {time}"),
        (Some(why), false) => {
            format!(
                "control plane {address}: NOT REACHED for {time}: {}",
                printable(why)
            )
        }
    }
}

fn lasts(until: u64, now: u64) -> String {
    match until.checked_sub(now) {
        Some(left) => format!(
            "service lasts until {}, for {}, if nothing is renewed",
            utc(until),
            duration(left)
        ),
        None => format!("service has been incomplete since {}", utc(until)),
    }
}

fn identities(all: &[HeldStatus], now: u64) -> String {
    let rows = all.iter().map(|held| {
        let expires = held.not_after.map_or_else(|| "-".to_owned(), utc);
        let left = match held.not_after.map(|until| until.checked_sub(now)) {
            None => "no certificate yet".to_owned(),
            Some(None) => "EXPIRED".to_owned(),
            Some(Some(left)) => duration(left),
        };
        let renews_at = match held.renew_at {
            Some(at) if at > now => utc(at),
            // Renewal is due: it is requested until it succeeds.
            _ => "now".to_owned(),
        };
        let attempts = match held.failures {
            0 => None,
            failures => Some(format!("{} failed", count(failures, "attempt"))),
        };
        let refused = held.refused.as_ref().map(|_| "NOT BELIEVED".to_owned());
        let notes: Vec<String> = refused.into_iter().chain(attempts).collect();
        let root = held.root_sha256.as_deref().unwrap_or("-");
        let root = root.get(..16).unwrap_or(root).to_owned();
        [
            held.spiffe_id.clone(),
            root,
            expires,
            left,
            renews_at,
            notes.join(", "),
        ]
    });
    table::render(["IDENTITY", "ROOT", "EXPIRES", "IN", "RENEWS AT", ""], rows)
}
