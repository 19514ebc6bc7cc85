//! A visitor that downloads files over one connection: `heddle-lab downloads`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::http;

/// The longest that one download may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Options of `heddle-lab downloads`.
#[derive(Args, Clone)]
pub struct Downloads {
    /// The web server.
    #[arg(long)]
    from: SocketAddr,
    /// Its files have the names 0, 1, …; each download takes one at random.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    files: u64,
    /// Bytes of each.
    #[arg(long)]
    bytes: u64,
    #[arg(long)]
    seconds: f64,
    /// Pause between downloads, in milliseconds.
    #[arg(long, default_value_t = 0)]
    pause_ms: u64,
}

/// A download. Times are microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Downloaded {
    /// Since the program began.
    pub(super) began_us: u64,
    pub(super) took_us: u64,
}

/// Downloads until the time is up, and prints all downloads as one line of JSON.
///
/// # Errors
/// When one fails, or has another length.
pub fn run(options: &Downloads) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut stream = TcpStream::connect_timeout(&options.from, PATIENCE)
        .with_context(|| format!("no connection to {}", options.from))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 256 << 10];
    let mut all = Vec::new();
    let mut random = Random(1);
    while began.elapsed().as_secs_f64() < options.seconds {
        let file = random.below(options.files);
        let start = Instant::now();
        download(&mut stream, file, options.bytes, &mut buffer)
            .with_context(|| format!("the download of file {file}"))?;
        all.push(Downloaded {
            began_us: u64::try_from(start.duration_since(began).as_micros())?,
            took_us: u64::try_from(start.elapsed().as_micros())?,
        });
        std::thread::park_timeout(Duration::from_millis(options.pause_ms));
    }
    let mut line = serde_json::to_vec(&all)?;
    line.push(b'\n');
    std::io::stdout().write_all(&line).context("stdout")
}

fn download(
    stream: &mut TcpStream,
    file: u64,
    bytes: u64,
    buffer: &mut [u8],
) -> anyhow::Result<()> {
    write!(stream, "GET /{file} HTTP/1.1\r\nHost: downloads\r\n\r\n")?;
    let mut filled = 0;
    let head = loop {
        let read = stream.read(buffer.get_mut(filled..).unwrap_or_default())?;
        anyhow::ensure!(read > 0, "closed");
        filled += read;
        let head = http::response(&buffer[..filled]);
        let head = head.map_err(|why| anyhow::anyhow!("malformed: {why:?}"))?;
        if let Some(head) = head {
            break head;
        }
    };
    anyhow::ensure!(head.status == 200, "status {}", head.status);
    // What came with the head.
    let mut received = (filled - head.head_len) as u64;
    while received < bytes {
        let read = stream.read(buffer)?;
        anyhow::ensure!(read > 0, "closed after {received} of {bytes} bytes");
        received += read as u64;
    }
    anyhow::ensure!(received == bytes, "{received} bytes, and not {bytes}");
    Ok(())
}

/// Numbers that look random, the same in each run (xorshift of Marsaglia, 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_has_to_be_complete() {
        let port = crate::upstream::in_background();
        let address = SocketAddr::from((crate::upstream::address(0), port));
        let get = |bytes| {
            let mut stream = TcpStream::connect(address).expect("connected");
            stream
                .set_read_timeout(Some(Duration::from_millis(300)))
                .expect("set");
            download(&mut stream, 100_000, bytes, &mut vec![0; 4096])
        };
        // The last part of the path says how long the answer is.
        get(100_000).expect("downloaded");
        assert!(get(99_999).is_err());
        assert!(get(100_001).is_err());
    }

    #[test]
    fn every_file_is_downloaded() {
        let mut random = Random(1);
        let seen: std::collections::BTreeSet<u64> = (0..2_000).map(|_| random.below(64)).collect();
        assert_eq!(seen.len(), 64);
    }
}
