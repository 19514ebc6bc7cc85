//! An Envoy, as far as its subscriptions and their consequences go.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use heddle_xds::delta::{Name, Request, Response};

use crate::Kind;

/// A stock Envoy's view of its stream.
#[derive(Debug, Default)]
pub(super) struct Envoy {
    has: [BTreeMap<Name, (Box<str>, Bytes)>; Kind::ALL.len()],
    /// Clusters that wait for their endpoints.
    warming: BTreeSet<Name>,
    /// Clusters that were usable once.
    usable: BTreeSet<Name>,
    /// Services that were deleted at some time: what refers to their clusters may be told later than that these are gone.
    pub(super) deleted: BTreeSet<String>,
    /// Names subscribed to, of the types that are asked for by name.
    subscribed: [BTreeSet<Name>; Kind::ALL.len()],
    /// The nonce of the clusters that are not answered until all are usable.
    withheld: Option<Box<str>>,
    /// Services whose clusters it refuses …
    pub(super) refuses: BTreeSet<String>,
    /// … and those whose clusters it has ever refused.
    pub(super) has_refused: BTreeSet<String>,
    begun: [bool; Kind::ALL.len()],
    says: VecDeque<(Kind, Request)>,
}

impl Envoy {
    /// Begins a stream, as the first one or after another one broke.
    pub(super) fn connect(&mut self) {
        self.says.clear();
        self.withheld = None;
        for kind in Kind::ALL {
            let had = std::mem::take(&mut self.begun[kind as usize]);
            if !had && kind != Kind::Cluster {
                continue;
            }
            let versions = self.has[kind as usize].iter();
            let versions = versions.map(|(name, (version, _))| (name.clone(), version.clone()));
            let request = Request {
                subscribe: self.subscribed[kind as usize].iter().cloned().collect(),
                initial_versions: versions.collect(),
                ..Request::default()
            };
            self.say(kind, request);
        }
    }

    fn say(&mut self, kind: Kind, request: Request) {
        self.begun[kind as usize] = true;
        self.says.push_back((kind, request));
    }

    fn subscribe(&mut self, kind: Kind, name: &Name) {
        if self.subscribed[kind as usize].insert(name.clone()) {
            let request = Request {
                subscribe: vec![name.clone()],
                ..Request::default()
            };
            self.say(kind, request);
        }
    }

    fn accept(&mut self, kind: Kind, nonce: Box<str>) {
        let request = Request {
            nonce,
            ..Request::default()
        };
        self.say(kind, request);
    }

    /// The next message to the control plane.
    pub(super) fn says(&mut self) -> Option<(Kind, Request)> {
        self.says.pop_front()
    }

    pub(super) fn told(&mut self, kind: Kind, response: Response<Bytes>) {
        let (mut names, mut is_refused) = (BTreeSet::new(), false);
        for resource in response.resources {
            assert!(names.insert(resource.name.clone()), "a name comes twice");
            // What it has unsubscribed from meanwhile is passed over.
            let subscribed = &self.subscribed[kind as usize];
            if kind == Kind::Endpoints && !subscribed.contains(&resource.name) {
                continue;
            }
            if kind == Kind::Cluster
                && let Some(service) = service_in(&self.refuses, &resource.name)
            {
                is_refused = true;
                self.has_refused.insert(service.to_owned());
                continue;
            }
            let one = (resource.version, resource.content);
            self.has[kind as usize].insert(resource.name.clone(), one);
            match kind {
                Kind::Cluster => self.set_cluster(&resource.name),
                Kind::Endpoints => {
                    self.warming.remove(&resource.name);
                    self.usable.insert(resource.name);
                }
                Kind::Listener if &*resource.name == "virtual_outbound" => {
                    self.subscribe(Kind::Routes, &Name::from("outbound"));
                }
                _ => {}
            }
        }
        for name in response.removed {
            assert!(names.insert(name.clone()), "a name comes twice");
            self.has[kind as usize].remove(&name);
            match kind {
                Kind::Cluster => self.remove_cluster(&name),
                // A cluster does not wait for endpoints that do not exist: its Service was deleted.
                Kind::Endpoints => drop(self.warming.remove(&name)),
                _ => {}
            }
        }
        match kind {
            Kind::Cluster if is_refused => {
                let request = Request {
                    nonce: response.nonce,
                    refused: Some("it is not good".to_owned()),
                    ..Request::default()
                };
                self.say(kind, request);
                self.begin_listeners();
            }
            // Answered once all are usable.
            Kind::Cluster => self.withheld = Some(response.nonce),
            _ => self.accept(kind, response.nonce),
        }
        if self.warming.is_empty()
            && let Some(nonce) = self.withheld.take()
        {
            self.accept(Kind::Cluster, nonce);
            self.begin_listeners();
        }
    }

    /// Listeners are asked for once clusters are answered.
    fn begin_listeners(&mut self) {
        if !self.begun[Kind::Listener as usize] {
            self.say(Kind::Listener, Request::default());
        }
    }

    fn set_cluster(&mut self, name: &Name) {
        if name.starts_with("heddle-") && &**name != "heddle-gateway" {
            self.usable.insert(name.clone());
            return;
        }
        self.warming.insert(name.clone());
        self.subscribe(Kind::Endpoints, name);
        for secret in ["heddle:leaf", "heddle:roots"] {
            self.subscribe(Kind::Secret, &Name::from(secret));
        }
    }

    fn remove_cluster(&mut self, name: &Name) {
        self.warming.remove(name);
        self.usable.remove(name);
        self.has[Kind::Endpoints as usize].remove(name);
        if self.subscribed[Kind::Endpoints as usize].remove(name) {
            let request = Request {
                unsubscribe: vec![name.clone()],
                ..Request::default()
            };
            self.say(Kind::Endpoints, request);
        }
    }

    /// Checks that whatever is named like a Service's cluster in listeners and routes is a cluster that is usable, unless its
    /// Service was deleted.
    pub(super) fn check(&self) {
        let referring = [Kind::Listener, Kind::Routes].into_iter();
        let referring = referring.flat_map(|kind| self.has[kind as usize].iter());
        for (name, (_, content)) in referring {
            for cluster in clusters_in(content) {
                assert!(
                    self.usable.contains(&*cluster) || self.is_of_deleted(&cluster),
                    "{name} refers to {cluster}, which is not usable: {self:?}"
                );
            }
        }
    }

    /// The clusters to which its routes and listeners lead.
    pub(super) fn refers_to(&self) -> BTreeSet<String> {
        let referring = [Kind::Listener, Kind::Routes].into_iter();
        let referring = referring.flat_map(|kind| self.has[kind as usize].values());
        referring
            .flat_map(|(_, content)| clusters_in(content))
            .collect()
    }

    fn is_of_deleted(&self, cluster: &str) -> bool {
        service_in(&self.deleted, cluster).is_some()
    }

    /// Whether something belongs to a Service whose clusters it has ever refused.
    pub(super) fn is_of_refused(&self, name: &str) -> bool {
        service_in(&self.has_refused, name).is_some()
    }

    /// What it has of a type, by name.
    pub(super) fn has(&self, kind: Kind) -> Vec<(Name, Bytes)> {
        let has = self.has[kind as usize].iter();
        has.map(|(name, (_, content))| (name.clone(), content.clone()))
            .collect()
    }

    /// Whether it waits for nothing.
    pub(super) fn is_settled(&self) -> bool {
        self.warming.is_empty() && self.withheld.is_none()
    }
}

/// The one of these Services to which a cluster belongs.
fn service_in<'s>(services: &'s BTreeSet<String>, cluster: &str) -> Option<&'s str> {
    let mut services = services.iter();
    let found = services.find(|service| cluster.contains(&format!("{service}/")));
    found.map(String::as_str)
}

/// The names of clusters in an encoded listener or route configuration.
fn clusters_in(content: &[u8]) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(content);
    let known = (0..4).flat_map(|service| {
        [
            format!("shop/s{service}/80"),
            format!("shop/s{service}/81/bytes"),
        ]
    });
    known.filter(|cluster| text.contains(cluster)).collect()
}
