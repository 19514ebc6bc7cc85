use super::*;

#[test]
fn a_head_comes_out_as_it_went_in() {
    let mut encoder = Encoder::new(&HeadLimits::DEFAULT);
    let mut decoder = Decoder::new(&HeadLimits::DEFAULT);
    let head = b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n";
    let (mut block, mut out) = (Vec::new(), Vec::new());
    encoder.encode(1, b"where", head, &mut block);
    let decoded = decoder.decode(&block, &mut out).unwrap();
    assert_eq!(decoded.destination, b"where");
    assert_eq!(out, head);
}
