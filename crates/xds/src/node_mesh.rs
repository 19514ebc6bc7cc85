//! What a node has of the mesh: resources of all types, kept from one call to the next.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::mem;
use std::net::IpAddr;

use heddle_model::{Dependency, DependencyState, Mesh, NodeName, ServiceName};

use crate::delta::{Held, Name, News, Request, Response, Subscription, Versioned};
use crate::limits::{MAX_EPOCH_BYTES, MAX_MESH_BYTES};
use crate::proto::{DiscoveryRequest, DiscoveryResponse, Resource as Sent, ResourceVersion};
use crate::resources::{InvalidResource, Resource, Type, join};
use crate::trust::Invalid;

#[cfg(test)]
mod tests;

/// Bytes of names and versions of one type with which a node begins a call: one message has them. A node that has more
/// begins anew.
const MAX_VERSIONS_BYTES: usize = 900 * 1024;
/// Bytes of a version in a message beside the name and the version.
const VERSION_MARGIN: usize = 12;
/// Most Services, and most addresses, that a node names: one message has them.
const MAX_DEPENDENCIES: usize = 4_096;
/// Limit of a version, in bytes.
const MAX_VERSION_BYTES: usize = 64;

/// A node's part of the mesh, as far as it is known. No I/O: its owner carries messages.
///
/// What responses bring is used at a mark only: what was changed together is used together.
#[derive(Debug)]
pub struct NodeMesh {
    node: NodeName,
    types: [Subscription; Type::ALL.len()],
    known: BTreeMap<(Type, Name), Known>,
    /// Bytes of all contents.
    bytes: usize,
    /// Whether something has come since the last mark.
    is_new: bool,
    /// Epoch and generation of the last mark.
    mark: Option<(String, u64)>,
    /// How many calls in a row have begun without versions and not come to a mark; 0 otherwise. At the mark, what has not
    /// come in the last of them is gone.
    anew: u64,
    /// Whether the node names what it uses ...
    on_demand: bool,
    /// ... and would, if the control plane could serve that.
    would_name: bool,
    /// First messages of the call that are not sent yet.
    first: VecDeque<(Type, Request)>,
    /// Resources that were refused in the first version that came.
    refused: BTreeSet<(Type, Name)>,
    /// Messages sent in this call.
    sent: u64,
    /// Names without an answer, each with the message that brought it to the control plane in this call.
    unanswered: BTreeMap<(Type, Name), Option<u64>>,
    /// What is known at the last mark of what is used.
    states: BTreeMap<Dependency, DependencyState>,
}

#[derive(Debug)]
struct Known {
    resource: Resource,
    bytes: usize,
    /// [`NodeMesh::anew`] when it came last.
    anew: u64,
}

/// What a node uses from now on.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    /// The run of the control plane that counts generations.
    pub epoch: String,
    /// The node's part of the mesh, with its generation.
    pub mesh: Mesh,
}

impl NodeMesh {
    /// Nothing yet, of a node that wants all that there is for it.
    pub fn new(node: NodeName) -> Self {
        Self::of(node, false)
    }

    /// Nothing yet, of a node that names what it uses. Without being named, there are its workloads and their policies, and
    /// the Services that its workloads are endpoints of, with the nodes of these Services.
    pub fn on_demand(node: NodeName) -> Self {
        Self::of(node, true)
    }

    fn of(node: NodeName, on_demand: bool) -> Self {
        NodeMesh {
            node,
            on_demand,
            would_name: on_demand,
            first: VecDeque::new(),
            refused: BTreeSet::new(),
            sent: 0,
            unanswered: BTreeMap::new(),
            states: BTreeMap::new(),
            types: Type::ALL.map(|kind| Subscription::new(is_whole(kind, on_demand))),
            known: BTreeMap::new(),
            bytes: 0,
            is_new: false,
            mark: None,
            anew: 0,
        }
    }

    /// Begins a call. Versions of what is known go with it, unless they are too many: then everything comes again.
    pub fn connected(&mut self) {
        if self.would_name && !self.on_demand {
            // It may be a newer control plane.
            self.on_demand = true;
            let named = self.types[Type::Address as usize].anew(false);
            self.subscribe_to_addresses(named);
        }
        let mut bytes = [0; Type::ALL.len()];
        let mut is_known = true;
        for (kind, name) in self.known.keys() {
            let held = self.types[*kind as usize].held(name);
            // Without a version it would not be told that the resource is gone.
            let Some(Held::Version(version)) = held else {
                is_known = false;
                break;
            };
            bytes[*kind as usize] += name.len() + version.len() + VERSION_MARGIN;
        }
        for (subscription, bytes) in self.types.iter().zip(&mut bytes) {
            let names = subscription.names().map(|name| name.len() + VERSION_MARGIN);
            *bytes += names.sum::<usize>();
        }
        if !is_known || bytes.iter().any(|bytes| *bytes > MAX_VERSIONS_BYTES) {
            self.begin_anew();
            self.anew += 1;
        }
        // They come again, without a version that this node has.
        self.refused.clear();
        self.sent = 0;
        for message in self.unanswered.values_mut() {
            *message = None;
        }
        // All first messages are made now: a type that is announced must have one, whatever is forgotten in the meantime.
        self.first.clear();
        for kind in Type::ALL {
            let subscription = &mut self.types[kind as usize];
            subscription.connected();
            let request = subscription.request();
            self.first.extend(request.map(|request| (kind, request)));
        }
    }

    /// Forgets all versions. What is wanted stays so.
    fn begin_anew(&mut self) {
        for kind in Type::ALL {
            let subscription = &mut self.types[kind as usize];
            *subscription = subscription.anew(is_whole(kind, self.on_demand));
        }
    }

    /// The types for which there is a message at the beginning of the call.
    pub fn first_types(&self) -> impl Iterator<Item = Type> {
        self.first.iter().map(|(kind, _)| *kind)
    }

    /// Whether the node names what it uses.
    pub fn is_on_demand(&self) -> bool {
        self.on_demand
    }

    /// Uses this from now on. False if it is used already, or too much is.
    pub fn want(&mut self, dependency: &Dependency) -> bool {
        let (kind, name) = (kind_of(dependency), name_of(dependency));
        let subscription = &mut self.types[kind as usize];
        let is_new =
            subscription.names().len() < MAX_DEPENDENCIES && subscription.want(name.clone());
        if is_new {
            self.unanswered.insert((kind, name), None);
        }
        is_new
    }

    /// Does not use this any more. What belongs to nothing else that is used is forgotten at the next mark.
    pub fn forget(&mut self, dependency: &Dependency) {
        let (kind, name) = (kind_of(dependency), name_of(dependency));
        self.types[kind as usize].forget(&name);
        // It is not known any more, whether something is forgotten with it or not.
        self.is_new |= self.states.remove(dependency).is_some();
        self.unanswered.remove(&(kind, name.clone()));
        self.refused.remove(&(kind, name.clone()));
        // The control plane says nothing more about a name that it chooses no resource for.
        if !is_whole(kind, self.on_demand)
            && let Some(before) = self.known.remove(&(kind, name))
        {
            self.bytes -= before.bytes;
            self.is_new = true;
        }
    }

    /// What is known of something that is used, as of the last mark; `None` before the control plane has said it.
    pub fn state(&self, dependency: &Dependency) -> Option<DependencyState> {
        self.states.get(dependency).copied()
    }

    /// The next message to send, if there is something to say.
    pub fn request(&mut self) -> Option<DiscoveryRequest> {
        let first = self.first.pop_front();
        let (kind, request) = first.or_else(|| {
            Type::ALL.into_iter().find_map(|kind| {
                let request = self.types[kind as usize].request()?;
                Some((kind, request))
            })
        })?;
        self.sent += 1;
        for name in &request.subscribe {
            if let Some(sent) = self.unanswered.get_mut(&(kind, name.clone())) {
                *sent = Some(self.sent);
            }
        }
        Some(message(kind, request))
    }

    /// Takes a response. Returns the mesh when it is complete and not the one that is used.
    ///
    /// # Errors
    /// When the response breaks the protocol, or the mesh is larger than [`MAX_MESH_BYTES`]; the call cannot go on then.
    /// A resource that is not understood is refused by itself.
    pub fn accept(&mut self, response: DiscoveryResponse) -> Result<Option<Update>, Invalid> {
        let mark = response.mark.clone();
        if !response.type_url.is_empty() {
            let kind = Type::from_url(&response.type_url).ok_or(Invalid("type_url"))?;
            let is_short = |one: &Sent| one.version.len() <= MAX_VERSION_BYTES;
            if !response.resources.iter().all(is_short) {
                return Err(Invalid("resources.version"));
            }
            self.take(kind, response);
            // What is about to be forgotten may be there until the mark.
            if self.bytes > 2 * MAX_MESH_BYTES {
                return Err(self.too_large());
            }
        }
        let Some(mark) = mark else { return Ok(None) };
        if mark.epoch.len() > MAX_EPOCH_BYTES {
            return Err(Invalid("mark.epoch"));
        }
        self.forget_what_was_not_found();
        if self.bytes > MAX_MESH_BYTES {
            return Err(self.too_large());
        }
        if self.on_demand && mark.requests == 0 {
            self.want_all();
            return Ok(None);
        }
        let (taken, answered) = (mark.requests, self.unanswered.len());
        self.unanswered
            .retain(|_, sent| sent.is_none_or(|sent| sent > taken));
        self.is_new |= self.unanswered.len() < answered;
        let mark = (mark.epoch, mark.generation);
        let is_known = self.mark.as_ref() == Some(&mark);
        if is_known && !mem::take(&mut self.is_new) {
            return Ok(None);
        }
        self.is_new = false;
        self.mark = Some(mark.clone());
        self.find_states();
        let resources = self.known.values().map(|known| &known.resource);
        let mesh = join(resources, &self.node).ok_or(Invalid("mark, before MeshSettings"))?;
        self.find_addresses(&mesh);
        Ok(Some(Update {
            epoch: mark.0,
            mesh: Mesh {
                generation: mark.1,
                named: self.on_demand.then(|| self.named()),
                ..mesh
            },
        }))
    }

    /// The control plane serves no node on demand. It has sent all Services, and sends another mark after all addresses.
    fn want_all(&mut self) {
        self.on_demand = false;
        self.states.clear();
        self.unanswered.clear();
        let all = self.types[Type::Address as usize].anew_on_stream(true);
        self.subscribe_to_addresses(all);
    }

    /// Begins anew with addresses, from another subscription.
    fn subscribe_to_addresses(&mut self, subscription: Subscription) {
        let bytes = &mut self.bytes;
        self.known.retain(|(kind, _), known| {
            let is_kept = *kind != Type::Address;
            *bytes -= if is_kept { 0 } else { known.bytes };
            is_kept
        });
        self.types[Type::Address as usize] = subscription;
        self.is_new = true;
    }

    /// Forgets everything, so that the next call begins from nothing: the mesh may be smaller then.
    fn too_large(&mut self) -> Invalid {
        self.begin_anew();
        let mut nothing = NodeMesh::of(self.node.clone(), self.on_demand);
        nothing.would_name = self.would_name;
        let before = mem::replace(self, nothing);
        self.types = before.types;
        Invalid("resources, which are too large together")
    }

    /// The next mark brings the mesh even if it is the one that is used.
    pub fn tell_again(&mut self) {
        self.mark = None;
    }

    fn take(&mut self, kind: Type, response: DiscoveryResponse) {
        let resources = response.resources.into_iter().map(|resource| Versioned {
            name: resource.name.into(),
            version: resource.version.into(),
            content: resource.content,
        });
        let response = Response {
            resources: resources.collect(),
            removed: response.removed.into_iter().map(Name::from).collect(),
            nonce: response.nonce.into(),
        };
        let news = self.types[kind as usize].accept(response, |name, content| {
            let resource = Resource::decode(kind, name, &content)?;
            Ok::<_, InvalidResource>((resource, name.len() + content.len()))
        });
        for one in news {
            match one {
                News::Is(name, (resource, bytes)) => {
                    let known = Known {
                        resource,
                        bytes,
                        anew: self.anew,
                    };
                    self.refused.remove(&(kind, name.clone()));
                    let before = self.known.insert((kind, name), known);
                    self.bytes += bytes;
                    self.bytes -= before.map_or(0, |before| before.bytes);
                    self.is_new = true;
                }
                News::Absent(name) => {
                    let key = (kind, name);
                    self.is_new |= self.refused.remove(&key);
                    if let Some(before) = self.known.remove(&key) {
                        self.bytes -= before.bytes;
                        self.is_new = true;
                    }
                    // That there is none may be what the node waits for.
                    let held = self.types[kind as usize].held(&key.1);
                    self.is_new |= held == Some(&Held::Absent);
                }
                // The control plane logs it. What was known before stays.
                News::Refused(name, _) => match self.known.get_mut(&(kind, name.clone())) {
                    Some(known) => known.anew = self.anew,
                    // The node may wait for an answer, about it or about its address.
                    None => {
                        self.refused.insert((kind, name));
                        self.is_new = true;
                    }
                },
            }
        }
    }

    fn named(&self) -> Vec<(Dependency, DependencyState)> {
        let states = self.states.iter();
        states.map(|(one, state)| (one.clone(), *state)).collect()
    }

    /// Finds what is known now of what is used. What the control plane said of a name before it had read that this node
    /// wants it is no answer: it may have been about an earlier use.
    fn find_states(&mut self) {
        self.states.clear();
        for kind in [Type::Service, Type::Address] {
            let subscription = &self.types[kind as usize];
            for name in subscription.names() {
                let key = (kind, name.clone());
                if self.unanswered.contains_key(&key) {
                    continue;
                }
                let state = match subscription.held(name) {
                    Some(Held::Version(_)) => DependencyState::There,
                    Some(Held::Absent) => DependencyState::Absent,
                    None if self.refused.contains(&key) => DependencyState::Unreadable,
                    None => continue,
                };
                let dependency = match kind {
                    Type::Service => ServiceName::parse(name).ok().map(Dependency::Service),
                    _ => name.parse().ok().map(Dependency::Address),
                };
                self.states.extend(dependency.map(|one| (one, state)));
            }
        }
    }

    /// An address that is no workload's may be a Service's: its cluster address, or that of an endpoint. It may be any
    /// one's that this node cannot read.
    fn find_addresses(&mut self, mesh: &Mesh) {
        let is_unreadable = self.refused.iter().any(|(kind, _)| *kind == Type::Service);
        let absent =
            |(_, state): &(&Dependency, &mut DependencyState)| **state == DependencyState::Absent;
        let mut absent = self.states.iter_mut().filter(absent).peekable();
        if absent.peek().is_none() {
            return;
        }
        let addresses = mesh.services.iter().flat_map(|service| {
            let ports = service.ports.iter().flat_map(|port| &port.endpoints);
            let endpoints = ports.map(|endpoint| endpoint.address.ip());
            service.addresses.iter().copied().chain(endpoints)
        });
        let addresses: HashSet<IpAddr> = addresses.collect();
        for (dependency, state) in absent {
            let Dependency::Address(address) = dependency else {
                continue;
            };
            if addresses.contains(address) {
                *state = DependencyState::There;
            } else if is_unreadable {
                *state = DependencyState::Unreadable;
            }
        }
    }

    /// After a call that began anew: what has not come again does not exist.
    fn forget_what_was_not_found(&mut self) {
        if self.anew == 0 {
            return;
        }
        let (anew, before) = (self.anew, self.known.len());
        let bytes = &mut self.bytes;
        self.known.retain(|_, known| {
            let is_there = known.anew == anew;
            *bytes -= if is_there { 0 } else { known.bytes };
            is_there
        });
        self.is_new |= self.known.len() < before;
        // Later calls compare versions again.
        for known in self.known.values_mut() {
            known.anew = 0;
        }
        self.anew = 0;
    }
}

fn kind_of(dependency: &Dependency) -> Type {
    match dependency {
        Dependency::Service(_) => Type::Service,
        Dependency::Address(_) => Type::Address,
    }
}

fn name_of(dependency: &Dependency) -> Name {
    match dependency {
        Dependency::Service(service) => service.to_string().into(),
        Dependency::Address(address) => address.to_string().into(),
    }
}

/// Whether a node has all resources of a type that there are for it, without naming them.
fn is_whole(kind: Type, on_demand: bool) -> bool {
    !(on_demand && kind == Type::Address)
}

fn message(kind: Type, request: Request) -> DiscoveryRequest {
    let names = |names: Vec<Name>| names.iter().map(ToString::to_string).collect();
    let versions = request.initial_versions.into_iter();
    let versions = versions.map(|(name, version)| ResourceVersion {
        name: name.to_string(),
        version: version.into(),
    });
    DiscoveryRequest {
        node: None,
        type_url: kind.type_url().to_owned(),
        subscribe: names(request.subscribe),
        unsubscribe: names(request.unsubscribe),
        initial_versions: versions.collect(),
        nonce: request.nonce.into(),
        refused: request.refused.unwrap_or_default(),
    }
}
