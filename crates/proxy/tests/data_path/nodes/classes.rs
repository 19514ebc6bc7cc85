//! The class of a caller goes along to the other node, by links.

use heddle_model::{AppProtocol, Class, Shared, Workload};
use heddle_proxy::Settings;
use heddle_transport::Protocol;

use super::pair::{Pair, Side};
use crate::policy::{guarded, workload};
use crate::support::{GET, PATIENCE, Upstream, echo_entry, open, wait_until, workers};

/// The sum of a metric of the Workers of a class.
fn of_class(side: &Side, metric: &str, class: Class) -> f64 {
    let workers = side.proxy.status().workers.into_iter();
    let workers = workers.filter(|worker| worker.class == class);
    let all = workers.map(|worker| {
        let label = format!("worker=\"{}\"", worker.id);
        side.metric(metric, &[&label])
    });
    all.sum()
}

/// Links that the Workers of a class have.
fn links(side: &Side, class: Class) -> f64 {
    of_class(side, "heddle_links_active", class)
}

fn expect_links(side: &Side, online: f64, offline: f64) {
    let what = format!("{online} links for online callers, {offline} for offline ones");
    wait_until(&what, PATIENCE, || {
        (links(side, Class::Online), links(side, Class::Offline)) == (online, offline)
    });
}

/// From now on `shop` is of this class, at its own node.
fn set_class(pair: &mut Pair, class: Class) {
    let is_shop = |workload: &&mut Shared<Workload>| workload.name.name.as_str() == "shop";
    let shop = pair.mesh.workloads.iter_mut().find(is_shop);
    shop.unwrap().qos.class = class;
    pair.send(&pair.calling, &pair.mesh);
}

#[test]
fn a_link_of_offline_callers_is_carried_by_workers_for_them() {
    for count in [1, 2] {
        let settings = workers(count, count);
        let upstream = Upstream::new();
        let mesh = guarded(upstream.address, AppProtocol::Http);
        let (mut pair, relay) = Pair::relayed(&settings, mesh, None);
        set_class(&mut pair, Class::Offline);
        wait_until("there is a Worker for shop", PATIENCE, || {
            let workers = pair.calling.proxy.status().workers;
            workers.iter().any(|worker| worker.class == Class::Offline)
        });
        let mut clients = ["shop", "intruder"].map(|caller| pair.sending(caller, GET));
        let mut servers = [upstream.asked(), upstream.asked()];
        for side in [&pair.calling, &pair.called] {
            expect_links(side, 1.0, 1.0);
        }
        // Links that are cut go on where they were.
        relay.cut();
        servers.iter_mut().for_each(|server| server.answer("ok"));
        for client in &mut clients {
            assert_eq!(client.response().text(), "ok");
        }
        for side in [&pair.calling, &pair.called] {
            expect_links(side, 1.0, 1.0);
        }
        pair.called.expect("heddle_links_resumed_total", &[], 2.0);
        pair.called.expect("heddle_links_total", &[], 2.0);
        wait_until("the called node accounts for the class", PATIENCE, || {
            let labels = ["source=\"test/shop\"", "class=\"offline\""];
            pair.called
                .metric("heddle_source_cpu_seconds_total", &labels)
                > 0.0
        });
    }
}

/// What waits for an answer while its caller becomes offline gets it.
#[test]
fn a_request_between_nodes_outlives_a_change_of_its_callers_class() {
    let upstream = Upstream::new();
    let mesh = guarded(upstream.address, AppProtocol::Http);
    let mut pair = Pair::of(&workers(1, 1), mesh);
    let mut client = pair.sending("shop", GET);
    let mut server = upstream.asked();
    set_class(&mut pair, Class::Offline);
    wait_until("there is a Worker for shop", PATIENCE, || {
        let workers = pair.calling.proxy.status().workers;
        workers.iter().any(|worker| worker.class == Class::Offline)
    });
    server.answer("late");
    assert_eq!(client.response().text(), "late");
    client.send(GET);
    upstream.answering("by another link");
    assert_eq!(client.response().text(), "by another link");
    expect_links(&pair.called, 1.0, 1.0);
}

/// Of whatever protocol: the SYN says so. Only for a link, whose caller is proven, such a Worker is started.
#[test]
fn handshakes_of_offline_callers_are_made_by_workers_for_them() {
    for between_nodes in [Protocol::Link, Protocol::Http1, Protocol::Http2] {
        let upstream = Upstream::new();
        let mesh = guarded(upstream.address, AppProtocol::Http);
        let settings = Settings {
            between_nodes,
            ..workers(1, 1)
        };
        let mut pair = Pair::of(&settings, mesh);
        let callers = pair.mesh.workloads.iter_mut();
        callers
            .filter(|workload| workload.name.name.as_str() != "echo")
            .for_each(|caller| caller.qos.class = Class::Offline);
        let has_worker = |side: &Side| {
            wait_until("there is a Worker for offline callers", PATIENCE, || {
                let workers = side.proxy.status().workers;
                workers.iter().any(|worker| worker.class == Class::Offline)
            });
        };
        pair.send(&pair.calling, &pair.mesh);
        has_worker(&pair.calling);
        let shakes = |caller: &str, wanted: [f64; 2]| {
            let mut client = pair.sending(caller, GET);
            upstream.answering("ok");
            assert_eq!(client.response().text(), "ok");
            wait_until("the handshake is counted", PATIENCE, || {
                let classes = [Class::Online, Class::Offline];
                let made = |class| of_class(&pair.called, "heddle_handshakes_total", class);
                classes.map(made) == wanted
            });
        };
        shakes("shop", [1.0, 0.0]);
        // Now the called node has an offline pod itself.
        let mut mesh = pair.mesh.clone();
        let echo = mesh.workloads.iter();
        let echo = echo.filter(|workload| workload.name.name.as_str() == "echo");
        let mut batch = workload("batch", "127.0.0.9:1".parse().unwrap());
        batch.qos.class = Class::Offline;
        batch.node = echo.map(|echo| echo.node.clone()).next().unwrap();
        let name = batch.name.clone();
        mesh.put_workload(batch.into());
        pair.send(&pair.called, &mesh);
        open(&pair.called.proxy, 99, echo_entry(Some(name)));
        has_worker(&pair.called);
        shakes("intruder", [1.0, 1.0]);
    }
}
