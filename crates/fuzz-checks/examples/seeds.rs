//! Writes the initial inputs for fuzzing: `seeds DIR` fills `DIR/<target>/` from the corpus of refused requests and
//! from some well-formed messages.

use std::fs;
use std::path::Path;

use heddle_wire::corpus;
use heddle_wire::http1::{Limits, RequestHead};
use heddle_wire::link::heads::{Encoder, HeadLimits};

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

const TRACED: &str = "GET / HTTP/1.1\r\nHost: shop\r\nCookie: a=b\r\n\
    traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n\
    x-request-id: 123e4567-e89b-12d3-a456-426614174000\r\n\
    date: Sun, 06 Nov 1994 08:49:37 GMT\r\ncontent-length: 7\r\n\r\n";

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
    for (number, changed) in [TRACED, "GET /a/b?c=d", "POST /a/7"].iter().enumerate() {
        link_heads(dir, number, changed)?;
    }
    for (number, text) in AUTHORITIES.iter().enumerate() {
        write(dir, "authority", number, text.as_bytes())?;
    }
    Ok(())
}

/// Heads of one shape, one of them with another beginning, and the blocks that encode them.
fn link_heads(dir: &Path, number: usize, changed: &str) -> std::io::Result<()> {
    let (_, fields) = TRACED.split_at(5);
    let changed = match changed.ends_with("\r\n\r\n") {
        true => changed.replace("/ ", "/a/b ").replace('7', "8"),
        false => format!("{changed}{fields}"),
    };
    let mut encoder = Encoder::new(&HeadLimits::DEFAULT);
    let (mut heads, mut blocks) = (vec![0], vec![0]);
    for head in [TRACED, &changed, TRACED, &changed.replace('a', "b"), TRACED] {
        heads.push(1);
        heads.extend_from_slice(head.as_bytes());
        let mut block = Vec::new();
        encoder.encode(0, b"a", head.as_bytes(), &mut block);
        blocks.extend_from_slice(&(block.len() as u16).to_be_bytes());
        blocks.extend_from_slice(&block);
    }
    write(dir, "link_heads_round_trip", number, &heads)?;
    write(dir, "link_heads_decode", number, &blocks)
}

fn write(dir: &Path, target: &str, number: usize, bytes: &[u8]) -> std::io::Result<()> {
    let dir = dir.join(target);
    fs::create_dir_all(&dir)?;
    fs::write(dir.join(format!("seed-{number:04}")), bytes)
}
