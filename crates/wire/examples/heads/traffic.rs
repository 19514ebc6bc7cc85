//! The measured traffic: typical exchanges of browsers and of gRPC clients.

/// How consecutive exchanges differ.
#[derive(Clone, Copy)]
#[allow(
    dead_code,
    reason = "not everything that includes this file has all of it"
)]
pub(crate) enum Traffic {
    /// All heads are the same, except for the date.
    Constant,
    /// Each request has its own path, `traceparent` and id, which the response repeats.
    Changing,
    /// Like `Changing`, but the path changes in 25 random letters instead of a number.
    Letters,
}

/// All kinds of traffic, with their names.
#[allow(dead_code, reason = "as above")]
pub(crate) const KINDS: &[(&str, Traffic)] = &[
    ("constant", Traffic::Constant),
    ("changing", Traffic::Changing),
    ("letters", Traffic::Letters),
];

/// The heads of one exchange.
pub(crate) struct Exchange {
    pub(crate) request: Vec<u8>,
    pub(crate) response: Vec<u8>,
}

/// Makes the exchange with a given number.
pub(crate) type Maker = fn(Traffic, u64) -> Exchange;

pub(crate) const MAKERS: &[(&str, Maker)] = &[("browser", browser), ("gRPC", grpc)];

/// The destination of requests: a preface as nodes write it.
pub(crate) const DESTINATION: &[u8] =
    b"\x01\x00\x00\x21\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\x01\x02\x03\
    \x1f\x90\x00\x50\x09bookstore\x07reviews";

/// 12 fields, and a body of 128 bytes in each direction.
pub(crate) fn browser(traffic: Traffic, number: u64) -> Exchange {
    let varied = Varied::new(traffic, number);
    let request = format!(
        "POST /reviews/items/{} HTTP/1.1\r\n\
        Host: reviews.bookstore.example:8080\r\n\
        User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
        Accept: text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8\r\n\
        Accept-Language: en-GB,en;q=0.5\r\n\
        Accept-Encoding: gzip, br\r\n\
        Content-Type: application/json\r\n\
        Content-Length: 128\r\n\
        Referer: http://shop.example/\r\n\
        Cache-Control: no-cache\r\n\
        traceparent: {}\r\n\
        X-Request-Id: {}\r\n\
        X-Forwarded-For: 10.11.12.13\r\n\r\n",
        varied.item, varied.trace, varied.id
    );
    Exchange {
        request: request.into_bytes(),
        response: varied.response("application/json; charset=utf-8"),
    }
}

/// 8 fields.
pub(crate) fn grpc(traffic: Traffic, number: u64) -> Exchange {
    let varied = Varied::new(traffic, number);
    let request = format!(
        "POST /shop.Reviews/By/{} HTTP/1.1\r\n\
        Host: reviews.bookstore:9090\r\n\
        Content-Type: application/grpc+proto\r\n\
        Content-Length: 128\r\n\
        TE: trailers\r\n\
        User-Agent: grpc-go/1.75.0\r\n\
        grpc-timeout: 1S\r\n\
        traceparent: {}\r\n\
        X-Request-Id: {}\r\n\r\n",
        varied.item, varied.trace, varied.id
    );
    Exchange {
        request: request.into_bytes(),
        response: varied.response("application/grpc+proto"),
    }
}

struct Varied {
    item: String,
    trace: String,
    id: String,
    date: String,
    length: u64,
}

impl Varied {
    fn new(traffic: Traffic, number: u64) -> Self {
        let seed = match traffic {
            Traffic::Constant => 0,
            Traffic::Changing | Traffic::Letters => number,
        };
        let [a, b, c, d, e] = [1, 2, 3, 4, 5].map(|part| scrambled(seed * 8 + part));
        Self {
            item: match traffic {
                Traffic::Letters => (0..25)
                    .map(|at| char::from(b'a' + (scrambled(seed * 64 + at) % 26) as u8))
                    .collect(),
                _ => (1_000_000_000 + a % 9_000_000_000).to_string(),
            },
            trace: format!("00-{b:016x}{c:016x}-{d:016x}-01"),
            id: format!(
                "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
                e as u32,
                b >> 7 & 0xffff,
                c >> 9 & 0xfff,
                d >> 11 & 0xfff,
                a & 0xffff_ffff_ffff
            ),
            date: format!(
                "Mon, 06 Jul 2026 {:02}:{:02}:{:02} GMT",
                number / 3600 % 24,
                number / 60 % 60,
                number % 60
            ),
            length: match traffic {
                Traffic::Constant => 128,
                Traffic::Changing | Traffic::Letters => 100 + a % 100,
            },
        }
    }

    fn response(&self, content: &str) -> Vec<u8> {
        format!(
            "HTTP/1.1 200 OK\r\n\
            Date: {}\r\n\
            Content-Type: {content}\r\n\
            Content-Length: {}\r\n\
            Server: reviews/2\r\n\
            X-Request-Id: {}\r\n\r\n",
            self.date, self.length, self.id
        )
        .into_bytes()
    }
}

/// A pseudo-random number (SplitMix64).
pub(crate) fn scrambled(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
