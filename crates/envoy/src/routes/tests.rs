use std::collections::BTreeMap;
use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3::{RouteConfiguration, RouteList};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_tree::TreeType;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::{MatcherType, on_match};
use heddle_model::{
    AppProtocol, Backend, Balancer, Filters, HeaderEdits, PathMatch, RouteAction, RouteMatch,
};
use prost::Message;

use super::*;

fn name(text: &str) -> ServiceName {
    ServiceName::new("shop", text).expect("a name")
}

fn shop() -> Namespace {
    Namespace::parse("shop").expect("a name")
}

fn service(text: &str, last: u8, routes: Option<Vec<RouteRule>>) -> Service {
    Service {
        name: name(text),
        headless: false,
        addresses: vec![[10, 96, 0, last].into()],
        balancer: Balancer::default(),
        balancing: Default::default(),
        ports: vec![ServicePort {
            name: None,
            port: 80,
            protocol: AppProtocol::Http,
            endpoints: Vec::new(),
            routes,
            consumer_routes: BTreeMap::new(),
        }],
    }
}

fn domain() -> TrustDomain {
    TrustDomain::parse("cluster.local").expect("a name")
}

/// A rule for a path that leads to these Services.
fn rule(path: &str, to: &[&str]) -> RouteRule {
    let backend = |to: &&str| Backend {
        weight: 1,
        target: match *to {
            "" => BackendTarget::Unresolved {
                reason: "it is not there".to_owned(),
            },
            to => BackendTarget::Service {
                service: name(to),
                port: 80,
            },
        },
        filters: Filters::default(),
    };
    RouteRule {
        name: "shop/route".into(),
        rule: 0,
        matcher: RouteMatch {
            path: PathMatch::Prefix(path.to_owned()),
            method: None,
            headers: Vec::new(),
            query: Vec::new(),
        },
        action: Arc::new(RouteAction {
            filters: Filters {
                request: HeaderEdits {
                    set: vec![("x-share".to_owned(), "50%".to_owned())],
                    ..HeaderEdits::default()
                },
                ..Filters::default()
            },
            outcome: Outcome::Forward(to.iter().map(backend).collect()),
            request_timeout_ms: None,
            backend_timeout_ms: None,
        }),
    }
}

fn made(services: &[Service], unknown: Unknown) -> Packed {
    let find = |name: &ServiceName, _: u16| services.iter().find(|one| one.name == *name);
    outbound(services.iter(), &shop(), &find, unknown)
}

/// The table as an Envoy reads it: the routes by address, and the one for anything else.
fn read(packed: &Packed) -> (BTreeMap<String, Vec<Route>>, Route) {
    let any = Any::decode(packed.content.clone()).expect("an Any");
    assert_eq!(any.type_url, crate::Kind::Routes.type_url());
    let configuration = RouteConfiguration::decode(any.value.as_slice()).expect("routes");
    assert!(configuration.most_specific_header_mutations_wins);
    let [host] = configuration.virtual_hosts.as_slice() else {
        panic!("{configuration:?}");
    };
    assert_eq!(host.domains, ["*"]);
    let Some(matcher) = &host.matcher else {
        return (BTreeMap::new(), host.routes[0].clone());
    };
    let Some(MatcherType::MatcherTree(tree)) = &matcher.matcher_type else {
        panic!("{matcher:?}");
    };
    let Some(TreeType::ExactMatchMap(map)) = &tree.tree_type else {
        panic!("{tree:?}");
    };
    let value = |on_match: Option<&on_match::OnMatch>| -> Vec<u8> {
        let Some(on_match::OnMatch::Action(action)) = on_match else {
            panic!("{on_match:?}");
        };
        let config = action.typed_config.as_ref().expect("an action");
        config.value.clone()
    };
    let routes = map.map.iter().map(|(address, on_match)| {
        let list = RouteList::decode(value(on_match.on_match.as_ref()).as_slice());
        (address.clone(), list.expect("a list").routes)
    });
    let otherwise = matcher.on_no_match.as_ref().expect("anything else");
    let unknown = Route::decode(value(otherwise.on_match.as_ref()).as_slice());
    (routes.collect(), unknown.expect("a route"))
}

fn status(route: &Route) -> Option<u32> {
    match &route.action {
        Some(route::Action::DirectResponse(answer)) => Some(answer.status),
        _ => None,
    }
}

#[test]
fn an_envoy_reads_the_table_and_equal_tables_have_equal_bytes() {
    let services: Vec<Service> = (1..50)
        .map(|last| service(&format!("s{last}"), last, None))
        .collect();
    let first = made(&services, Unknown::Gateway);
    let (routes, unknown) = read(&first);
    assert_eq!(routes.len(), services.len());
    assert_eq!(routes["10.96.0.7:80"][0].name, "shop/s7");
    assert_eq!(unknown.name, GATEWAY);
    // The gateway is told where the request was going, and a destination is not.
    assert!(unknown.request_headers_to_remove.is_empty());
    let removed = &routes["10.96.0.7:80"][0].request_headers_to_remove;
    assert!(removed.iter().any(|header| header == ORIGINAL_DST));
    for _ in 0..100 {
        assert_eq!(made(&services, Unknown::Gateway), first);
    }
}

#[test]
fn without_a_service_everything_is_unknown() {
    let (routes, unknown) = read(&made(&[], Unknown::Passthrough));
    assert!(routes.is_empty());
    assert_eq!(unknown.name, PASSTHROUGH);
}

#[test]
fn rules_are_in_order_and_what_none_matches_is_not_found() {
    let rules = vec![rule("/a", &["b"]), rule("", &["c"])];
    let services = [
        service("a", 1, Some(rules)),
        service("b", 2, None),
        service("c", 3, None),
    ];
    let (routes, _) = read(&made(&services, Unknown::Passthrough));
    let of_a = &routes["10.96.0.1:80"];
    assert_eq!(of_a.len(), 3);
    assert_eq!(status(&of_a[2]), Some(404));
    // A percent sign begins a command of Envoy's.
    let added = &of_a[0].request_headers_to_add[0];
    assert_eq!(
        added.header.as_ref().map(|one| one.value.as_str()),
        Some("50%%")
    );
}

#[test]
fn what_cannot_be_said_stays_with_the_gateway_or_is_unavailable() {
    let half_missing = service("a", 1, Some(vec![rule("", &["b", ""])]));
    let services = [half_missing, service("b", 2, None)];
    let (routes, _) = read(&made(&services, Unknown::Gateway));
    assert!(!routes.contains_key("10.96.0.1:80"));
    let (routes, _) = read(&made(&services, Unknown::Passthrough));
    assert_eq!(status(&routes["10.96.0.1:80"][0]), Some(503));
    // All of a rule's backends are missing: that can be said.
    let services = [service("a", 1, Some(vec![rule("", &[""])]))];
    let (routes, _) = read(&made(&services, Unknown::Gateway));
    assert_eq!(status(&routes["10.96.0.1:80"][0]), Some(500));
}

#[test]
fn a_route_leads_to_no_cluster_that_the_envoy_does_not_have() {
    let services = [service("a", 1, Some(vec![rule("", &["elsewhere"])]))];
    let (routes, _) = read(&made(&services, Unknown::Gateway));
    assert!(routes.is_empty());
    let port = &services[0].ports[0];
    let leads_to: Vec<&ServiceName> = backends(port, &shop()).collect();
    assert_eq!(leads_to, [&name("elsewhere")]);
}

#[test]
fn a_gateway_judges_a_request_by_the_endpoints_to_which_its_route_leads() {
    let mut services = vec![
        service("api", 1, None),
        service("cart", 2, None),
        service(
            "web",
            3,
            Some(vec![rule("/cart", &["cart"]), rule("/", &["api", "cart"])]),
        ),
    ];
    for service in &mut services {
        service.ports[0].name = Some(service.name.name.as_str().into());
    }
    let find = |wanted: &ServiceName, _: u16| services.iter().find(|one| one.name == *wanted);
    let asked = std::cell::RefCell::new(Vec::new());
    let judged = |ports: &[&ServicePort], _: Flavour| {
        let names = ports.iter().filter_map(|port| port.name.as_ref());
        let names: Vec<String> = names.map(ToString::to_string).collect();
        asked.borrow_mut().push(names.join(" "));
        None
    };
    forwarded(services.iter(), &domain(), &find, &judged);
    // The last route of the last Service answers what no rule matches.
    assert_eq!(asked.take(), ["api", "cart", "cart", "api cart", ""]);
}

#[test]
fn callers_of_a_namespace_with_routes_of_its_own_have_those_at_a_gateway_too() {
    let mut services = [
        service("api", 1, None),
        service("cart", 2, None),
        service("web", 3, Some(vec![rule("/", &["api"])])),
    ];
    let own = vec![rule("/", &["cart"])];
    services[2].ports[0].consumer_routes.insert(shop(), own);
    let find = |wanted: &ServiceName, _: u16| services.iter().find(|one| one.name == *wanted);
    let packed = forwarded(services.iter(), &domain(), &find, &|_, _| None);
    let (table, _) = read(&packed);
    let routes = &table["10.96.0.3:80"];
    let callers = |route: &Route| {
        let headers = &route.r#match.as_ref().expect("a match").headers;
        let of_caller = headers.iter().filter(|header| header.name == CALLER);
        of_caller.count()
    };
    let shown: Vec<(usize, bool)> = routes
        .iter()
        .map(|route| {
            (
                callers(route),
                format!("{route:?}").contains("shop/cart/80"),
            )
        })
        .collect();
    // Theirs with the answer to what no rule matches, and then those of all others.
    assert_eq!(shown, [(1, true), (1, false), (0, false), (0, false)]);
    assert!(format!("{:?}", routes[0]).contains("spiffe://cluster.local/ns/shop/"));
}

#[test]
fn a_gateway_takes_a_request_to_a_port_of_bytes_as_bytes() {
    let mut services = [service("db", 1, None)];
    services[0].ports[0].protocol = AppProtocol::Tcp;
    let find = |wanted: &ServiceName, _: u16| services.iter().find(|one| one.name == *wanted);
    let asked = std::cell::RefCell::new(Vec::new());
    let judged = |_: &[&ServicePort], flavour: Flavour| {
        asked.borrow_mut().push(flavour);
        None
    };
    let packed = forwarded(services.iter(), &domain(), &find, &judged);
    let (table, _) = read(&packed);
    let [tunnel, request] = table["10.96.0.1:80"].as_slice() else {
        panic!("{table:?}");
    };
    assert!(format!("{tunnel:?}").contains("ConnectMatcher"));
    assert!(format!("{request:?}").contains("shop/db/80/bytes"));
    // The server sees nothing of what only proxies say to each other.
    assert_eq!(request.request_headers_to_remove, [ORIGINAL_DST, CALLER]);
    assert_eq!(asked.take(), [Flavour::Bytes, Flavour::Bytes]);
}
