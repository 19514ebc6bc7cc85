//! What a node says and has, as `heddle_xds::NodeMesh` does it: the same subscriptions, the same order of messages.
//! Unlike there, resources are read and then dropped, and a mark joins nothing: thousands of nodes are in one process.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet, VecDeque};

use anyhow::Context;
use heddle_xds::delta::{Held, Name, News, Response, Subscription, Versioned};
use heddle_xds::discovery_request;
use heddle_xds::proto::{self, DiscoveryRequest, DiscoveryResponse};
use heddle_xds::resources::{Resource, Type};
use prost::Message;

use super::has::Has;
use super::shape::{self, Shape, service_in};

/// The client's side of one call.
pub(super) struct Machine {
    types: [Subscription; Type::ALL.len()],
    on_demand: bool,
    first: VecDeque<DiscoveryRequest>,
    /// Changes that came since the last mark.
    unmarked: Vec<usize>,
}

/// What a message brought.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) bytes: usize,
    /// Whether it was about a Service that the node uses.
    pub(super) is_owed: bool,
    /// Whether there was a mark, and the changes that it marks.
    pub(super) is_marked: bool,
    pub(super) marked: Vec<usize>,
}

/// Names of nodes, each of which many nodes have.
pub(super) type SharedNames = RefCell<HashSet<Name>>;

impl Machine {
    /// Of a node that names what it uses, or of one that wants everything.
    pub(super) fn new(shape: &Shape, node: usize, on_demand: bool) -> Machine {
        let is_whole = |kind: Type| !(on_demand && kind == Type::Address);
        let mut types = Type::ALL.map(|kind| Subscription::new(is_whole(kind)));
        if on_demand {
            for service in shape.named(node) {
                let (namespace, name) = shape::service_name(*service);
                types[Type::Service as usize].want(format!("{namespace}/{name}").into());
            }
        }
        Machine {
            types,
            on_demand,
            first: VecDeque::new(),
            unmarked: Vec::new(),
        }
    }

    /// Begins a call.
    pub(super) fn connected(&mut self, node: usize) {
        let mut first = VecDeque::new();
        for kind in Type::ALL {
            let subscription = &mut self.types[kind as usize];
            subscription.connected();
            first.extend(
                subscription
                    .request()
                    .map(|request| discovery_request(kind, request)),
            );
        }
        let type_urls = first.iter().map(|one| one.type_url.clone()).collect();
        let on_demand = self.on_demand;
        if let Some(first) = first.front_mut() {
            first.node = Some(proto::Registration {
                node_name: shape::node_name(node),
                mesh_address: shape::node_address(node),
                type_urls,
                on_demand,
            });
        }
        self.first = first;
    }

    /// The next message to send, if there is something to say.
    pub(super) fn request(&mut self) -> Option<DiscoveryRequest> {
        self.first.pop_front().or_else(|| {
            Type::ALL.into_iter().find_map(|kind| {
                let request = self.types[kind as usize].request()?;
                Some(discovery_request(kind, request))
            })
        })
    }

    /// Takes a message, and notes in `has` what the node has from now on. `uses` are the Services that it uses.
    ///
    /// # Errors
    /// When the message breaks the protocol, or a resource cannot be read.
    pub(super) fn take(
        &mut self,
        response: DiscoveryResponse,
        uses: &BTreeSet<usize>,
        names: &SharedNames,
        has: &mut Has,
    ) -> anyhow::Result<Taken> {
        let mut taken = Taken {
            bytes: response.encoded_len(),
            is_marked: response.mark.is_some(),
            ..Taken::default()
        };
        if !response.type_url.is_empty() {
            let kind = Type::from_url(&response.type_url).context("a type that is not known")?;
            let all = response.resources.iter().map(|one| &one.name);
            let mut all = all.chain(&response.removed);
            taken.is_owed = all.any(|name| self.is_owed(kind, name, uses));
            self.accept(kind, response, names, has)?;
        }
        if taken.is_marked {
            has.is_marked = true;
            taken.marked = std::mem::take(&mut self.unmarked);
        }
        Ok(taken)
    }

    /// Whether a node that uses these Services has a use for the resource.
    fn is_owed(&self, kind: Type, name: &str, uses: &BTreeSet<usize>) -> bool {
        match kind {
            Type::Workload | Type::Service | Type::Endpoint => {
                service_in(name).is_some_and(|service| uses.contains(&service))
            }
            Type::Address => !self.on_demand,
            Type::MeshSettings | Type::Node | Type::Policy => false,
        }
    }

    fn accept(
        &mut self,
        kind: Type,
        response: DiscoveryResponse,
        names: &SharedNames,
        has: &mut Has,
    ) -> anyhow::Result<()> {
        let subscription = &mut self.types[kind as usize];
        let is_held = |name: &str| matches!(subscription.held(name), Some(Held::Version(_)));
        let new = response.resources.iter().filter(|one| !is_held(&one.name));
        let gone = response.removed.iter().filter(|name| is_held(name));
        let counted = match kind {
            Type::Endpoint => Some(&mut has.endpoints),
            Type::Node => Some(has.nodes.get_or_insert(0)),
            _ => None,
        };
        if let Some(count) = counted {
            *count = (*count + new.count()).saturating_sub(gone.count());
        }
        let resources = response.resources.into_iter().map(|one| Versioned {
            name: shared(kind, one.name, names),
            version: one.version.into(),
            content: one.content,
        });
        let response = Response {
            resources: resources.collect(),
            removed: response.removed.into_iter().map(Name::from).collect(),
            nonce: response.nonce.into(),
        };
        let read = |name: &Name, content: bytes::Bytes| Resource::decode(kind, name, &content);
        for news in subscription.accept(response, read) {
            match (news, kind) {
                (News::Refused(name, why), _) => anyhow::bail!("{name} cannot be read: {why}"),
                (News::Is(_, Resource::Endpoint(of)), _) => {
                    if let std::net::IpAddr::V4(address) = of.endpoint.address.ip() {
                        self.unmarked.extend(shape::change_of(address));
                    }
                }
                (News::Is(name, _), Type::Service) => has.services.extend(service_in(&name)),
                (News::Absent(name), Type::Service) => {
                    let _ = service_in(&name).map(|service| has.services.remove(&service));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The name, once for all nodes if all of them have it.
fn shared(kind: Type, name: String, names: &SharedNames) -> Name {
    if kind != Type::Node {
        return name.into();
    }
    let mut names = names.borrow_mut();
    if let Some(known) = names.get(name.as_str()) {
        return known.clone();
    }
    let name = Name::from(name);
    names.insert(name.clone());
    name
}
