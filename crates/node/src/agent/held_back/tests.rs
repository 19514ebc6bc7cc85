use super::*;

fn mesh(generation: u64) -> Box<Mesh> {
    Box::new(Mesh {
        generation,
        ..Mesh::default()
    })
}

fn ids(names: &[&str]) -> BTreeSet<SpiffeId> {
    let id = |name: &&str| format!("spiffe://cluster.local/ns/shop/sa/{name}");
    let ids = names.iter().map(id);
    ids.map(|id| SpiffeId::parse(&id).expect("an identity"))
        .collect()
}

fn generation(mesh: Option<Box<Mesh>>) -> Option<u64> {
    mesh.map(|mesh| mesh.generation)
}

#[test]
fn a_mesh_waits_for_new_certificates_but_not_for_long() {
    let mut held = HeldBack::default();
    let began = Instant::now();
    assert_eq!(held.again_in(began), None);
    held.put(mesh(1), began);
    assert!(held.take(ids(&["web"]), true, began).is_none());
    assert_eq!(held.again_in(began), Some(WAITS));
    assert_eq!(generation(held.take(ids(&[]), true, began)), Some(1));
    held.put(mesh(2), began);
    let late = held.take(ids(&["web"]), true, began + WAITS);
    assert_eq!(generation(late), Some(2));
    assert_eq!(held.again_in(began), None);
    // Without a connection there is nothing to wait for.
    held.put(mesh(3), began);
    assert_eq!(generation(held.take(ids(&["cart"]), false, began)), Some(3));
}

/// A certificate that never comes holds up neither one change for ever nor each change anew.
#[test]
fn changes_that_come_often_are_served() {
    let mut held = HeldBack::default();
    let (began, second) = (Instant::now(), Duration::from_secs(1));
    let mut served = Vec::new();
    for number in 0..10 {
        let now = began + second * number;
        held.put(mesh(number.into()), now);
        served.extend(generation(held.take(ids(&["web"]), true, now)));
    }
    // The first ones share one wait; the others do not wait for what was waited for in vain.
    assert_eq!(served, [3, 4, 5, 6, 7, 8, 9]);
    let now = began + second * 20;
    held.put(mesh(20), now);
    assert!(held.take(ids(&["web", "cart"]), true, now).is_none());
    // It has come in the meantime, and is waited for again when it is missing later.
    assert!(held.take(ids(&[]), true, now).is_some());
    held.put(mesh(21), now);
    assert!(held.take(ids(&["web"]), true, now).is_none());
}
