use super::*;

#[tokio::test]
async fn trust_is_told_at_once_and_as_it_changes() {
    let control = Control::start();
    let client = control.node("n1").await;
    let mut watch = client.watch_trust(0, 0).await.unwrap();
    let first = watch.next().await.unwrap();
    assert_eq!(first.bundle.as_ref().unwrap().generation, 1);
    assert_eq!(first.denied.as_ref().unwrap().generation, 0);

    control.deny(Denied::Identity(workload("cart")));
    let second = watch.next().await.unwrap();
    assert_eq!(second.bundle, None, "only what changed is told");
    assert_eq!(second.denied.unwrap().entries.len(), 1);

    control
        .authority
        .begin_rotation(&NextRoot::Make, at(NOW))
        .unwrap();
    let third = watch.next().await.unwrap();
    let bundle = third.bundle.unwrap();
    assert_eq!((bundle.generation, bundle.roots.len()), (2, 2));

    // A node that is up to date gets only the next change.
    let mut late = control.node("n1").await.watch_trust(2, 1).await.unwrap();
    control.deny(Denied::Identity(workload("web")));
    let update = late.next().await.unwrap();
    assert_eq!(update.bundle, None);
    assert_eq!(update.denied.unwrap().generation, 2);
}

#[tokio::test]
async fn a_rotation_waits_for_those_who_have_not_confirmed() {
    let control = Control::start();
    let names = [node("n1"), node("n2")];
    let mut watches = Vec::new();
    for name in ["n1", "n2"] {
        let client = control.node(name).await;
        let mut watch = client.watch_trust(0, 0).await.unwrap();
        let update = watch.next().await.unwrap();
        watch.confirm_update(&update).await.unwrap();
        watches.push(watch);
    }
    control
        .authority
        .begin_rotation(&NextRoot::Make, at(NOW))
        .unwrap();
    let status = || {
        let bundle = |node: &NodeName| control.nodes.confirmed(node).map(|own| own.bundle);
        control.authority.rotation(&names, bundle)
    };
    assert_eq!(status().stage, Stage::Begun);
    for (watch, left) in watches.iter_mut().zip([1, 0]) {
        let update = watch.next().await.unwrap();
        watch.confirm_update(&update).await.unwrap();
        while status().unconfirmed.len() > left {
            tokio::task::yield_now().await;
        }
    }
    control
        .authority
        .switch_rotation(&status().unconfirmed, false, at(NOW))
        .unwrap();
}

/// A generation above the authority's current one confirms nothing.
#[tokio::test]
async fn a_generation_from_elsewhere_confirms_nothing() {
    let control = Control::start();
    let client = control.node("n1").await;
    let mut watch = client.watch_trust(9, 9).await.unwrap();
    let update = watch.next().await.unwrap();
    assert_eq!(update.bundle.unwrap().generation, 1);
    let confirmed = control.nodes.confirmed(&node("n1")).unwrap();
    assert_eq!((confirmed.bundle, confirmed.denied), (0, 0));
}

#[tokio::test]
async fn watches_end_when_the_node_is_denied() {
    let control = Control::start();
    let client = control.node("n1").await;
    let mut trust = client.watch_trust(0, 0).await.unwrap();
    let mut mesh = discover(&client, &own("n1")).await.unwrap();
    trust.next().await.unwrap();
    mesh.next().await.unwrap();
    control.deny(Denied::Identity(node_id("n1")));
    assert!(refused(trust.next().await).contains("deny-list"));
    assert!(refused(mesh.next().await).contains("deny-list"));
    let mut present = control.nodes.watch_present();
    present
        .wait_for(|present| present.is_empty())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_node_is_told_its_mesh_and_counts_as_present() {
    let control = Control::start();
    let client = control.node("n1").await;
    let mut watch = discover(&client, &own("n1")).await.unwrap();
    let (epoch, mesh) = watch.next().await.unwrap();
    assert_eq!(
        (epoch.as_str(), mesh.generation),
        (control.board.epoch(), 1)
    );
    let address = own("n1").mesh_address;
    assert_eq!(control.nodes.present().get(&node("n1")), Some(&address));

    control.board.put(services(1));
    let (_, mesh) = watch.next().await.unwrap();
    assert_eq!((mesh.generation, mesh.services.len()), (2, 1));

    // The node reconnects with what it has, from another address, before the server sees the old call end.
    let mut again = own("n1");
    again.mesh_address = "[2001:db8::7]:15008".parse().unwrap();
    let Watch {
        discovery: old,
        mut mesh,
    } = watch;
    let discovery = client.discover(&again, &mut mesh).await.unwrap();
    let mut second = Watch { discovery, mesh };
    drop(old);
    control.board.put(services(2));
    let (_, mesh) = second.next().await.unwrap();
    assert_eq!((mesh.generation, mesh.services.len()), (3, 2));
    let present = control.nodes.present();
    assert_eq!(present.get(&node("n1")), Some(&again.mesh_address));

    drop(second);
    let mut present = control.nodes.watch_present();
    present
        .wait_for(|present| present.is_empty())
        .await
        .unwrap();
}

/// A machine with a copy of a node's folder takes the node's place only while it is connected.
#[tokio::test]
async fn when_a_copy_of_a_node_goes_the_node_is_still_there() {
    let control = Control::start();
    join(
        &control.stranger("192.0.2.9").await,
        &control.token("n1"),
        "n1",
    )
    .await
    .unwrap();
    let (real, copy) = (control.node("n1").await, control.node("n1").await);
    let mut elsewhere = own("n1");
    elsewhere.mesh_address = "192.0.2.66:15008".parse().unwrap();
    let (there, away) = (own("n1").mesh_address, elsewhere.mesh_address);
    let at = |present: &Arc<Present>| present.get(&node("n1")).copied();

    let mut watch = discover(&real, &own("n1")).await.unwrap();
    watch.next().await.unwrap();
    assert!(control.nodes.also_at(&node("n1")).is_empty());
    let copied = discover(&copy, &elsewhere).await.unwrap();
    assert_eq!(at(&control.nodes.present()), Some(away));
    assert_eq!(control.nodes.also_at(&node("n1")), [there]);

    drop(copied);
    let mut reached = control.nodes.watch_reached();
    let back = reached.wait_for(|reached| at(reached) == Some(there));
    drop(back.await.unwrap());
    assert_eq!(at(&control.nodes.present()), Some(there));
    assert!(control.nodes.also_at(&node("n1")).is_empty());
    // The stored address, used after a restart, is that one, too.
    while control.authority.members(super::at(NOW))[0].address != Some(there) {
        tokio::task::yield_now().await;
    }

    // The other way round: an old presence that ends changes nothing.
    let _copied = discover(&copy, &elsewhere).await.unwrap();
    drop(watch);
    while !control.nodes.also_at(&node("n1")).is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(at(&control.nodes.reached()), Some(away));
}

#[tokio::test]
async fn who_reads_slowly_gets_the_newest() {
    let control = Control::start();
    let client = control.node("large").await;
    let mut watch = discover(&client, &own("large")).await.unwrap();
    for generation in 2..=500 {
        // All of them change.
        let mut mesh = services(1_000);
        for service in &mut mesh.services {
            service.balancing.slow_start_ms = generation;
        }
        control.board.put(mesh);
        tokio::task::yield_now().await;
    }
    let mut seen = Vec::new();
    while seen.last() != Some(&500) {
        seen.push(watch.next().await.unwrap().1.generation);
    }
    assert!(seen.is_sorted(), "{seen:?}");
    // What was not answered yet holds back the next; all that comes meanwhile is merged into one.
    assert!(seen.len() <= 4, "{seen:?}");
}

#[tokio::test]
async fn a_node_watches_for_itself_and_says_where_it_is() {
    let control = Control::start();
    let client = control.node("n1").await;
    let why = refused(discover(&client, &own("n2")).await);
    assert!(why.contains("its own part"), "{why}");
    for address in [
        "0.0.0.0:15008",
        "192.0.2.7:0",
        "[::]:15008",
        "224.0.0.1:15008",
    ] {
        let mut registration = own("n1");
        registration.mesh_address = address.parse().unwrap();
        let why = refused(discover(&client, &registration).await);
        assert!(why.contains("mesh_address"), "{address}: {why}");
    }
    assert!(control.nodes.present().is_empty());
}
