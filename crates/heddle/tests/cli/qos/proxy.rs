//! The proxy's threads, with a socket of this test in the proxy's place.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;

use super::*;

/// Answers every question on a socket of its own, and counts them.
fn serve(socket: &Path, answer: impl Fn(usize) -> String + Send + 'static) -> Arc<AtomicUsize> {
    let listener = UnixListener::bind(socket).expect("bound");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    // It ends with the test program.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut head = [0; 1_024];
            let _request = io::Read::read(&mut stream, &mut head);
            let number = count.fetch_add(1, Ordering::Relaxed);
            let _gone = io::Write::write_all(&mut stream, answer(number).as_bytes());
        }
    });
    asked
}

/// Starts a thread of this name, which ends when the sender is dropped. Returns its ID.
fn thread_named(name: &str) -> (i32, mpsc::SyncSender<()>) {
    let (sender, until) = mpsc::sync_channel::<()>(1);
    let (say, id) = mpsc::sync_channel(1);
    let run = move || {
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        say.send(id).expect("the test waits");
        let _ended = until.recv();
    };
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(run).expect("a thread");
    (id.recv().expect("it runs"), sender)
}

fn workers(threads: &[i32]) -> String {
    let one = |thread: &i32| format!(r#"{{"class":"offline","thread":{thread}}}"#);
    let all: Vec<String> = threads.iter().map(one).collect();
    format!("HTTP/1.1 200 OK\r\n\r\n{{\"workers\":[{}]}}", all.join(","))
}

/// A process of another program that has the name of a thread for offline callers.
struct Impostor(Child);

impl Impostor {
    fn start(folder: &Folder) -> Impostor {
        let program = folder.path("offline-9");
        fs::copy("/bin/sleep", &program).expect("copied");
        Impostor(Command::new(program).arg("1000").spawn().expect("started"))
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn status_says(groups: &Groups, part: &str) -> bool {
    groups.ask("status").1.contains(part)
}

/// Given a proxy that names a thread of its own and a process of another program, when the agent is killed, then status says
/// that the thread is in the agent's group, the process never was, and restore puts the thread back, unless there is a
/// group below that another program has made.
#[test]
fn threads_of_the_proxy_alone_are_placed_and_what_is_in_the_way_is_named() {
    let Some(groups) = Groups::new("threads", &["web"]) else {
        return;
    };
    if !Path::new(ROOTS[0]).is_dir() {
        return skipped("needs control groups of version 1");
    }
    let impostor = Impostor::start(&groups.folder);
    let theirs = impostor.0.id().cast_signed();
    let (ours, _keep) = thread_named("offline-0");
    let us = std::process::id().cast_signed();
    let socket = groups.folder.path("proxy.sock");
    serve(&socket, move |_| workers(&[ours, theirs, us]));
    groups.manifest("web", "heddle.dev/class: online");
    let group = format!("{}/offline", groups.name);
    let flags = [
        "--proxy-socket",
        as_str(&socket),
        "--proxy-group",
        group.as_str(),
    ];
    let there = || fs::read_to_string(groups.file("offline", "tasks")).unwrap_or_default();
    let wanted = format!("{ours}\n");
    let mut agent = groups.start(&flags);
    eventually("the thread yields", || there() == wanted);
    signal(&agent, Signal::KILL);
    agent.wait().expect("ended");
    assert_eq!(there(), wanted, "a process of another program was taken");

    let (code, said) = groups.ask("status");
    assert_eq!(code, Some(6), "{said}");
    let left = format!("threads of the proxy are in the control group {group}\n");
    assert!(said.contains(&left), "{said}");
    let below = groups.file("offline", "below");
    fs::create_dir(&below).expect("made");
    let in_the_way = format!("in it is the group {}: remove it", below.display());
    let (code, said) = groups.ask("restore");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&in_the_way), "{said}");
    assert_eq!(there(), "", "the thread is back all the same");

    // It holds up nothing else.
    let mut agent = groups.start(&flags);
    eventually("it is told", || status_says(&groups, &in_the_way));
    assert!(status_says(&groups, "not done: qos.proxy_group: "));
    fs::remove_dir(&below).expect("removed");
    signal(&agent, Signal::TERM);
    assert_eq!(agent.wait().expect("ended").code(), Some(0));
    assert!(!groups.file("offline", "").exists());

    let mut agent = groups.start(&flags);
    eventually("the thread yields", || there() == wanted);
    signal(&agent, Signal::KILL);
    agent.wait().expect("ended");
    let (code, said) = groups.ask("restore");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said, "1 thread of the proxy put back\n");
    assert_eq!(groups.ask("status").0, Some(4));
}

#[test]
fn a_socket_that_answers_with_long_texts_does_not_fill_the_log() {
    let Some(groups) = Groups::new("flood", &["web"]) else {
        return;
    };
    let socket = groups.folder.path("proxy.sock");
    let asked = serve(&socket, |number| {
        let text = "x".repeat(1 << 20);
        match number % 2 {
            0 => format!("HTTP/1.1 500 No\r\n\r\n{number}{text}"),
            _ => format!("HTTP/1.1 200 OK\r\n\r\n{{\"workers\":\"{number}{text}\"}}"),
        }
    });
    groups.manifest("web", "heddle.dev/latency-p99: 5ms");
    let log = groups.folder.path("log");
    let manifests = groups.folder.manifests();
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.args(["qos", "run", as_str(&manifests), "--state"]);
    command.args([as_str(&groups.state()), "--proxy-socket", as_str(&socket)]);
    let errors = fs::File::create(&log).expect("a file");
    let mut agent = command.stderr(errors).spawn().expect("started");
    eventually("it has asked some times", || {
        asked.load(Ordering::Relaxed) >= 8
    });
    signal(&agent, Signal::TERM);
    assert_eq!(agent.wait().expect("ended").code(), Some(0));
    let said = fs::read_to_string(&log).expect("read");
    let about_the_socket = said.lines().filter(|line| line.contains("not known"));
    // One for the threads, and one for the p99.
    assert!((1..=2).contains(&about_the_socket.count()), "{said}");
    assert!(said.len() < 8_192, "{}", said.len());
}
