//! What a node has of the mesh: resources of all types, kept from one call to the next.

use std::collections::BTreeMap;
use std::mem;

use heddle_model::{Mesh, NodeName};

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
        NodeMesh {
            node,
            types: Type::ALL.map(|_| Subscription::new(true)),
            known: BTreeMap::new(),
            bytes: 0,
            is_new: false,
            mark: None,
            anew: 0,
        }
    }

    /// Begins a call. Versions of what is known go with it, unless they are too many: then everything comes again.
    pub fn connected(&mut self) {
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
        if !is_known || bytes.iter().any(|bytes| *bytes > MAX_VERSIONS_BYTES) {
            self.types = Type::ALL.map(|_| Subscription::new(true));
            self.anew += 1;
        }
        for subscription in &mut self.types {
            subscription.connected();
        }
    }

    /// The next message to send, if there is something to say.
    pub fn request(&mut self) -> Option<DiscoveryRequest> {
        Type::ALL.into_iter().find_map(|kind| {
            let request = self.types[kind as usize].request()?;
            Some(message(kind, request))
        })
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
        let mark = (mark.epoch, mark.generation);
        let is_known = self.mark.as_ref() == Some(&mark);
        if is_known && !mem::take(&mut self.is_new) {
            return Ok(None);
        }
        self.is_new = false;
        self.mark = Some(mark.clone());
        let resources = self.known.values().map(|known| &known.resource);
        let mesh = join(resources, &self.node).ok_or(Invalid("mark, before MeshSettings"))?;
        Ok(Some(Update {
            epoch: mark.0,
            mesh: Mesh {
                generation: mark.1,
                ..mesh
            },
        }))
    }

    /// Forgets everything, so that the next call begins from nothing: the mesh may be smaller then.
    fn too_large(&mut self) -> Invalid {
        *self = NodeMesh::new(self.node.clone());
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
                    let before = self.known.insert((kind, name), known);
                    self.bytes += bytes;
                    self.bytes -= before.map_or(0, |before| before.bytes);
                    self.is_new = true;
                }
                News::Absent(name) => {
                    if let Some(before) = self.known.remove(&(kind, name)) {
                        self.bytes -= before.bytes;
                        self.is_new = true;
                    }
                }
                // The control plane logs it. What was known before stays.
                News::Refused(name, _) => {
                    if let Some(known) = self.known.get_mut(&(kind, name)) {
                        known.anew = self.anew;
                    }
                }
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
