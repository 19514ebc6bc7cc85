//! What a node has of the mesh: resources of all types, kept from one call to the next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;

use heddle_model::{Dependency, DependencyState, Mesh, NodeName, WorkloadName};

use crate::delta::{Held, Name, News, Request, Response, Subscription, Versioned};
use crate::limits::{MAX_EPOCH_BYTES, MAX_MESH_BYTES};
use crate::message::discovery_request;
use crate::proto::{DiscoveryRequest, DiscoveryResponse, Resource as Sent};
use crate::resources::{InvalidResource, JoinedMesh, Resource, Type, workload_name};
use crate::trust::Invalid;
use states::{States, Touched};

mod states;
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
    /// The resources that there are.
    known: BTreeMap<(Type, Name), Known>,
    /// Their contents.
    joined: JoinedMesh,
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
    states: States,
}

#[derive(Debug)]
struct Known {
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
    /// The answers to names that have come with this mesh, or may be others now: what may be new of [`Mesh::named`], if
    /// the mesh has that.
    pub answered: Vec<(Dependency, DependencyState)>,
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
            joined: JoinedMesh::new(node.clone()),
            node,
            on_demand,
            would_name: on_demand,
            first: VecDeque::new(),
            refused: BTreeSet::new(),
            sent: 0,
            unanswered: BTreeMap::new(),
            states: States::default(),
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
        self.states.touched = Touched::All;
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
        let key = (kind, name);
        // It is not known any more, whether something is forgotten with it or not.
        self.states.touched.add(&key);
        self.is_new |= !self.unanswered.contains_key(&key);
        self.unanswered.remove(&key);
        self.refused.remove(&key);
        // The control plane says nothing more about a name that it chooses no resource for.
        if !is_whole(kind, self.on_demand) {
            self.remove(&key);
        }
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
        Some(discovery_request(kind, request))
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
        let (states, is_new) = (&mut self.states, &mut self.is_new);
        self.unanswered.retain(|key, sent| {
            let is_open = sent.is_none_or(|sent| sent > mark.requests);
            if !is_open {
                states.touched.add(key);
                *is_new = true;
            }
            is_open
        });
        let mark = (mark.epoch, mark.generation);
        let is_known = self.mark.as_ref() == Some(&mark);
        if is_known && !mem::take(&mut self.is_new) {
            return Ok(None);
        }
        self.is_new = false;
        self.mark = Some(mark.clone());
        if self.on_demand {
            self.joined.find_addresses();
        }
        let mesh = self.joined.mesh();
        let mut mesh = mesh.ok_or(Invalid("mark, before MeshSettings"))?.clone();
        let moved = self.joined.take_moved();
        self.touch_addresses(moved);
        let answered = self.find_states();
        mesh.generation = mark.1;
        mesh.unreadable = self.unreadable();
        mesh.named = self.on_demand.then(|| self.states.all());
        Ok(Some(Update {
            epoch: mark.0,
            mesh,
            answered,
        }))
    }

    /// The workloads of which only a form has come that is not understood.
    fn unreadable(&self) -> Vec<WorkloadName> {
        let refused = self.refused.iter();
        let workloads = refused.filter(|(kind, _)| *kind == Type::Workload);
        let names = workloads.filter_map(|(_, name)| workload_name(name).ok());
        let names: BTreeSet<WorkloadName> = names.collect();
        names.into_iter().collect()
    }

    /// The control plane serves no node on demand. It has sent all Services, and sends another mark after all addresses.
    fn want_all(&mut self) {
        self.on_demand = false;
        self.states = States::default();
        self.unanswered.clear();
        let all = self.types[Type::Address as usize].anew_on_stream(true);
        self.subscribe_to_addresses(all);
    }

    /// Begins anew with addresses, from another subscription.
    fn subscribe_to_addresses(&mut self, subscription: Subscription) {
        self.retain(|kind, _| kind != Type::Address);
        self.types[Type::Address as usize] = subscription;
        self.states.touched = Touched::All;
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
                        bytes,
                        anew: self.anew,
                    };
                    let key = (kind, name);
                    self.refused.remove(&key);
                    self.touch(&key);
                    self.joined.put(resource);
                    let before = self.known.insert(key, known);
                    self.bytes += bytes;
                    self.bytes -= before.map_or(0, |before| before.bytes);
                    self.is_new = true;
                }
                News::Absent(name) => {
                    let key = (kind, name);
                    self.is_new |= self.refused.remove(&key);
                    self.touch(&key);
                    self.remove(&key);
                    // That there is none may be what the node waits for.
                    let held = self.types[kind as usize].held(&key.1);
                    self.is_new |= held == Some(&Held::Absent);
                }
                // The control plane logs it. What was known before stays.
                News::Refused(name, _) => {
                    let key = (kind, name);
                    self.touch(&key);
                    match self.known.get_mut(&key) {
                        Some(known) => known.anew = self.anew,
                        // The node may wait for an answer, about it or about its address.
                        None => {
                            self.refused.insert(key);
                            self.is_new = true;
                        }
                    }
                }
            }
        }
    }

    /// Forgets a resource, if there is one.
    fn remove(&mut self, key: &(Type, Name)) {
        if let Some(before) = self.known.remove(key) {
            self.joined.remove(key.0, &key.1);
            self.bytes -= before.bytes;
            self.is_new = true;
        }
    }

    /// Forgets the resources that are not to be kept.
    fn retain(&mut self, is_kept: impl Fn(Type, &Known) -> bool) {
        let (bytes, joined, is_new) = (&mut self.bytes, &mut self.joined, &mut self.is_new);
        self.known.retain(|(kind, name), known| {
            let is_kept = is_kept(*kind, known);
            if !is_kept {
                joined.remove(*kind, name);
                *bytes -= known.bytes;
                *is_new = true;
            }
            is_kept
        });
    }

    /// After a call that began anew: what has not come again does not exist.
    fn forget_what_was_not_found(&mut self) {
        if self.anew == 0 {
            return;
        }
        let anew = self.anew;
        self.retain(|_, known| known.anew == anew);
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
