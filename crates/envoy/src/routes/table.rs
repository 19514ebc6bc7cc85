//! The route configuration, with its table of addresses.
//!
//! The types of Envoy have maps without an order: equal tables would have different bytes, and another version each time. So
//! the messages around the map are written here once more, with as many fields as are used, and a map in order.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use envoy_types::pb::envoy::config::route::v3::{Route, RouteList};
use envoy_types::pb::envoy::r#type::matcher::v3::HttpRequestHeaderMatchInput;
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};

use crate::names::ORIGINAL_DST;
use crate::{Kind, Packed, pack};

/// The routes by original destination.
#[derive(Debug)]
pub(super) struct Table {
    name: &'static str,
    by_address: BTreeMap<String, OnMatch>,
    unknown: Route,
}

impl Table {
    /// A table without addresses.
    pub(super) fn new(name: &'static str, unknown: Route) -> Self {
        Table {
            name,
            by_address: BTreeMap::new(),
            unknown,
        }
    }

    /// Puts the routes for an address.
    pub(super) fn put(&mut self, at: SocketAddr, routes: &[Route]) {
        let list = RouteList {
            routes: routes.to_vec(),
        };
        self.by_address
            .insert(at.to_string(), OnMatch::action("routes", &list));
    }

    /// The configuration as a resource.
    pub(super) fn packed(self) -> Packed {
        let mut host = VirtualHost {
            name: self.name.to_owned(),
            domains: vec!["*".to_owned()],
            ..VirtualHost::default()
        };
        if self.by_address.is_empty() {
            // A table must not be empty.
            host.routes = vec![self.unknown];
        } else {
            let input = HttpRequestHeaderMatchInput {
                header_name: ORIGINAL_DST.to_owned(),
            };
            host.matcher = Some(Matcher {
                matcher_tree: Some(MatcherTree {
                    input: Some(extension("destination", &input)),
                    exact_match_map: Some(MatchMap {
                        map: self.by_address,
                    }),
                }),
                on_no_match: Some(OnMatch::action("unknown", &self.unknown)),
            });
        }
        let configuration = RouteConfiguration {
            name: self.name.to_owned(),
            virtual_hosts: vec![host],
            most_specific_header_mutations_wins: true,
        };
        Packed::of(&Any {
            type_url: Kind::Routes.type_url().to_owned(),
            value: configuration.encode_to_vec(),
        })
    }
}

/// `envoy.config.route.v3.RouteConfiguration`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RouteConfiguration {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    virtual_hosts: Vec<VirtualHost>,
    /// A backend's changes are made after those of its rule.
    #[prost(bool, tag = "10")]
    most_specific_header_mutations_wins: bool,
}

/// `envoy.config.route.v3.VirtualHost`.
#[derive(Clone, PartialEq, Message)]
struct VirtualHost {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, repeated, tag = "2")]
    domains: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    routes: Vec<Route>,
    #[prost(message, optional, tag = "21")]
    matcher: Option<Matcher>,
}

/// `xds.type.matcher.v3.Matcher`.
#[derive(Clone, PartialEq, Message)]
struct Matcher {
    #[prost(message, optional, tag = "2")]
    matcher_tree: Option<MatcherTree>,
    #[prost(message, optional, tag = "3")]
    on_no_match: Option<OnMatch>,
}

/// `xds.type.matcher.v3.Matcher.MatcherTree`.
#[derive(Clone, PartialEq, Message)]
struct MatcherTree {
    #[prost(message, optional, tag = "1")]
    input: Option<Extension>,
    #[prost(message, optional, tag = "2")]
    exact_match_map: Option<MatchMap>,
}

/// `xds.type.matcher.v3.Matcher.MatcherTree.MatchMap`.
#[derive(Clone, PartialEq, Message)]
struct MatchMap {
    #[prost(btree_map = "string, message", tag = "1")]
    map: BTreeMap<String, OnMatch>,
}

/// `xds.type.matcher.v3.Matcher.OnMatch`.
#[derive(Clone, PartialEq, Message)]
struct OnMatch {
    #[prost(message, optional, tag = "2")]
    action: Option<Extension>,
}

/// `xds.core.v3.TypedExtensionConfig`.
#[derive(Clone, PartialEq, Message)]
struct Extension {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    typed_config: Option<Any>,
}

impl OnMatch {
    fn action<M: Message + Name>(name: &str, action: &M) -> Self {
        OnMatch {
            action: Some(extension(name, action)),
        }
    }
}

fn extension<M: Message + Name>(name: &str, config: &M) -> Extension {
    Extension {
        name: name.to_owned(),
        typed_config: Some(pack(config)),
    }
}
