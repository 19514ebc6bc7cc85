use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use super::*;

/// Both ends of a connection, the client's first.
fn connected(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn reset(client: TcpStream) {
    set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    drop(client);
}

fn look(batch: &mut Vec<TcpStream>) -> u64 {
    leave_out_reset(batch, |stream| Some(stream.as_fd()))
}

#[test]
fn of_many_those_that_were_reset_are_dropped_and_no_other() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut clients, mut batch) = (Vec::new(), Vec::new());
    for _ in 0..MANY + 3 {
        let (client, server) = connected(&listener);
        clients.push(client);
        batch.push(server);
    }
    assert_eq!(look(&mut batch), 0);
    // A client that has sent its request and half-closed waits for its answer, and is not dropped.
    clients[0].write_all(b"question").unwrap();
    clients[0].shutdown(Shutdown::Write).unwrap();
    for client in clients.drain(2..5) {
        reset(client);
    }
    assert_eq!(look(&mut batch), 3);
    assert_eq!(batch.len(), clients.len());
    batch[0].read_exact(&mut [0; 8]).unwrap();
    // The remaining connections are those that were not reset, in their order.
    for (client, server) in clients.iter().zip(&batch) {
        assert_eq!(client.local_addr().unwrap(), server.peer_addr().unwrap());
    }
}

#[test]
fn few_are_not_looked_at() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (clients, mut batch): (Vec<_>, Vec<_>) = (1..MANY).map(|_| connected(&listener)).unzip();
    clients.into_iter().for_each(reset);
    assert_eq!(look(&mut batch), 0);
    assert!(batch.iter().all(|stream| is_reset(stream.as_fd())));
}

#[test]
fn what_has_no_socket_to_look_at_stays() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (clients, batch): (Vec<_>, Vec<_>) = (0..MANY).map(|_| connected(&listener)).unzip();
    clients.into_iter().for_each(reset);
    let mut batch: Vec<Option<TcpStream>> = batch.into_iter().map(Some).collect();
    batch.insert(1, None);
    let dropped = leave_out_reset(&mut batch, |stream| stream.as_ref().map(AsFd::as_fd));
    assert_eq!(dropped, MANY as u64);
    assert!(matches!(batch[..], [None]));
}
