use proptest::prelude::*;

use super::*;

fn preface() -> Preface<'static> {
    Preface {
        kind: Kind::Http,
        endpoint: ([127, 0, 0, 2], 8080).into(),
        namespace: "shop",
        service: "web",
        port: 80,
        caller: None,
    }
}

fn written(preface: &Preface<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    preface.write_to(&mut bytes).expect("it can be written");
    bytes
}

#[test]
fn the_bytes_are_these() {
    let expected = [
        &[1, 0, 0, 29][..],
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 2],
        &[0x1f, 0x90, 0, 80],
        b"\x04shop\x03web",
    ];
    assert_eq!(written(&preface()), expected.concat());
    let named = Preface {
        caller: Some("basket"),
        ..preface()
    };
    let expected = [
        &[1, 1, 0, 36][..],
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 2],
        &[0x1f, 0x90, 0, 80],
        b"\x04shop\x03web\x06basket",
    ];
    assert_eq!(written(&named), expected.concat());
}

#[test]
fn what_is_malformed_is_refused_as_soon_as_it_is_certain() {
    let whole = written(&preface());
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        bytes
    };
    let refused = [
        ("no kind", with(0, 0)),
        ("a kind to come", with(0, 3)),
        ("HTTP", b"GET / HTTP/1.1\r\n".to_vec()),
        ("TLS within TLS", vec![0x16, 3, 1]),
        ("a flag to come", with(1, 2)),
        ("a caller that is not there", with(1, 1)),
        ("too short a length", with(3, 23)),
        ("too long a length", with(2, 3)),
        ("one byte less than there is", with(3, 28)),
        ("an empty name", with(24, 0)),
        ("a name beyond the end", with(29, 4)),
        ("no text", with(30, 0xff)),
    ];
    for (what, bytes) in refused {
        assert!(Preface::parse(&bytes).is_err(), "{what}");
    }
    let long = "a".repeat(MAX_NAME + 1);
    for namespace in ["", &long] {
        let preface = Preface {
            namespace,
            ..preface()
        };
        let mut bytes = Vec::new();
        assert!(preface.write_to(&mut bytes).is_err() && bytes.is_empty());
    }
}

#[test]
fn statuses_are_bytes() {
    let all: Vec<Status> = (0..=u8::MAX)
        .filter_map(|byte| {
            let status = Status::from_byte(byte).ok()?;
            assert_eq!(status.byte(), byte);
            Some(status)
        })
        .collect();
    assert_eq!(all.len(), 5);
}

proptest! {
    #[test]
    fn what_was_written_is_read_wherever_it_is_cut(
        http in any::<bool>(),
        ip in any::<IpAddr>(),
        ports in any::<(u16, u16)>(),
        namespace in "[a-z0-9.-]{1,253}",
        service in "[a-z0-9.-]{1,253}",
        caller in proptest::option::of("[a-z0-9.-]{1,253}"),
        more in any::<Vec<u8>>(),
    ) {
        let preface = Preface {
            kind: if http { Kind::Http } else { Kind::Bytes },
            endpoint: SocketAddr::new(ip.to_canonical(), ports.0),
            namespace: &namespace,
            service: &service,
            port: ports.1,
            caller: caller.as_deref(),
        };
        let mut bytes = written(&preface);
        let length = bytes.len();
        prop_assert!(length <= MAX_PREFACE_BYTES);
        for cut in 0..length {
            prop_assert_eq!(Preface::parse(&bytes[..cut]), Ok(None));
        }
        bytes.extend(more);
        prop_assert_eq!(Preface::parse(&bytes), Ok(Some((preface, length))));
    }

    #[test]
    fn anything_is_survived(bytes in any::<Vec<u8>>()) {
        if let Ok(Some((preface, length))) = Preface::parse(&bytes) {
            prop_assert_eq!(written(&preface), &bytes[..length]);
        }
    }
}
