//! Writes into etcd: providers, or what else is there at the beginning, in bulk, and then changes at an even pace.
//!
//! Only the messages that this needs of etcd's interface are written down here (`rpc.proto`, version 3). A program that
//! registers one provider (`heddle register`) would be a process for each pod.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ::http::uri::PathAndQuery;
use anyhow::Context;
use prost::Message;
use serde_json::json;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tonic::Request;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::schedule::Schedule;
use super::shape::{
    POD_PORT, Shape, changed_address, first_address, node_name, service_name, service_of,
};

/// How long the leases of the providers live, in seconds: longer than any run.
const LEASE_S: i64 = 3_600;
/// Puts of a transaction: etcd takes 128.
const PUTS: usize = 100;
/// Writes that wait for their answer at one time.
const AT_ONCE: usize = 64;
/// How long etcd may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// A connection to etcd.
#[derive(Clone)]
pub(super) struct Registry {
    channel: Channel,
}

impl Registry {
    /// Connects.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub(super) async fn connect(etcd: SocketAddr) -> anyhow::Result<Registry> {
        let endpoint = Endpoint::from_shared(format!("http://{etcd}"))?;
        let channel = endpoint.tcp_nodelay(true).connect().await;
        let channel = channel.with_context(|| format!("cannot connect to etcd at {etcd}"))?;
        Ok(Registry { channel })
    }

    /// Registers every pod at its first address.
    ///
    /// # Errors
    /// When etcd does not take them.
    pub(super) async fn fill(&self, shape: &Shape) -> anyhow::Result<()> {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut grants = JoinSet::new();
        for service in 0..shape.services {
            let place = Arc::clone(&places).acquire_owned().await?;
            let registry = self.clone();
            grants.spawn(async move {
                let granted = registry.grant(lease_of(service)).await;
                drop(place);
                granted
            });
        }
        while let Some(granted) = grants.join_next().await {
            granted.context("a lease")??;
        }
        let pods = 0..shape.pods;
        self.put_all(pods.map(|pod| provider(shape, pod, first_address(pod))))
            .await
    }

    /// Writes all of these.
    ///
    /// # Errors
    /// When etcd does not take them.
    pub(super) async fn put_all(
        &self,
        puts: impl Iterator<Item = PutRequest>,
    ) -> anyhow::Result<()> {
        let mut puts = puts.map(|put| RequestOp { put: Some(put) });
        loop {
            let success: Vec<RequestOp> = puts.by_ref().take(PUTS).collect();
            if success.is_empty() {
                return Ok(());
            }
            let txn = TxnRequest { success };
            let done: TxnResponse = self.call("/etcdserverpb.KV/Txn", txn).await?;
            anyhow::ensure!(done.succeeded, "etcd takes nothing");
        }
    }

    async fn grant(&self, id: i64) -> anyhow::Result<()> {
        let grant = LeaseGrantRequest { ttl: LEASE_S, id };
        let path = "/etcdserverpb.Lease/LeaseGrant";
        let granted: LeaseGrantResponse = self.call(path, grant).await?;
        anyhow::ensure!(granted.id == id, "etcd grants no lease: {}", granted.error);
        Ok(())
    }

    async fn call<Asked, Answered>(
        &self,
        path: &'static str,
        asked: Asked,
    ) -> anyhow::Result<Answered>
    where
        Asked: Message + Send + Sync + 'static,
        Answered: Message + Default + Send + Sync + 'static,
    {
        let calling = async {
            let mut grpc = Grpc::new(self.channel.clone());
            grpc.ready().await?;
            let codec = ProstCodec::<Asked, Answered>::default();
            let path = PathAndQuery::from_static(path);
            let answer = grpc.unary(Request::new(asked), path, codec).await?;
            anyhow::Ok(answer.into_inner())
        };
        let answer = tokio::time::timeout(ANSWER_WAIT, calling).await;
        answer.context("etcd does not answer")?.context("etcd")
    }
}

/// The lease of a Service's providers. A provider has a lease of its own; here ten share one, which spares etcd nine
/// writes of ten before the beginning. More must not: at each put etcd 3.4 goes through all keys of the lease.
fn lease_of(service: usize) -> i64 {
    i64::try_from(service + 1).unwrap_or(i64::MAX)
}

/// Makes the write that gives a pod an address.
pub(super) type Write = fn(&Shape, usize, Ipv4Addr) -> PutRequest;

/// The write that registers a pod at an address, as `heddle register` makes it.
pub(super) fn provider(shape: &Shape, pod: usize, address: Ipv4Addr) -> PutRequest {
    let service = service_of(pod);
    let lease = lease_of(service);
    let (namespace, service) = service_name(service);
    let value = json!({
        "apiVersion": "heddle.dev/v1alpha1",
        "kind": "LocalWorkload",
        "metadata": {"labels": {"app": service}},
        "spec": {
            "address": address,
            "ports": [{"name": "http", "port": POD_PORT}],
            "nodeName": node_name(shape.node_of(pod)),
        },
    });
    let key = format!("/heddle/v1/providers/{namespace}/{service}/p{pod}");
    PutRequest {
        lease,
        ..PutRequest::new(key, &value)
    }
}

impl PutRequest {
    /// Without a lease.
    pub(super) fn new(key: String, value: &serde_json::Value) -> PutRequest {
        PutRequest {
            key: key.into_bytes(),
            value: value.to_string().into_bytes(),
            lease: 0,
        }
    }
}

/// Writes the changes in a thread of its own, so that what the nodes have to do makes none of them late. The result is
/// how long each took until etcd had it, from when it was due, sorted.
///
/// # Errors
/// When the thread cannot be started.
pub(super) fn write_changes(
    (etcd, make): (SocketAddr, Write),
    schedule: Schedule,
    shape: Arc<Shape>,
) -> anyhow::Result<oneshot::Receiver<anyhow::Result<Vec<Duration>>>> {
    let (done, written) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    thread::Builder::new()
        .name("writer".to_owned())
        .spawn(move || {
            let written = runtime.block_on(write((etcd, make), schedule, shape));
            // The receiver is gone only when the run has failed.
            let _ = done.send(written);
        })?;
    Ok(written)
}

async fn write(
    (etcd, make): (SocketAddr, Write),
    schedule: Schedule,
    shape: Arc<Shape>,
) -> anyhow::Result<Vec<Duration>> {
    // The kernel may otherwise fire timers 50 µs late.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    let registry = Registry::connect(etcd).await?;
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut writes = JoinSet::new();
    for change in schedule.changes() {
        let due = schedule.due(change);
        tokio::time::sleep_until(due.into()).await;
        let place = Arc::clone(&places).acquire_owned().await?;
        let (registry, shape) = (registry.clone(), Arc::clone(&shape));
        writes.spawn(async move {
            let put = make(&shape, schedule.pod(change), changed_address(change));
            let _put: PutResponse = registry.call("/etcdserverpb.KV/Put", put).await?;
            drop(place);
            anyhow::Ok(Instant::now().saturating_duration_since(due))
        });
    }
    let mut took = Vec::with_capacity(schedule.count);
    while let Some(written) = writes.join_next().await {
        took.push(written.context("a write")??);
    }
    took.sort_unstable();
    Ok(took)
}

#[derive(Clone, PartialEq, Message)]
struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    id: i64,
    #[prost(string, tag = "4")]
    error: String,
}

/// A write of one key.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct PutResponse {}

#[derive(Clone, PartialEq, Message)]
struct TxnRequest {
    #[prost(message, repeated, tag = "2")]
    success: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
struct RequestOp {
    #[prost(message, optional, tag = "2")]
    put: Option<PutRequest>,
}

#[derive(Clone, PartialEq, Message)]
struct TxnResponse {
    #[prost(bool, tag = "2")]
    succeeded: bool,
}
