use heddle_xds::delta::Versioned;

use super::*;

fn told(world: &mut World, kind: Kind, nonce: &str, new: &[&str], gone: &[&str]) -> Vec<String> {
    let resources = new.iter().map(|name| Versioned {
        name: Name::from(*name),
        version: "1".into(),
        content: Bytes::from((*name).to_owned()),
    });
    let response = Response {
        resources: resources.collect(),
        removed: gone.iter().map(|name| Name::from(*name)).collect(),
        nonce: nonce.into(),
    };
    let response = world.response(kind, response);
    assert_eq!(response.nonce, nonce);
    let texts = response.resources.iter();
    texts
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .collect()
}

fn says(world: &mut World, kind: Kind, nonce: &str, names: &[&str], why: Option<&str>) -> Request {
    let message = WorldRequest {
        resource_names: names.iter().map(ToString::to_string).collect(),
        response_nonce: nonce.to_owned(),
        error_detail: why.map(|why| Refusal {
            message: why.to_owned(),
        }),
        ..WorldRequest::default()
    };
    world.request(kind, message)
}

#[test]
fn clusters_are_told_in_whole_lists() {
    let mut world = World::default();
    let first = says(&mut world, Kind::Cluster, "", &[], None);
    assert_eq!(first, Request::default());
    assert_eq!(
        told(&mut world, Kind::Cluster, "1", &["a", "b"], &[]),
        ["a", "b"]
    );
    assert_eq!(
        told(&mut world, Kind::Cluster, "2", &["c"], &["a"]),
        ["b", "c"]
    );
    assert_eq!(told(&mut world, Kind::Cluster, "3", &[], &["c"]), ["b"]);
}

#[test]
fn what_an_envoy_names_is_told_in_parts_as_it_changes() {
    let mut world = World::default();
    let first = says(&mut world, Kind::Endpoints, "", &["a", "b"], None);
    assert_eq!(first.subscribe, [Name::from("a"), Name::from("b")]);
    assert_eq!(
        told(&mut world, Kind::Endpoints, "1", &["a", "b"], &[]),
        ["a", "b"]
    );
    assert_eq!(told(&mut world, Kind::Endpoints, "2", &["a"], &[]), ["a"]);
    let other = says(&mut world, Kind::Endpoints, "2", &["b", "c"], None);
    assert_eq!((&*other.nonce, other.refused), ("2", None));
    assert_eq!(
        (other.subscribe, other.unsubscribe),
        (vec![Name::from("c")], vec![Name::from("a")])
    );
}

#[test]
fn a_nonce_answers_once_and_one_of_before_answers_nothing() {
    let mut world = World::default();
    told(&mut world, Kind::Listener, "1", &["a"], &[]);
    told(&mut world, Kind::Listener, "2", &["b"], &[]);
    let stale = says(&mut world, Kind::Listener, "1", &[], Some("wrong"));
    assert_eq!((&*stale.nonce, stale.refused), ("", None));
    let refused = says(&mut world, Kind::Listener, "2", &[], Some("wrong"));
    assert_eq!(
        (&*refused.nonce, refused.refused.as_deref()),
        ("2", Some("wrong"))
    );
    let again = says(&mut world, Kind::Listener, "2", &[], Some("wrong"));
    assert_eq!((&*again.nonce, again.refused), ("", None));
}
