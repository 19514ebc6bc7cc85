//! A chunked body has the same end, data and verdict for any division into reads, and an accepted body means the same
//! to a naive parser. The forwarded body is the same for any division, has the same meaning, and would be forwarded
//! unchanged by the next proxy. The first three bytes choose where to divide.

use heddle_wire::http1::{BodyTracker, Framing, Line, Piece};

type Outcome = Result<(usize, bool, Vec<u8>), &'static str>;

fn feed(input: &[u8], cuts: &[u8]) -> Outcome {
    let mut body = BodyTracker::from_framing(Framing::Chunked);
    let mut data = Vec::new();
    let mut at = 0;
    let mut cuts = cuts.iter().cycle();
    while at < input.len() && !body.is_done() {
        let piece = cuts
            .next()
            .map_or(usize::MAX, |&cut| usize::from(cut).max(1));
        let piece = piece.min(input.len() - at);
        let end = body
            .take_apart(&input[at..at + piece], &mut |piece| {
                if let Piece::Data(run) = piece {
                    data.extend_from_slice(run);
                }
            })
            .map_err(|reject| reject.code)?;
        assert!(
            end.done || end.consumed == piece,
            "nothing is left over in the middle"
        );
        assert_eq!(end.done, body.is_done());
        at += end.consumed;
    }
    Ok((at, body.is_done(), data))
}

/// The forwarded bytes of an accepted body, with every trailer.
fn pass_on(input: &[u8], cuts: &[u8]) -> Vec<u8> {
    let mut body = BodyTracker::from_framing(Framing::Chunked);
    let mut out = Vec::new();
    let mut cuts = cuts.iter().cycle();
    let mut rest = input;
    while !rest.is_empty() {
        let piece = cuts
            .next()
            .map_or(usize::MAX, |&cut| usize::from(cut).max(1));
        let (mut piece, behind) = rest.split_at(piece.min(rest.len()));
        rest = behind;
        while !piece.is_empty() {
            let step = body.forward(piece).expect("it was accepted");
            assert!(step.pass + step.skip > 0, "it goes on");
            out.extend_from_slice(&piece[..step.pass]);
            piece = &piece[step.pass + step.skip..];
            match body.line().filter(|_| step.write) {
                Some(Line::Size(size)) => out.extend_from_slice(format!("{size:x}\r\n").as_bytes()),
                Some(Line::Trailer { name, line }) => {
                    assert!(line.starts_with(name));
                    out.extend_from_slice(line);
                }
                None => {}
            }
        }
    }
    out
}

/// Parses a complete chunked body by splitting it at its line ends.
fn naive(raw: &[u8]) -> Vec<u8> {
    let mut rest = raw;
    let mut data = Vec::new();
    loop {
        let end = rest
            .windows(2)
            .position(|two| two == b"\r\n")
            .expect("a size line");
        let line = std::str::from_utf8(rest[..end].split(|&byte| byte == b';').next().unwrap());
        let size = usize::from_str_radix(line.expect("digits"), 16).expect("a size");
        rest = &rest[end + 2..];
        if size == 0 {
            break;
        }
        data.extend_from_slice(&rest[..size]);
        assert_eq!(&rest[size..size + 2], b"\r\n");
        rest = &rest[size + 2..];
    }
    let mut lines = crate::naive::split_lines(rest);
    assert_eq!((lines.pop(), lines.pop()), (Some(&b""[..]), Some(&b""[..])));
    assert!(lines.iter().all(|line| line.contains(&b':')));
    data
}

pub fn check(input: &[u8]) {
    let Some((cuts, input)) = input.split_first_chunk::<3>() else {
        return;
    };
    let whole = feed(input, &[]);
    assert_eq!(feed(input, cuts), whole);
    assert_eq!(feed(input, &[1]), whole);
    if let Ok((end, true, data)) = whole {
        assert_eq!(naive(&input[..end]), data);
        let gone = pass_on(&input[..end], cuts);
        assert_eq!(
            gone.to_ascii_lowercase(),
            pass_on(&input[..end], &[]).to_ascii_lowercase()
        );
        assert_eq!(feed(&gone, &[]), Ok((gone.len(), true, data)));
        assert_eq!(pass_on(&gone, &[]), gone);
    }
}
