//! The types of resources that an Envoy is told.

/// A type of resource, in the order in which a change is told: what others refer to first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// CDS.
    Cluster,
    /// EDS.
    Endpoints,
    /// SDS.
    Secret,
    /// LDS.
    Listener,
    /// RDS.
    Routes,
}

impl Kind {
    /// All of them, in that order.
    pub const ALL: [Kind; 5] = [
        Kind::Cluster,
        Kind::Endpoints,
        Kind::Secret,
        Kind::Listener,
        Kind::Routes,
    ];

    /// The type's URL, as in messages.
    pub fn type_url(self) -> &'static str {
        match self {
            Kind::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Kind::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Kind::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            Kind::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Kind::Routes => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        }
    }

    /// The type with that URL.
    pub fn from_url(url: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.type_url() == url)
    }

    /// Whether an Envoy asks for all there are of the type, and not for each by its name.
    pub(crate) fn is_wildcard(self) -> bool {
        matches!(self, Kind::Cluster | Kind::Listener)
    }

    /// The short name, for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Cluster => "cluster",
            Kind::Endpoints => "endpoints",
            Kind::Secret => "secret",
            Kind::Listener => "listener",
            Kind::Routes => "routes",
        }
    }
}
