//! One simulated node: connects, follows its part of the mesh, and notes what came.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use heddle_transport::Clock;
use heddle_transport::control::Connector;
use heddle_xds::MAX_DISCOVERY_RESPONSE_BYTES;
use heddle_xds::proto::authority_client::AuthorityClient;
use heddle_xds::proto::discovery_client::DiscoveryClient;
use heddle_xds::proto::{WatchTrustRequest, WatchTrustResponse};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use super::common::{Common, Health};
use super::ledger::Told;
use super::link;
use super::machine::{Machine, Taken};
use super::shape::node_name;
use crate::authority::Authority;

/// How long a connection and the beginning of its calls may take: the control plane may still be reading its manifests.
const BEGINS_WITHIN: Duration = Duration::from_secs(120);
/// Requests of a call that may wait to be sent.
const REQUESTS: usize = 16;
/// How late a slow node answers.
const SLOW: Duration = Duration::from_secs(5);

/// Follows a node's part of the mesh, until its call ends. `place` is given back when the node has everything: all nodes
/// here share one thread, on which those that read a whole mesh would keep others from answering for too long.
///
/// # Errors
/// Why the call has ended.
pub(super) async fn follow(
    common: &Common,
    authority: &Authority,
    number: usize,
    place: OwnedSemaphorePermit,
) -> anyhow::Result<Infallible> {
    let node = &common.nodes[number];
    let leaf = authority.node(&node_name(number))?;
    let clock = Arc::new(Clock::new(0));
    let connector = Connector::joined(&leaf, &Arc::new(authority.trust()?), &clock)?;
    let is_dead = Arc::clone(&node.is_dead.borrow());
    let opening = link::open(common.control, &connector, is_dead, !node.may_die);
    let opened = timeout(BEGINS_WITHIN, opening).await;
    let channel = opened.context("the control plane does not answer")??;
    let trust = timeout(BEGINS_WITHIN, Trust::watch(channel.clone())).await;
    let mut trust = trust.context("no trust")??;

    let (requests, said) = mpsc::channel(REQUESTS);
    let is_on_demand = common.told == Told::Users;
    let mut machine = Machine::new(&common.shape, number, is_on_demand);
    machine.connected(number);
    let first = machine.request();
    requests.send(first.context("nothing is wanted")?).await?;
    let mut client =
        DiscoveryClient::new(channel).max_decoding_message_size(MAX_DISCOVERY_RESPONSE_BYTES);
    let call = timeout(BEGINS_WITHIN, client.stream(ReceiverStream::new(said))).await;
    let mut responses = call.context("no answer to the call")??.into_inner();
    let mut place = Some(place);
    loop {
        while let Some(request) = machine.request() {
            requests.send(request).await?;
        }
        let response = tokio::select! {
            response = responses.message() => response?.context("it has ended")?,
            trusted = trust.next() => {
                trusted?;
                continue;
            }
        };
        let taken = machine.take(
            response,
            &node.uses,
            &common.names,
            &mut node.has.borrow_mut(),
        )?;
        if taken.is_marked {
            drop(place.take());
        }
        common.note(number, taken);
        if node.health.get() == Health::Slow {
            sleep(SLOW).await;
        }
    }
}

impl Common {
    /// Counts a message, and notes what it marks.
    pub(super) fn note(&self, node: usize, taken: Taken) {
        let mut traffic = self.traffic.get();
        traffic.messages += 1;
        traffic.marks += u64::from(taken.is_marked);
        if taken.is_owed {
            traffic.owed_bytes += taken.bytes as u64;
        } else {
            traffic.stray_messages += 1;
            traffic.stray_bytes += taken.bytes as u64;
        }
        self.traffic.set(traffic);
        if let Some(ledger) = &mut *self.ledger.borrow_mut() {
            let now = Instant::now();
            for change in taken.marked {
                ledger.came(node, change, &self.shape, now);
            }
        }
    }
}

/// The stream of trust, which every node has beside its part of the mesh.
struct Trust {
    confirm: mpsc::Sender<WatchTrustRequest>,
    updates: Streaming<WatchTrustResponse>,
    confirmed: WatchTrustRequest,
}

impl Trust {
    async fn watch(channel: Channel) -> anyhow::Result<Trust> {
        let (confirm, said) = mpsc::channel(1);
        confirm.send(WatchTrustRequest::default()).await?;
        let mut client = AuthorityClient::new(channel);
        let updates = client.watch_trust(ReceiverStream::new(said)).await?;
        Ok(Trust {
            confirm,
            updates: updates.into_inner(),
            confirmed: WatchTrustRequest::default(),
        })
    }

    /// Waits for an update, and confirms it.
    async fn next(&mut self) -> anyhow::Result<()> {
        let update = self.updates.message().await?;
        let update = update.context("the stream of trust has ended")?;
        if let Some(bundle) = update.bundle {
            self.confirmed.bundle_generation = bundle.generation;
        }
        if let Some(list) = update.deny_list {
            self.confirmed.deny_generation = list.generation;
        }
        self.confirm.send(self.confirmed).await?;
        Ok(())
    }
}
