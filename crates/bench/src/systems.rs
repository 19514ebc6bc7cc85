//! The proxies under test: how each is configured, started and known to be ready.
//!
//! All get the same work from one description, through the templates in `peers/`: routing by host, path
//! and one header, statistics on, access log off, timeouts, strict header validation, forwarding headers
//! of the proxy's own, upstream pools larger than the number of connections.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use super::account::{self, Memory};
use super::authority::Authority;
use super::child::{Child, Confinement, words};
use super::install::NGINX_STREAM;
use super::meter::Meter;
use super::nodes::{self, NEAR, free_address};

mod pair;
mod row;

pub(super) use pair::{ALLOWED, REFUSED};

/// The timeout until a proxy serves. Under valgrind everything takes fifty times as long.
pub(super) const READY_WITHIN: Duration = Duration::from_secs(60);

/// How long after its start a proxy is idle.
const IDLE: Duration = Duration::from_secs(2);

/// The program of a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProxyKind {
    Heddle,
    Envoy,
    Haproxy,
    Nginx,
    /// The lab's own forwarder, made of the crate `h2` and nothing else.
    H2,
}

/// A proxy to measure.
#[derive(Debug, Clone)]
pub(super) struct System {
    pub(super) name: String,
    pub(super) kind: ProxyKind,
    pub(super) program: PathBuf,
    pub(super) version: String,
    /// A settings file, for a Heddle.
    pub(super) settings: Option<PathBuf>,
    /// Whether a pair of Envoys speaks HTTP/2 with each other. For Heddle, its settings decide that.
    pub(super) http2: bool,
}

/// The traffic that proxies carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Traffic {
    /// HTTP/1.1 through one proxy.
    Http,
    /// Opaque bytes, through one proxy.
    Opaque,
    /// HTTP/1.1 through two proxies of the same kind, with mutual TLS between them and a policy at the
    /// second.
    MutualTls,
    /// Unary calls of gRPC over HTTP/2 in the clear, through one proxy.
    Grpc,
}

/// The traffic, and the services among which a proxy routes it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Work {
    pub(super) traffic: Traffic,
    pub(super) services: Vec<Service>,
    /// The methods that the policy at the second proxy of a pair allows.
    pub(super) methods: &'static [&'static str],
    /// Whether a single Heddle has that policy, too, and a workload as the caller.
    pub(super) policy: bool,
    /// Whether the endpoints are outside of the mesh instead of being its workloads.
    pub(super) elsewhere: bool,
    /// Whether two Envoys speak HTTP/2 with each other: [`System::http2`] of the system that gets this work.
    pub(super) http2: bool,
}

/// A service: requests for `host` below `/api/` go to its endpoints.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Service {
    pub(super) name: String,
    pub(super) host: String,
    pub(super) endpoints: Vec<Endpoint>,
}

/// An address on which an upstream serves.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Endpoint {
    pub(super) address: Ipv4Addr,
    pub(super) port: u16,
}

/// A running proxy, or a running pair of them. Dropping it stops it.
pub(super) struct Running {
    /// In the order in which a request meets them.
    pub(super) proxies: Vec<Child>,
    /// Where the load generator sends: `AUTHORITY@ADDRESS:PORT`.
    pub(super) targets: Vec<String>,
    /// The address at which the second proxy of a pair takes connections of the first.
    pub(super) between: Option<SocketAddr>,
    /// The counters of the first proxy of a pair for the bytes between the two.
    pub(super) meter: Option<Meter>,
    /// Processes that the proxies need and that are not measured. They end after the proxies.
    _beside: Vec<Child>,
    /// The folder of the first proxy, and those of other proxies that have their own.
    dirs: Vec<tempfile::TempDir>,
}

impl Running {
    /// Running proxies, in the order in which a request meets them.
    pub(super) fn of(
        proxies: Vec<Child>,
        targets: Vec<String>,
        beside: Vec<Child>,
        dir: tempfile::TempDir,
    ) -> Running {
        Running {
            proxies,
            targets,
            between: None,
            meter: None,
            _beside: beside,
            dirs: vec![dir],
        }
    }

    /// The process ids of the proxies.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.proxies.iter().map(Child::pid).collect()
    }

    /// Arguments with which the load generator watches all of them together, as `proxy`.
    pub(super) fn watched(&self) -> Vec<OsString> {
        let watch = |pid: u32| words(["--watch", &format!("proxy={pid}")]);
        self.pids().into_iter().flat_map(watch).collect()
    }

    /// Memory of all of them together, after [`IDLE`].
    ///
    /// # Errors
    /// When one is gone.
    pub(super) fn idle_memory(&self) -> anyhow::Result<Memory> {
        thread::park_timeout(IDLE);
        self.pids().into_iter().map(account::memory).sum()
    }

    /// The folder of its files.
    pub(super) fn dir(&self) -> &Path {
        self.dirs[0].path()
    }
}

impl Work {
    /// Work with a number of services and of endpoints of each, on the addresses of one upstream.
    pub(super) fn new(services: u32, endpoints: u32, upstream_port: u16) -> Work {
        let service = |index: u32| Service {
            name: format!("echo{index}"),
            host: format!("echo{index}.lab"),
            endpoints: (index * endpoints..(index + 1) * endpoints)
                .map(|index| Endpoint {
                    address: super::upstream::address(index),
                    port: upstream_port,
                })
                .collect(),
        };
        Work {
            traffic: Traffic::Http,
            services: (0..services).map(service).collect(),
            methods: &["GET"],
            policy: false,
            elsewhere: false,
            http2: false,
        }
    }
}

impl System {
    /// A system with the version that its program prints.
    ///
    /// # Errors
    /// When the program cannot be run.
    pub(super) fn new(name: &str, kind: ProxyKind, program: &Path) -> anyhow::Result<System> {
        let flag = match kind {
            ProxyKind::Heddle | ProxyKind::Envoy | ProxyKind::H2 => "--version",
            ProxyKind::Haproxy | ProxyKind::Nginx => "-v",
        };
        let output = Command::new(program)
            .arg(flag)
            .output()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        Ok(System {
            name: name.to_owned(),
            kind,
            program: program.to_owned(),
            version: version(&text).unwrap_or("unknown").to_owned(),
            settings: None,
            http2: false,
        })
    }

    /// The same Envoy, whose pair uses HTTP/2.
    pub(super) fn over_http2(self) -> System {
        System {
            http2: true,
            ..self
        }
    }

    /// The same Heddle with a settings file.
    pub(super) fn with_settings(self, file: &Path) -> System {
        System {
            settings: Some(file.to_owned()),
            ..self
        }
    }

    /// Starts it and waits until it serves. `wrapper` is put in front of its command line, as for valgrind.
    ///
    /// # Errors
    /// When it does not start or does not serve in time; the end of its log is quoted.
    pub(super) fn start(
        &self,
        work: &Work,
        place: &Confinement,
        wrapper: &[OsString],
    ) -> anyhow::Result<Running> {
        if work.traffic == Traffic::MutualTls {
            anyhow::ensure!(wrapper.is_empty(), "a pair is not wrapped");
            return self.start_pair(work, place, &Authority::new()?);
        }
        let dir = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
        let path = dir.path();
        let listen = free_address()?;
        let admin = free_address()?;
        let file = match self.kind {
            ProxyKind::Heddle => "mesh/lab.yaml",
            ProxyKind::Envoy => "envoy.yaml",
            ProxyKind::Haproxy => "haproxy.cfg",
            ProxyKind::Nginx => "nginx.conf",
            ProxyKind::H2 => "forward.yaml",
        };
        let template = self.template(work)?;
        fs::create_dir(path.join("mesh"))?;
        let config = path.join(file);
        fs::write(&config, configuration(template, work, listen, admin, path)?)?;

        let mut command = wrapper.to_vec();
        command.push(self.program.clone().into());
        command.extend(self.arguments(&config, path));
        let mut child = Child::start(&self.name, place, &command, &path.join("log"), false)?;
        let targets = child.wait_until(READY_WITHIN, || {
            if self.kind == ProxyKind::Heddle {
                self.heddle_targets(path, work)
            } else {
                TcpStream::connect(listen).ok()?;
                let target = |service: &Service| format!("{}@{listen}", service.host);
                Some(work.services.iter().map(target).collect())
            }
        })?;
        Ok(Running::of(vec![child], targets, Vec::new(), dir))
    }

    /// The template of its configuration for that work.
    fn template(&self, work: &Work) -> anyhow::Result<&'static str> {
        use ProxyKind::{Envoy, H2, Haproxy, Heddle, Nginx};
        Ok(match (self.kind, work.traffic) {
            (Heddle, Traffic::Http | Traffic::MutualTls) => {
                include_str!("../peers/heddle.yaml.j2")
            }
            (Heddle, Traffic::Opaque) => include_str!("../peers/heddle-tcp.yaml.j2"),
            (Envoy, Traffic::Http | Traffic::MutualTls) => {
                include_str!("../peers/envoy.yaml.j2")
            }
            (Envoy, Traffic::Opaque) => include_str!("../peers/envoy-tcp.yaml.j2"),
            (Envoy, Traffic::Grpc) => include_str!("../peers/envoy-grpc.yaml.j2"),
            (Haproxy, Traffic::Http | Traffic::MutualTls) => {
                include_str!("../peers/haproxy.cfg.j2")
            }
            (Haproxy, Traffic::Opaque) => include_str!("../peers/haproxy-tcp.cfg.j2"),
            (Haproxy, Traffic::Grpc) => include_str!("../peers/haproxy-grpc.cfg.j2"),
            (Nginx, Traffic::Http | Traffic::MutualTls) => {
                include_str!("../peers/nginx.conf.j2")
            }
            (Nginx, Traffic::Opaque) => include_str!("../peers/nginx-tcp.conf.j2"),
            (H2, Traffic::Grpc) => include_str!("../peers/forward.yaml.j2"),
            (Heddle | Nginx, Traffic::Grpc) | (H2, _) => {
                anyhow::bail!("{} does not carry {:?}", self.name, work.traffic)
            }
        })
    }

    pub(super) fn arguments(&self, config: &Path, dir: &Path) -> Vec<OsString> {
        let config = config.as_os_str();
        match self.kind {
            ProxyKind::Heddle => {
                let mut command = words(["up"]);
                command.push(dir.join("mesh").into());
                command.push("--socket".into());
                command.push(dir.join("admin.sock").into());
                command.extend(words(["--metrics", "127.0.0.1:0"]));
                if let Some(file) = &self.settings {
                    command.push("--config".into());
                    command.push(file.into());
                }
                command
            }
            ProxyKind::Envoy => {
                let fixed = [
                    "--concurrency",
                    "1",
                    "--disable-hot-restart",
                    "--log-level",
                    "warn",
                    "-c",
                ];
                let mut command = words(fixed);
                command.push(config.into());
                command
            }
            ProxyKind::Haproxy => words(["-db".as_ref(), "-f".as_ref(), config]),
            ProxyKind::H2 => words(["grpc-forward".as_ref(), "--config".as_ref(), config]),
            ProxyKind::Nginx => words(["-p".as_ref(), dir.as_os_str(), "-c".as_ref(), config]),
        }
    }

    /// Asks a Heddle on which addresses its services listen; `None` until all of them do.
    fn heddle_targets(&self, dir: &Path, work: &Work) -> Option<Vec<String>> {
        let status = nodes::status(&self.program, &dir.join("admin.sock"))?;
        targets_from_status(&status, work, work.policy.then_some(NEAR))
    }
}

/// The addresses for a workload, or for unidentified callers, in the output of `heddle status --output json`.
fn targets_from_status(json: &[u8], work: &Work, caller: Option<&str>) -> Option<Vec<String>> {
    let status: serde_json::Value = serde_json::from_slice(json).ok()?;
    let listeners = status.get("listeners")?.as_array()?;
    let caller = caller.map(|name| format!("lab/{name}"));
    let target = |service: &Service| {
        let name = format!("lab/{}", service.name);
        let found = listeners.iter().find(|listener| {
            listener["service"] == name.as_str()
                && listener["caller"].as_str() == caller.as_deref()
                && listener["kind"] == "service"
        })?;
        Some(format!("{}@{}", service.host, found["address"].as_str()?))
    };
    work.services.iter().map(target).collect()
}

/// A template filled in for that work.
fn configuration(
    template: &str,
    work: &Work,
    listen: SocketAddr,
    admin: SocketAddr,
    dir: &Path,
) -> anyhow::Result<String> {
    let context = minijinja::context! {
        services => work.services,
        mutual_tls => work.traffic == Traffic::MutualTls,
        policy => work.policy || work.traffic == Traffic::MutualTls,
        methods => work.methods,
        elsewhere => work.elsewhere,
        http2 => work.http2,
        listen => listen.to_string(),
        listen_host => listen.ip().to_string(),
        listen_port => listen.port(),
        admin => admin.to_string(),
        admin_host => admin.ip().to_string(),
        admin_port => admin.port(),
        dir => dir.display().to_string(),
        nginx_stream => NGINX_STREAM,
    };
    render(template, context)
}

/// Fills a template.
///
/// # Errors
/// When the template uses a value that `context` does not have.
pub(super) fn render(template: &str, context: minijinja::Value) -> anyhow::Result<String> {
    let mut environment = minijinja::Environment::new();
    environment.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
    environment.set_keep_trailing_newline(true);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment
        .render_str(template, context)
        .context("template")
}

/// The first word like `1.2` or `1.2.3` in the text that a program prints about itself.
fn version(text: &str) -> Option<&str> {
    text.split(|c: char| c.is_whitespace() || c == '/' || c == '-')
        .find(|word| {
            word.split('.').count() >= 2
                && word
                    .split('.')
                    .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
        })
}

/// A system of that name, for tests that start none.
#[cfg(test)]
pub(super) fn never_started(name: &str, kind: ProxyKind) -> System {
    System {
        name: name.to_owned(),
        kind,
        program: PathBuf::new(),
        version: "1.0".to_owned(),
        settings: None,
        http2: false,
    }
}

#[cfg(test)]
mod tests;
