use super::*;

#[test]
fn the_total_of_a_cachegrind_file_is_read() {
    assert_eq!(
        total("version: 1\nevents: Ir\nsummary: 41\nfn=(1) main\n3 4\ntotals: 42\n"),
        Some(42)
    );
    assert_eq!(total("events: Ir\nsummary: 41\n"), Some(41));
    assert_eq!(total("events: Ir\n"), None);
}
