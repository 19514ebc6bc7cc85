//! `heddle register`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use heddle_compile::registered::ProviderKey;
use heddle_model::report::Problem;
use heddle_node::arguments::address_and_port;
use heddle_node::exit::{Exit, Failure};
use heddle_node::settings::{GivenSettings, LogFlags};
use heddle_node::time;
use heddle_registry::{MAX_TTL, MIN_TTL, Provider, Registration};

use super::etcd::Etcd;
use crate::register::{self, Plan};
use crate::settings;

/// Register a provider of a Service in etcd, for as long as it lives
///
/// Writes a key with a lease: address, port and labels of one process. A mesh that follows the registry (`heddle up
/// --etcd`, `heddle control --etcd`) sends the Service's requests there within a second. The lease is kept alive until
/// SIGTERM or SIGINT and then taken back at once; if this process dies, it ends by itself (--ttl). When etcd is away or
/// has lost everything, the provider is registered again as soon as possible.
///
/// With a COMMAND, heddle starts it first, registers it once it accepts connections at its address, and ends it with
/// SIGTERM --drain after it was taken back. When it ends by itself it is taken back, and heddle ends with its exit
/// code.
///
/// The Service's selector has to match the labels, and its targetPort the name of the port.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heddle register reviews --address 10.0.0.5:9080 --etcd http://10.0.0.1:2379
  heddle register shop/reviews --address 127.0.0.1:9080 --weight 3 --max-requests 200 \\
    --etcd http://127.0.0.1:2379 -- ./reviews --port 9080
  heddle register shop/reviews --address 10.0.0.5:9080 --label app=reviews --label version=v2 \\
    --etcd https://10.0.0.1:2379,https://10.0.0.2:2379 --etcd-ca ca.pem \\
    --etcd-user reviews --etcd-password-file /run/secrets/etcd

Exit codes:
  0  taken back, after a signal; with a COMMAND that ended, its own (128 and the number of the signal that
     killed it)
  1  failed: etcd refuses it, or could not be told that it is gone; or stopped at once by a second signal
  2  wrong command line
  3  the provider, or the settings, would be refused")]
pub(crate) struct Args {
    /// The Service; without a namespace it is `default`
    #[arg(value_name = "[NAMESPACE/]SERVICE")]
    service: String,
    /// Where the process is called
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address_and_port)]
    address: SocketAddr,
    /// Name that tells it from the Service's other providers [default: its address and port]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Name of the port, as in the Service's targetPort
    #[arg(long, value_name = "NAME", default_value = "http")]
    port_name: String,
    /// A label for selectors to match; may be given several times [default: app=SERVICE]
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Its share of the requests beside other providers [default: 1]
    #[arg(long, value_name = "N")]
    weight: Option<u32>,
    /// Most requests that it takes at a time
    #[arg(long, value_name = "N")]
    max_requests: Option<u32>,
    /// Service account whose identity it has; the folder has to allow it (docs/registry.md) [default: default]
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// The node that it is on, where there are several (`heddle control`)
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// How long it stays registered after its last sign of life
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = ttl)]
    ttl: Duration,
    /// How long a COMMAND is left to finish its requests after it was taken back
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = time::parse, requires = "command")]
    drain: Duration,
    /// Register a COMMAND without waiting until it takes connections
    #[arg(long, requires = "command")]
    at_once: bool,
    /// Settings of the process; flags win over the file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    log: LogFlags,
    /// What to run, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    #[command(flatten)]
    etcd: Etcd,
}

/// Parses `key=value`.
fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("this is no label: write one such as app=reviews".to_owned()),
    }
}

/// Parses the duration of a lease, and checks its range.
fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = time::parse(text)?;
    match (MIN_TTL..=MAX_TTL).contains(&ttl) {
        true => Ok(ttl),
        false => Err(format!(
            "expected {}s to {}s",
            MIN_TTL.as_secs(),
            MAX_TTL.as_secs()
        )),
    }
}

/// Builds the provider's key; the error names the wrong argument.
fn provider_key(namespace: &str, service: &str, name: &str) -> Result<ProviderKey, String> {
    // A valid name, so that only namespace and service are checked here.
    let of_service = ProviderKey::new(namespace, service, "x");
    of_service.map_err(|error| format!("[NAMESPACE/]SERVICE: {error}"))?;
    ProviderKey::new(namespace, service, name).map_err(|error| format!("--name: {error}"))
}

/// Flags that set the fields of a value, with the remedy where the value's own remedy does not fit a flag.
const FLAGS: [(&str, &str, Option<&str>); 7] = [
    ("metadata.labels", "--label", None),
    (
        "metadata.annotations",
        "--max-requests",
        Some("write 1 to 1000000"),
    ),
    ("spec.address", "--address", None),
    ("spec.ports", "--port-name", None),
    (
        "spec.weight",
        "--weight",
        Some("write 1 to 1000000; to take it out, stop this command"),
    ),
    ("spec.serviceAccountName", "--service-account", None),
    ("spec.nodeName", "--node", None),
];

/// Describes a problem of the value in terms of the operator's flags.
fn of_flag(problem: &Problem) -> String {
    let field = problem.field.as_str();
    let found = FLAGS.iter().find(|(begins, ..)| field.starts_with(begins));
    let (place, remedy) = match found {
        Some((_, flag, remedy)) => (format!("{flag} ({field}): "), *remedy),
        None if field.is_empty() => (String::new(), None),
        None => (format!("{field}: "), None),
    };
    let remedy = remedy.unwrap_or(&problem.remedy);
    let remedy = match remedy {
        "" => String::new(),
        remedy => format!(" ({remedy})"),
    };
    format!("{place}{}{remedy}", problem.reason)
}

pub(crate) fn run(args: Args) -> Result<ExitCode, Failure> {
    let refused = |why: String| Failure::new(Exit::Refused, anyhow!(why));
    let mut given = GivenSettings::read(args.config.as_deref())?;
    args.log.over(&mut given);
    args.etcd.over(&mut given);
    let settings = given.checked()?;
    let registry = settings::registry(&settings.registry).map_err(refused)?;
    let (access, layout) = registry.ok_or_else(|| {
        let missing = anyhow!("there is no registry: name one with --etcd http://ADDRESS:2379");
        Failure::new(Exit::Usage, missing)
    })?;

    let (namespace, service) = match args.service.split_once('/') {
        Some((namespace, service)) => (namespace, service),
        None => ("default", args.service.as_str()),
    };
    let name = args.name.unwrap_or_else(|| Provider::name_of(args.address));
    let key = provider_key(namespace, service, &name).map_err(refused)?;
    let mut labels: BTreeMap<String, String> = args.labels.into_iter().collect();
    if labels.is_empty() {
        labels.insert("app".to_owned(), service.to_owned());
    }
    let provider = Provider {
        key,
        address: args.address,
        port_name: Some(args.port_name).filter(|name| !name.is_empty()),
        weight: args.weight,
        max_requests: args.max_requests,
        service_account: args.service_account,
        node: args.node,
        labels,
    };
    let checked = provider.check();
    checked.map_err(|problem| refused(of_flag(&problem)))?;
    let registration = Registration::new(access, &layout, provider, args.ttl);
    let plan = Plan {
        registration: registration.map_err(|error| refused(error.to_string()))?,
        address: args.address,
        command: args.command,
        drain: args.drain,
        at_once: args.at_once,
    };
    register::run(&plan, &settings)
}
