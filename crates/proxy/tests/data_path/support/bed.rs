//! A proxy for the echo Service.

use std::net::SocketAddr;
use std::sync::Arc;

use heddle_model::{Mesh, WorkloadName};
use heddle_proxy::{Entry, Proxy, Settings};
use heddle_telemetry::{AccessLog, Registry};

use super::{
    Client, Log, Response, Upstream, count, echo_entry, expect, expect_rejected, mesh, mirror, open,
};

pub(crate) struct Bed {
    pub(crate) proxy: Proxy,
    pub(crate) registry: Arc<Registry>,
    pub(crate) address: SocketAddr,
    /// Initial number of Workers.
    workers: f64,
}

impl Bed {
    /// A proxy for `test/echo` with these endpoints.
    pub(crate) fn new(endpoints: &[SocketAddr]) -> Bed {
        Bed::of(&mesh(endpoints, None))
    }

    pub(crate) fn of(mesh: &Mesh) -> Bed {
        Bed::with(Settings::default(), mesh)
    }

    pub(crate) fn with(settings: Settings, mesh: &Mesh) -> Bed {
        Bed::start(settings, mesh, None)
    }

    /// As [`Bed::with`], with an access log.
    pub(crate) fn logged(settings: Settings, mesh: &Mesh) -> (Bed, Log) {
        let (log, lines) = Log::open();
        (Bed::start(settings, mesh, Some(log)), lines)
    }

    /// A proxy for an endpoint that sends back each request head.
    pub(crate) fn mirrored() -> Bed {
        Bed::new(&[mirror()])
    }

    /// A proxy for one endpoint that the test scripts.
    pub(crate) fn scripted() -> (Upstream, Bed) {
        Bed::scripted_with(Settings::default())
    }

    pub(crate) fn scripted_with(settings: Settings) -> (Upstream, Bed) {
        let upstream = Upstream::new();
        let bed = Bed::with(settings, &mesh(&[upstream.address], None));
        (upstream, bed)
    }

    /// As [`Bed::scripted_with`], with an access log.
    pub(crate) fn scripted_logged(settings: Settings) -> (Upstream, Bed, Log) {
        let upstream = Upstream::new();
        let (bed, log) = Bed::logged(settings, &mesh(&[upstream.address], None));
        (upstream, bed, log)
    }

    fn start(settings: Settings, mesh: &Mesh, log: Option<AccessLog>) -> Bed {
        let workers = settings.workers.min as f64;
        let registry = Arc::new(Registry::new());
        let proxy = Proxy::start(settings, Arc::clone(&registry), log).unwrap();
        proxy.apply(mesh);
        let address = open(&proxy, 1, echo_entry(None));
        Bed {
            proxy,
            registry,
            address,
            workers,
        }
    }

    /// Applies another mesh, and waits until every Worker uses it.
    pub(crate) fn apply(&self, mesh: &Mesh) {
        self.proxy.apply(mesh);
        let generation = mesh.generation as f64 * self.workers;
        self.expect("heddle_worker_config_generation", &[], generation);
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// A client that has sent these bytes.
    pub(crate) fn sending(&self, bytes: impl AsRef<[u8]>) -> Client {
        self.client().sending(bytes)
    }

    /// Makes the proxy listen as a forward proxy, on the returned address.
    pub(crate) fn forward_proxy(&self) -> SocketAddr {
        let caller = WorkloadName::parse("test/web").unwrap();
        open(&self.proxy, 2, Entry::ForwardProxy { caller })
    }

    /// The response to a request on a connection of its own.
    pub(crate) fn ask(&self, request: impl AsRef<[u8]>) -> Response {
        self.client().ask(request)
    }

    /// The value of a metric, summed over the lines that contain all of `labels`.
    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        count(&self.registry, name, labels)
    }

    /// Waits until a metric has this value: a request is counted just after its response is sent.
    pub(crate) fn expect(&self, name: &str, labels: &[&str], value: f64) {
        expect(&self.registry, name, labels, value);
    }

    /// Waits until this number of requests and connections were refused for this reason.
    pub(crate) fn expect_rejected(&self, reason: &str, times: f64) {
        expect_rejected(&self.registry, reason, times);
    }
}
