use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use super::{Console, QUEUE};

/// A reader that takes one line per turn.
struct Slow {
    turns: Receiver<()>,
    taken: SyncSender<String>,
}

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.turns.recv().map_err(io::Error::other)?;
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.taken.send(text).map_err(io::Error::other)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_output_that_is_not_read_costs_lines_and_is_said() {
    let (turn, turns) = sync_channel(8 * QUEUE);
    let (taken, lines) = sync_channel(8 * QUEUE);
    let console = Console::start_on(Slow { turns, taken }, false).expect("a thread");
    for _ in 0..QUEUE + 100 {
        console.line(b"line\n".to_vec());
    }
    for _ in 0..4 * QUEUE {
        turn.send(()).expect("the thread runs");
    }
    // The queue was full, so this barrier may be refused; lines arriving proves progress.
    let mut all = String::new();
    while !all.contains("were dropped") {
        all.push_str(&lines.recv_timeout(Duration::from_secs(20)).expect("a line"));
    }
    assert!(all.starts_with("line\n"), "{all}");
}

#[test]
fn waiting_means_written() {
    let (turn, turns) = sync_channel(8);
    let (taken, lines) = sync_channel(8);
    let console = Console::start_on(Slow { turns, taken }, false).expect("a thread");
    turn.send(()).expect("the thread runs");
    console.line(b"one\n".to_vec());
    console.wait_written(Duration::from_secs(20));
    assert_eq!(lines.try_recv().ok().as_deref(), Some("one\n"));
}
