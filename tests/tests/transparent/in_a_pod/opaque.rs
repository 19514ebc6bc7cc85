//! Programs on byte-stream ports: the caller's address that they see, and how their streams end.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use super::LINE;

/// Timeout for the end of a stream.
const WAIT: Duration = Duration::from_secs(40);

/// Tells every caller the address from which it calls.
pub(super) fn say(at: SocketAddr) {
    let listener = TcpListener::bind(at).expect("a port");
    for mut stream in listener.incoming().flatten() {
        if let Ok(peer) = stream.peer_addr() {
            let _gone = writeln!(stream, "{}", peer.ip().to_canonical());
        }
    }
}

/// Reports what the server at `to` says.
pub(super) fn hear(to: SocketAddr, from: Option<SocketAddr>) {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket(family, SocketType::STREAM, None).expect("a socket");
    if let Some(from) = from {
        bind(&socket, &from).expect("that address");
    }
    connect(&socket, &to).expect("a connection");
    let mut line = String::new();
    let stream = TcpStream::from(socket);
    let read = BufReader::new(stream).read_line(&mut line);
    match read {
        Ok(_) => println!("{LINE}{}", line.trim()),
        Err(error) => println!("{LINE}{}", error.kind()),
    }
}

/// Sends a line to a server that echoes, and reports what comes back.
pub(super) fn echo(to: SocketAddr) {
    let said = TcpStream::connect_timeout(&to, WAIT).and_then(|mut stream| {
        stream.set_read_timeout(Some(WAIT))?;
        stream.write_all(b"echo of a line\n")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line)
    });
    match said {
        Ok(line) => println!("{LINE}{}", line.trim()),
        Err(error) => println!("{LINE}{}", error.kind()),
    }
}

/// Echoes, and reports how each connection ends.
pub(super) fn keep(at: SocketAddr) {
    let listener = TcpListener::bind(at).expect("a port");
    for stream in listener.incoming().flatten() {
        thread::spawn(move || {
            let mut first = [0; 5];
            let mut both = &stream;
            let told = both
                .read_exact(&mut first)
                .and_then(|()| both.write_all(&first));
            told.expect("a word");
            say_end(&stream);
        });
    }
}

/// Opens connections, exchanges a word on each, and reports how each ends.
pub(super) fn hold(count: usize, to: SocketAddr) {
    let open = |_| {
        let mut stream = TcpStream::connect(to).expect("a connection");
        stream.write_all(b"hello").expect("sent");
        stream.read_exact(&mut [0; 5]).expect("answered");
        stream
    };
    let streams: Vec<TcpStream> = (0..count).map(open).collect();
    println!("{LINE}held");
    let ends = streams
        .into_iter()
        .map(|stream| thread::spawn(move || say_end(&stream)));
    for end in ends.collect::<Vec<_>>() {
        end.join().expect("an end");
    }
}

fn say_end(mut stream: &TcpStream) {
    stream.set_read_timeout(Some(WAIT)).expect("a timeout");
    let end = match stream.read(&mut [0]) {
        Ok(0) => "an end".to_owned(),
        Ok(_) => "a byte".to_owned(),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => "a reset".to_owned(),
        Err(error) => error.kind().to_string(),
    };
    println!("{LINE}{end}");
}
