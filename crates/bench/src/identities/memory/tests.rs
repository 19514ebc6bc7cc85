use super::*;

#[test]
fn the_listeners_of_the_callers_are_found() {
    let status = br#"{"listeners":[
        {"service":"lab/echo3","caller":"lab/near1","kind":"service","address":"127.64.0.1:8080"},
        {"service":"lab/echo3","caller":null,"kind":"service","address":"127.64.0.2:8080"},
        {"service":null,"caller":"lab/near1","kind":"forward-proxy","address":"127.64.0.3:3128"}]}"#;
    let pairs = pairs_of(status).expect("a status");
    let key = ("lab/near1".to_owned(), "lab/echo3".to_owned());
    assert_eq!(pairs.len(), 1);
    assert_eq!(pairs[&key].to_string(), "127.64.0.1:8080");
    assert!(pairs_of(b"not ready").is_none());
}

#[test]
fn connections_to_a_port_are_counted_from_one_side() {
    let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
        0: 0100007F:3A98 00000000:0000 0A 00000000:00000000\n\
        1: 0100007F:C350 0100007F:3A98 01 00000000:00000000\n\
        2: 0100007F:3A98 0100007F:C350 01 00000000:00000000\n\
        3: 0100007F:C351 0100007F:3A98 06 00000000:00000000\n";
    assert_eq!(established(table, 15_000), 1);
    assert_eq!(established(table, 50_000), 1);
    assert_eq!(established("", 15_000), 0);
}

#[test]
fn every_pair_of_the_manifest_has_accounts_of_its_own() {
    let work = Work::new(ACCOUNTS, 1, 9000);
    let template = include_str!("../../../peers/heddle-identities.yaml.j2");
    let context = minijinja::context! { services => work.services, protocol => "tcp" };
    let text = render(template, context).expect("renders");
    let count = |text: &str, what: &str| text.matches(what).count();
    assert_eq!(count(&text, "kind: ServiceAccount\n"), 90);
    assert_eq!(count(&text, "kind: LocalWorkload\n"), 90);
    assert_eq!(count(&text, "serviceAccountName: near44\n"), 1);
    assert_eq!(count(&text, "serviceAccountName: far44\n"), 1);
    assert_eq!(count(&text, "address: 127.1.0.45\n"), 1);
}
