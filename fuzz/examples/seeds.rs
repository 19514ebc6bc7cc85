//! Writes the inputs that fuzzing starts from: `seeds DIR` fills `DIR/<target>/` from the corpus
//! of refused requests and from a few well-formed messages.

use std::fs;
use std::path::Path;

use heddle_wire::corpus;
use heddle_wire::http1::{Limits, RequestHead};

const RESPONSES: &[&str] = &[
    "HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "HTTP/1.0 304 Not Modified\r\nConnection: keep-alive, x-a\r\nX-A: b\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
];

const AUTHORITIES: &[&str] = &[
    "shop",
    "Shop.:80",
    "shop.ns.svc.cluster.local:8080",
    "10.0.0.1:1",
    "[::1]:80",
    "[fe80::A]",
    "user:pw@shop",
    "0x7f.1",
    "1.2.3.4.5",
    "shop:65536",
    "a..b",
];

fn main() -> std::io::Result<()> {
    let dir = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "fuzz/corpus".into());
    let dir = Path::new(&dir);
    for (number, case) in corpus::requests().iter().enumerate() {
        if case.bytes.len() > 4096 {
            continue;
        }
        let bytes = &case.bytes[..];
        write(dir, "request_head", number, bytes)?;
        write(dir, "forward", number, bytes)?;
        let mut head = RequestHead::new();
        if let Ok(Some(length)) = head.parse(bytes, &Limits::DEFAULT) {
            write(
                dir,
                "body",
                number,
                &[&[3, 1, 7], &bytes[length..]].concat(),
            )?;
            write(
                dir,
                "path",
                number,
                &[b"\x01", head.path.of(bytes)].concat(),
            )?;
        }
        if let Some(fields) = bytes.splitn(2, |&byte| byte == b'\n').nth(1) {
            write(
                dir,
                "response_head",
                number,
                &[b"\x00HTTP/1.1 200 OK\r\n", fields].concat(),
            )?;
        }
    }
    for (number, text) in RESPONSES.iter().enumerate() {
        write(
            dir,
            "response_head",
            1000 + number,
            format!("\0{text}").as_bytes(),
        )?;
    }
    for (number, text) in AUTHORITIES.iter().enumerate() {
        write(dir, "authority", number, text.as_bytes())?;
    }
    Ok(())
}

fn write(dir: &Path, target: &str, number: usize, bytes: &[u8]) -> std::io::Result<()> {
    let dir = dir.join(target);
    fs::create_dir_all(&dir)?;
    fs::write(dir.join(format!("seed-{number:04}")), bytes)
}
