//! Callers of each class have Workers of their own.

use std::net::SocketAddr;

use heddle_model::{AppProtocol, Class, Mesh, WorkloadName};
use heddle_proxy::WorkerStatus;

use crate::policy::workload;
use crate::support::{
    Bed, Client, GET, PATIENCE, Upstream, echo_entry, mesh, open, serve, speaking, wait_until,
    workers,
};

/// The mesh, with a calling workload `test/batch` of this class.
fn with_caller(mut mesh: Mesh, class: Class) -> Mesh {
    let mut batch = workload("batch", "127.0.0.9:1".parse().unwrap());
    batch.qos.class = class;
    mesh.put_workload(batch.into());
    mesh
}

fn open_for_batch(bed: &Bed) -> SocketAddr {
    let caller = WorkloadName::parse("test/batch").unwrap();
    open(&bed.proxy, 7, echo_entry(Some(caller)))
}

/// The Workers of a class that do not retire.
fn workers_of(bed: &Bed, class: Class) -> Vec<WorkerStatus> {
    let all = bed.proxy.status().workers.into_iter();
    all.filter(|worker| worker.class == class && !worker.retiring)
        .collect()
}

/// Waits until the Workers of each class have this many connections.
fn expect_connections(bed: &Bed, online: i64, offline: i64) {
    let of = |class| -> i64 {
        let workers = bed.proxy.status().workers.into_iter();
        let workers = workers.filter(|worker| worker.class == class);
        workers.map(|worker| worker.connections_active).sum()
    };
    let what = format!("{online} connections online, {offline} offline");
    wait_until(&what, PATIENCE, || {
        (of(Class::Online), of(Class::Offline)) == (online, offline)
    });
}

#[test]
fn an_offline_caller_has_workers_of_its_own() {
    for count in [1, 2] {
        let echo = mesh(&[serve(|_| "ok".into())], None);
        let settings = workers(count, count);
        let bed = Bed::with(settings, &with_caller(echo, Class::Offline));
        assert_eq!(workers_of(&bed, Class::Offline).len(), 0, "none is needed");
        let batch = open_for_batch(&bed);
        let mut online = bed.client();
        let mut offline = Client::connect(batch);
        for client in [&mut online, &mut offline] {
            assert_eq!(client.ask(GET).status(), 200);
        }
        expect_connections(&bed, 1, 1);
        let [worker] = &workers_of(&bed, Class::Offline)[..] else {
            panic!("one Worker is enough");
        };
        let name = format!("/proc/self/task/{}/comm", worker.thread);
        let name = std::fs::read_to_string(name).unwrap();
        assert_eq!(name.trim(), format!("offline-{}", worker.id));
        let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", worker.thread));
        let stat = stat.unwrap();
        // `proc_pid_stat(5)`: the 19th field, which is the 17th after the name.
        let nice = stat.rsplit(')').next().unwrap().split(' ').nth(17).unwrap();
        assert_eq!(nice, "19");
        bed.expect("heddle_workers_active", &[], count as f64 + 1.0);

        // Without offline listeners the Worker ends after its last connection.
        bed.proxy.unlisten(7);
        assert_eq!(offline.ask(GET).status(), 200);
        expect_connections(&bed, 1, 1);
        drop(offline);
        bed.expect("heddle_workers_active", &[], count as f64);
        assert_eq!(online.ask(GET).status(), 200);
        bed.expect("heddle_connections_total", &[], 2.0);
    }
}

#[test]
fn a_change_of_class_moves_the_listener_and_open_connections() {
    for (count, protocol) in [
        (1, AppProtocol::Http),
        (2, AppProtocol::Http),
        (2, AppProtocol::Tcp),
    ] {
        let upstream = Upstream::new();
        let of = |class, generation| {
            let mut mesh = with_caller(speaking(protocol, &[upstream.address]), class);
            mesh.generation = generation;
            mesh
        };
        let settings = workers(count, count);
        let bed = Bed::with(settings, &of(Class::Online, 1));
        let batch = open_for_batch(&bed);
        let mut client = Client::connect(batch);
        client.send(GET);
        let mut server = upstream.asked();
        server.answer("ok");
        assert_eq!(client.response().status(), 200);
        expect_connections(&bed, 1, 0);
        for (generation, class) in (2..).zip([Class::Offline, Class::Online, Class::Offline]) {
            bed.proxy.apply(&of(class, generation));
            let (online, offline) = match class {
                Class::Online => (1, 0),
                Class::Offline => (0, 1),
            };
            expect_connections(&bed, online, offline);
            client.send(GET);
            server.head();
            server.answer("ok");
            assert_eq!(client.response().status(), 200);
            // The listener has moved, too.
            let late = Client::connect(batch);
            expect_connections(&bed, 2 * online, 2 * offline);
            drop(late);
            if protocol == AppProtocol::Tcp {
                drop(upstream.accept());
            }
            expect_connections(&bed, online, offline);
        }
        assert!(upstream.is_quiet(), "the endpoint's connection moved along");
    }
}

/// Offline callers together have a quarter of the buffers: when these run out, they are refused, and online callers are
/// not.
#[test]
fn buffers_run_out_for_offline_callers_first() {
    let mut settings = workers(1, 1);
    settings.bounds.blocks = 64;
    let echo = mesh(&[serve(|_| "ok".into())], None);
    let bed = Bed::with(settings, &with_caller(echo, Class::Offline));
    let batch = open_for_batch(&bed);
    let unfinished = "GET / HTTP/1.1\r\nHost: echo\r\nA: ";
    let mut online = bed.client();
    assert_eq!(online.ask(GET).status(), 200);
    let of_batch: Vec<_> = (0..16)
        .map(|_| Client::connect(batch).sending(unfinished))
        .collect();
    bed.expect("heddle_buffer_blocks_active", &[], 16.0);
    let mut refused = Client::connect(batch).sending(GET);
    assert_eq!(refused.response().verdict(), (503, "buffers_exhausted"));
    let of_online: Vec<_> = (0..40).map(|_| bed.sending(unfinished)).collect();
    bed.expect("heddle_buffer_blocks_active", &[], 16.0 + 40.0);
    assert_eq!(online.ask(GET).status(), 200);
    drop((of_batch, of_online));
}
