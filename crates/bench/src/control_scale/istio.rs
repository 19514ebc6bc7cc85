//! Istio's control plane beside Heddle's: its istiod with an API server of Kubernetes, on the same mesh.
//!
//! ```text
//! writer ── 200 changes/s ──▶ etcd ──▶ kube-apiserver ──▶ istiod ══ a connection each ══▶ nodes as ztunnels are
//! ```
//!
//! A ztunnel is the proxy of a node, as Heddle's is, so the nodes are as many. It speaks the workload discovery service:
//! delta xDS, in which every pod is a resource. It wants all of them, or on demand those behind the addresses that its
//! pods call.
//!
//! What is to istiod's advantage: objects are written where the API server keeps them, so that no write goes through it;
//! nodes connect without TLS; they do not say their names, since on demand istiod would look through all pods for those of a
//! node at each push; a change is one write to a pod that stays; and changes are gathered for a time that suits the mesh
//! ([`debounce`]), not for up to ten seconds, as istiod does when they do not cease. To its disadvantage: the API server
//! decodes objects from JSON, where a cluster keeps its own binary form.
//!
//! | module | is |
//! |---|---|
//! | [`objects`] | the mesh as objects of Kubernetes |
//! | [`proto`] | messages of delta xDS and of workload discovery |
//! | [`ztunnel`] | one simulated node |

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::KeyPair;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::json;
use tempfile::TempDir;

use super::common::{ControlPlane, Processes};
use super::ledger::Told;
use super::registry::Registry;
use super::shape::Shape;
use crate::ask;
use crate::authority::{Authority, write_private};
use crate::child::{Child, Confinement, words};
use crate::etcd;
use crate::install::IstioPrograms;
use crate::nodes::free_address;

mod objects;
mod proto;
pub(super) mod ztunnel;

/// How long istiod gathers changes before it pushes them: the one with the least p99 of those that were tried, from
/// 10 ms to 300 ms.
fn debounce(shape: &Shape, told: Told) -> &'static str {
    match (shape.pods, told) {
        (..500, _) => "10ms",
        (..2_000, _) => "40ms",
        (_, Told::Users) => "100ms",
        (_, Told::All) => "300ms",
    }
}

/// How long a process may take until it is ready: it reads all objects first.
const READY_WITHIN: Duration = Duration::from_secs(180);
/// How long an API server may take for one answer, before it is asked again.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// The token of istiod, which may do everything.
const TOKEN: &str = "lab";

/// Starts etcd with all objects, an API server and istiod.
///
/// # Errors
/// When one does not start, or is not ready in time; the end of its log is quoted.
pub(super) async fn start(
    programs: &IstioPrograms,
    (shape, told): (&Shape, Told),
    dir: TempDir,
) -> anyhow::Result<Processes> {
    let place = Confinement::default();
    let (etcd, etcd_at) = etcd::start(&programs.etcd, &place, dir.path())?;
    let registry = Registry::connect(etcd_at).await?;
    registry.put_all(objects::all(shape)).await?;
    let api = ApiServer::start(&programs.apiserver, etcd_at, dir.path())?;
    let debounce = debounce(shape, told);
    let (control, control_at) = start_istiod(&programs.istiod, (&api, debounce), dir.path())?;
    Ok(Processes {
        control,
        control_at,
        system: ControlPlane::Istio,
        store: vec![api.process, etcd],
        etcd_at,
        write: objects::pod,
        dir,
    })
}

struct ApiServer {
    process: Child,
    address: SocketAddr,
}

impl ApiServer {
    fn start(program: &Path, etcd: SocketAddr, dir: &Path) -> anyhow::Result<ApiServer> {
        let address = free_address()?;
        let authority = Authority::new()?;
        let file = |name: &str| dir.join(name);
        authority.write_root(dir)?;
        let server = authority.server(IpAddr::V4(Ipv4Addr::LOCALHOST))?;
        server.write(dir, "apiserver")?;
        // Accounts get no tokens here, but the API server does not start without a key for them.
        let accounts = KeyPair::generate()?;
        write_private(&file("accounts.key"), &accounts.serialize_pem())?;
        write_private(&file("accounts.pub"), &accounts.public_key_pem())?;
        write_private(&file("tokens"), &format!("{TOKEN},lab,1,system:masters\n"))?;
        let mut command = words([program]);
        let paths = [
            ("--tls-cert-file", "apiserver.pem"),
            ("--tls-private-key-file", "apiserver.key"),
            ("--service-account-signing-key-file", "accounts.key"),
            ("--service-account-key-file", "accounts.pub"),
            ("--token-auth-file", "tokens"),
            ("--cert-dir", "certificates"),
        ];
        for (flag, name) in paths {
            command.extend(words([flag.as_ref(), file(name).as_os_str()]));
        }
        command.extend(words([
            &format!("--etcd-servers=http://{etcd}"),
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            &format!("--secure-port={}", address.port()),
            "--authorization-mode=RBAC",
            &format!("--service-cluster-ip-range={}", objects::SERVICES),
            "--service-account-issuer=https://kubernetes.default.svc",
            "--endpoint-reconciler-type=none",
            "--disable-admission-plugins=ServiceAccount",
        ]));
        let log = file("apiserver.log");
        let mut process = Child::start(
            "kube-apiserver",
            &Confinement::default(),
            &command,
            &log,
            false,
        )?;
        let config = Arc::new(trusting(&authority)?);
        process.wait_until(READY_WITHIN, || is_ready(address, &config).ok())?;
        Ok(ApiServer { process, address })
    }
}

fn trusting(authority: &Authority) -> anyhow::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config
        .with_root_certificates(authority.roots()?)
        .with_no_client_auth())
}

fn is_ready(address: SocketAddr, config: &Arc<ClientConfig>) -> anyhow::Result<()> {
    let name = ServerName::IpAddress(address.ip().into());
    let connection = ClientConnection::new(Arc::clone(config), name)?;
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
    stream.set_write_timeout(Some(ANSWERS_WITHIN))?;
    ask::page(StreamOwned::new(connection, stream), "/readyz", 1 << 16).map(drop)
}

fn start_istiod(
    program: &Path,
    (api, debounce): (&ApiServer, &str),
    dir: &Path,
) -> anyhow::Result<(Child, SocketAddr)> {
    let kubeconfig = dir.join("kubeconfig");
    let server = json!({
        "server": format!("https://{}", api.address),
        "certificate-authority": dir.join("root.pem"),
    });
    // JSON is YAML.
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": server}],
        "users": [{"name": "lab", "user": {"token": TOKEN}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
    });
    write_private(&kubeconfig, &text.to_string())?;
    let [http, https, grpc, secure, monitoring] = [(); 5].map(|()| free_address());
    let (http, grpc) = (http?, grpc?);
    let namespace = format!("POD_NAMESPACE={}", objects::ISTIO);
    let mut command = words(["env", &namespace, "PILOT_ENABLE_AMBIENT=true"]);
    command.extend(words([
        &format!("PILOT_DEBOUNCE_AFTER={debounce}"),
        &format!("PILOT_DEBOUNCE_MAX={debounce}"),
        // Nodes connect as fast as it takes them.
        "PILOT_MAX_REQUESTS_PER_SECOND=10000",
        // As many pushes at one time as istiod makes on the largest machines.
        "PILOT_PUSH_THROTTLE=100",
        "MUTEX_PROFILE_FRACTION=0",
        // Nothing is injected and nothing validated.
        "INJECTION_WEBHOOK_CONFIG_NAME=",
        "VALIDATION_WEBHOOK_CONFIG_NAME=",
    ]));
    command.extend(words([program.as_os_str(), "discovery".as_ref()]));
    command.extend(words(["--kubeconfig".as_ref(), kubeconfig.as_os_str()]));
    // Otherwise it writes a line for each push to each node.
    command.extend(words(["--log_output_level=default:warn"]));
    let ports = [
        ("--httpAddr", http),
        ("--httpsAddr", https?),
        ("--grpcAddr", grpc),
        ("--secureGRPCAddr", secure?),
        ("--monitoringAddr", monitoring?),
    ];
    for (flag, address) in ports {
        command.extend(words([flag, &address.to_string()]));
    }
    let log = dir.join("istiod.log");
    let mut process = Child::start("istiod", &Confinement::default(), &command, &log, false)?;
    process.wait_until(READY_WITHIN, || ask::get(http, "/ready").ok())?;
    Ok((process, grpc))
}
