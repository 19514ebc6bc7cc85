use std::path::Path;

use super::*;
use crate::load_text;

const MESH: &str = include_str!("tests/mesh.yaml");

fn mesh() -> Mesh {
    let (mesh, report) = load_text(Path::new("/mesh/a.yaml"), MESH.as_bytes());
    mesh.unwrap_or_else(|| panic!("{:?}", report.problems))
}

fn asked(from: &str, to: &str, request: Option<(&str, &str)>) -> Result<Explanation, Unexplained> {
    let request = request
        .map(|(method, target)| Request::new(method, target))
        .transpose()?;
    explain(&mesh(), &from.parse()?, &to.parse()?, request.as_ref())
}

fn shown(from: &str, to: &str, request: Option<(&str, &str)>) -> String {
    match asked(from, to, request) {
        Ok(explanation) => explanation.to_string(),
        Err(unexplained) => unexplained.to_string(),
    }
}

#[test]
fn what_is_allowed_and_why() {
    for (from, to, request, expected) in [
        (
            "shop/web",
            "shop/reviews",
            Some(("GET", "/reviews/1?full")),
            "workload shop/web (service account shop/web) → shop/reviews GET /reviews/1?full\n  \
             elsewhere at 10.0.0.9:8080: it is outside the mesh: no node checks who calls\n  \
             allowed at shop/reviews (127.1.0.1:8080): AuthorizationPolicy shop/reviews rules[0]",
        ),
        (
            "shop/sa/cart",
            "shop/workload/reviews:8080",
            Some(("DELETE", "/reviews/1")),
            "service account shop/cart → shop/workload/reviews:8080 DELETE /reviews/1\n  \
             refused at shop/reviews (127.1.0.1:8080): no rule allows it\n    \
             to allow it by rules[0] of AuthorizationPolicy shop/reviews: add service account shop/cart, and \
             add method DELETE\n    \
             to allow it by rules[1] of AuthorizationPolicy shop/reviews: add path /reviews/1, and send x-cart: 1",
        ),
        (
            "shop/sa/cart",
            "shop/workload/reviews",
            None,
            "service account shop/cart → shop/workload/reviews\n  \
             depends at shop/reviews (127.1.0.1:8080): requests are decided one by one: ask with \
             a method and a path\n    \
             rules[1] of AuthorizationPolicy shop/reviews allows some requests",
        ),
        (
            "anonymous",
            "shop/workload/reviews",
            Some(("GET", "/")),
            "an unidentified caller → shop/workload/reviews GET /\n  \
             refused at shop/reviews (127.1.0.1:8080): strict mode: the caller has no identity\n    \
             call through Heddle, so that the caller has an identity\n    \
             or label LocalWorkload shop/reviews or its namespace heddle.dev/mode: permissive",
        ),
        (
            "anonymous",
            "shop/workload/reviews",
            Some(("GET", "/healthz")),
            "an unidentified caller → shop/workload/reviews GET /healthz\n  \
             allowed at shop/reviews (127.1.0.1:8080): a health check of the workload",
        ),
        (
            "anonymous",
            "shop/web",
            None,
            "an unidentified caller → shop/web\n  \
             connect only at shop/web (127.1.0.2:80): a health check of the workload",
        ),
        (
            "shop/sa/bad",
            "shop/web",
            None,
            "service account shop/bad → shop/web\n  \
             refused at shop/web (127.1.0.2:80): AuthorizationPolicy shop/web rules[0]\n    \
             a rule of action DENY goes before all others: narrow or remove rules[0] of \
             AuthorizationPolicy shop/web",
        ),
        (
            "shop/sa/cart",
            "shop/web",
            None,
            "service account shop/cart → shop/web\n  \
             allowed at shop/web (127.1.0.2:80): no policy applies\n    \
             dry run: would be refused: no rule allows it\n    \
             every caller with an identity may call: an AuthorizationPolicy of action ALLOW would \
             say who",
        ),
        (
            "anonymous",
            "open/db",
            None,
            "an unidentified caller → open/db\n  \
             allowed at open/db (127.1.0.3:5432): no policy applies\n    \
             any caller may call: an AuthorizationPolicy of action ALLOW would say who",
        ),
        (
            "shop/web",
            "open/bytes",
            Some(("GET", "/")),
            "workload shop/web (service account shop/web) → open/bytes GET /\n  \
             allowed at open/db (127.1.0.3:5432): no policy applies\n    \
             any caller may call: an AuthorizationPolicy of action ALLOW would say who\n\
             note: 127.1.0.3:5432 is declared tcp or tls: no request is seen there, and the \
             connection is decided as a whole",
        ),
        (
            "shop/web",
            "open/closed",
            None,
            "workload shop/web (service account shop/web) → open/closed\n  \
             refused at open/closed (127.1.0.4:80): no rule allows it\n    \
             AuthorizationPolicy open/closed allows no caller: add a rule",
        ),
        (
            "shop/web",
            "open/empty",
            None,
            "workload shop/web (service account shop/web) → open/empty\nnote: no endpoint answers on port 80: 503",
        ),
    ] {
        assert_eq!(shown(from, to, request), expected);
    }
}

#[test]
fn what_cannot_be_answered_says_how_to_ask() {
    for (from, to, request, expected) in [
        (
            "shop/wbe",
            "shop/web",
            None,
            "there is no workload shop/wbe (did you mean shop/web?)",
        ),
        (
            "shop/web",
            "shop/revews",
            None,
            "there is no Service and no workload shop/revews (did you mean shop/reviews?)",
        ),
        (
            "shop/web",
            "shop/workload/revews",
            None,
            "there is no workload shop/revews (did you mean shop/reviews?)",
        ),
        (
            "shop/web",
            "shop/reviews:81",
            None,
            "Service shop/reviews has no port 81 (it has 80)",
        ),
        (
            "shop/web",
            "shop/reviews:0",
            None,
            "\"0\" is no port (write NAMESPACE/NAME[:PORT] for a Service, or NAMESPACE/workload/NAME[:PORT] for a workload)",
        ),
        (
            "web",
            "shop/web",
            None,
            "\"web\" is no name of the form namespace/name (write NAMESPACE/NAME for a workload, NAMESPACE/sa/NAME for a service account, or anonymous)",
        ),
        (
            "shop/web",
            "shop/web",
            Some(("GET", "/a/../b")),
            "this request is refused: \"/a/../b\" holds '.' or '..' (write the path that it leads to)",
        ),
        (
            "shop/web",
            "shop/web",
            Some(("G T", "/")),
            "\"G T\" is no method (write one such as GET)",
        ),
    ] {
        assert_eq!(shown(from, to, request), expected);
    }
}

#[test]
fn programs_read_it_too() {
    let answer = asked(
        "shop/web",
        "shop/workload/reviews",
        Some(("GET", "/reviews")),
    )
    .unwrap();
    let json = serde_json::to_value(&answer).unwrap();
    assert_eq!(json["identity"], "spiffe://cluster.local/ns/shop/sa/web");
    let endpoint = &json["endpoints"][0];
    assert_eq!(endpoint["outcome"], "allowed");
    assert_eq!(endpoint["policy"], "AuthorizationPolicy shop/reviews");
    assert_eq!(endpoint["rule"], 0);
}

/// The mesh with all of its workloads on node one.
fn on_node_one() -> Mesh {
    let mut mesh = mesh();
    let node = |name: &str| Some(NodeName::parse(name).unwrap());
    for workload in mesh.workloads.iter_mut() {
        workload.node = node("one");
    }
    for port in mesh
        .services
        .iter_mut()
        .flat_map(|service| &mut service.ports)
    {
        for endpoint in port.endpoints.iter_mut().filter(|e| e.account.is_some()) {
            endpoint.node = node("one");
        }
    }
    mesh
}

#[test]
fn who_is_on_the_deny_list_is_refused_between_nodes() {
    let mesh = on_node_one();
    let (web, default) = ("ns/shop/sa/web", "ns/open/sa/default");
    let asked = |denied: &[&str], from: &str| {
        let ids = denied.iter().map(|path| {
            SpiffeId::parse(&format!("spiffe://cluster.local/{path}")).expect("an identity")
        });
        let (from, to) = (from.parse().unwrap(), "open/workload/db".parse().unwrap());
        let answer = explain_denying(&mesh, &ids.collect(), &from, &to, None).unwrap();
        answer.endpoints.into_iter().next().unwrap()
    };
    let refused = |denied: &[&str], from: &str, id: &str| {
        let answer = asked(denied, from);
        assert_eq!(answer.outcome, Outcome::Refused, "{denied:?} {from}");
        let expected = format!("spiffe://cluster.local/{id} is on the deny-list");
        assert!(answer.reason.starts_with(&expected), "{answer}");
        assert!(answer.advice[0].contains("heddle deny list"), "{answer}");
    };
    assert_eq!(asked(&[], "shop/sa/web").outcome, Outcome::Allowed);
    refused(&[web], "shop/sa/web", web);
    // The destination's identity, and its node's.
    refused(&[default], "shop/sa/web", default);
    refused(&["heddle/node/one"], "shop/sa/web", "heddle/node/one");
    // Other callers are not affected, and an anonymous caller does not call through another node.
    assert_eq!(asked(&[web], "shop/sa/cart").outcome, Outcome::Allowed);
    assert_eq!(asked(&[default], "anonymous").outcome, Outcome::Allowed);
    // Within one node no certificate is presented.
    let answer = asked(&[web], "shop/web");
    assert_eq!(answer.outcome, Outcome::Allowed);
    let said = answer.advice.iter().find(|line| line.contains("deny-list"));
    assert!(
        said.is_some_and(|line| line.contains("other nodes refuse it")),
        "{answer}"
    );
}

#[test]
fn a_node_sends_to_the_node_that_decides() {
    let mesh = on_node_one();
    let other = mesh.for_node(&NodeName::parse("two").unwrap());
    let answer = explain(
        &other,
        &"shop/sa/web".parse().unwrap(),
        &"shop/reviews".parse().unwrap(),
        Some(&Request::new("GET", "/it's?a=b").unwrap()),
    );
    let mut answer = answer.unwrap();
    let endpoint = answer.endpoints.remove(1);
    assert_eq!(endpoint.outcome, Outcome::Elsewhere);
    assert_eq!(
        endpoint.reason,
        "node one decides: ask there, or the control plane"
    );
    let command = r"heddle explain shop/sa/web shop/reviews GET '/it'\''s?a=b'";
    assert_eq!(
        endpoint.advice,
        [
            format!("on that node: {command}"),
            format!("where the control plane runs: {command} --control"),
        ]
    );
    // The address of that node is unknown.
    let missing = |answer: &Explanation| {
        let said =
            |note: &String| note.contains("while one has not, callers on other nodes get 503");
        answer.notes.iter().any(said)
    };
    assert!(missing(&answer), "{:?}", answer.notes);

    // If the address is known, there is no note; and of a workload on another node only the account is known.
    let mut there = mesh.for_node(&NodeName::parse("two").unwrap());
    there.nodes = vec![heddle_model::Node {
        name: NodeName::parse("one").unwrap(),
        address: "192.0.2.1:15008".parse().unwrap(),
    }];
    let ask = |from: &str| {
        let (from, to) = (from.parse().unwrap(), "shop/reviews".parse().unwrap());
        explain(&there, &from, &to, None)
    };
    assert!(!missing(&ask("shop/sa/web").unwrap()));
    let said = ask("shop/web").unwrap_err().to_string();
    assert!(
        said.contains("name the service account: NAMESPACE/sa/NAME, shop/sa/web if"),
        "{said}"
    );
}
