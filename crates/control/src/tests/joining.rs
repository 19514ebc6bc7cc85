use super::*;

#[tokio::test]
async fn a_node_joins_once_and_is_then_issued_what_is_placed_on_it() {
    let control = Control::start();
    let token = control.token("n1");
    let stranger = control.stranger("192.0.2.1").await;
    let joined = join(&stranger, &token, "n1").await.unwrap();
    assert_eq!(joined.trust_domain, domain());
    assert_eq!(joined.certificate.not_after, NOW + DAY);
    assert_eq!(joined.bundle.roots, [control.authority.root()]);
    refused(join(&stranger, &token, "n1").await);
    assert_eq!(control.counters.joined.load(Relaxed), 1);
    assert_eq!(control.counters.joins_refused.load(Relaxed), 1);

    let node = control.node("n1").await;
    for id in [workload("cart"), node_id("n1")] {
        let issued = node.issue(&id, &request()).await.unwrap();
        let (_, leaf) = x509_parser::parse_x509_certificate(&issued.chain[0]).unwrap();
        let names = leaf.subject_alternative_name().unwrap().unwrap().value;
        assert!(format!("{names:?}").contains(&id.to_string()));
    }
    for (id, wanted) in [
        (workload("web"), "no workload with that service account"),
        (node_id("n2"), "no other node's identity"),
        (SpiffeId::control(domain()), "the control plane's identity"),
    ] {
        let why = refused(node.issue(&id, &request()).await);
        assert!(why.contains(wanted), "{why}");
    }
    let why = refused(node.issue(&node_id("n1"), b"no request").await);
    assert!(why.contains("no PKCS #10"), "{why}");
    assert_eq!(control.counters.issued.load(Relaxed), 2);
    assert_eq!(control.counters.issues_refused.load(Relaxed), 4);
}

#[tokio::test]
async fn who_shows_no_certificate_of_a_node_is_told_nothing() {
    let control = Control::start();
    let stranger = control.stranger("192.0.2.1").await;
    let workload = control.connect_as(workload("cart"), None).await;
    let elsewhere = TrustDomain::parse("elsewhere").unwrap();
    let foreign = control.connect_as(SpiffeId::node(elsewhere, node("n1")), None);
    let cases = [
        (stranger, "no client certificate"),
        (workload, "only nodes"),
        (foreign.await, "another trust domain"),
    ];
    for (client, wanted) in cases {
        let said = [
            refused(client.issue(&node_id("n1"), &request()).await),
            refused(client.watch_trust(0, 0).await),
            refused(discover(&client, &own("n1")).await),
        ];
        assert!(said.iter().all(|said| said.contains(wanted)), "{said:?}");
    }
    assert!(control.nodes.present().is_empty());
}

/// A client gets the same message whatever is wrong with its token; only the log has the reason.
#[tokio::test]
async fn a_refusal_does_not_say_what_was_wrong_with_the_token() {
    let control = Control::start();
    let stranger = control.stranger("192.0.2.1").await;
    let token = control.token("n1");
    let mut unknown = control.token("n1");
    control.authority.revoke_token(&unknown.id).unwrap();
    unknown.secret = token.secret.clone();
    let mut tampered = token.clone();
    tampered.secret = control.token("n1").secret;
    let mut said = vec![
        refused(join(&stranger, &unknown, "n1").await),
        refused(join(&stranger, &tampered, "n1").await),
        refused(join(&stranger, &token, "n2").await),
    ];
    let malformed = stranger
        .join(&node("n1"), ("..", b"short"), &request())
        .await;
    said.push(refused(malformed));
    control.deny(Denied::Identity(node_id("n1")));
    said.push(refused(join(&stranger, &token, "n1").await));
    said.dedup();
    assert_eq!(said.len(), 1, "{said:?}");
    // The token is still valid.
    let allowed = Denied::Identity(node_id("n1"));
    control.authority.allow(&allowed, at(NOW)).unwrap();
    assert!(join(&stranger, &token, "n1").await.is_ok());
}

#[tokio::test]
async fn failures_are_limited_by_address_and_do_not_cost_others() {
    let control = Control::start();
    let (attacker, other) = (
        control.stranger("192.0.2.66").await,
        control.stranger("192.0.2.1").await,
    );
    let token = control.token("n1");
    let mut limited = 0;
    for _ in 0..30 {
        match join(&attacker, &token, "n2").await {
            Err(ClientError::Refused(_)) => {}
            Err(ClientError::Slower(_)) => limited += 1,
            other => panic!("{other:?}"),
        }
    }
    // While the test runs one or two more may have been allowed.
    assert!((5..=10).contains(&limited), "{limited}");
    assert_eq!(control.counters.joins_limited.load(Relaxed), limited);
    assert!(join(&other, &token, "n1").await.is_ok());
}

#[tokio::test]
async fn requests_have_bounds() {
    let control = Control::start();
    let stranger = control.stranger("192.0.2.1").await;
    let token = control.token("n1");
    let secret = (token.id.as_str(), token.secret.as_bytes());
    for (length, wanted) in [
        (9_000, "longer than 8192"),
        (20_000, "message length too large"),
    ] {
        let why = refused(stranger.join(&node("n1"), secret, &vec![0; length]).await);
        assert!(why.contains(wanted), "{why}");
    }
    assert!(join(&stranger, &token, "n1").await.is_ok());
}

#[tokio::test]
async fn who_is_denied_is_issued_nothing() {
    let control = Control::start();
    let serial = Serial::parse(&"0f".repeat(16));
    let client = control.connect_as(node_id("n1"), serial).await;
    assert!(client.issue(&workload("cart"), &request()).await.is_ok());
    control.deny(Denied::Serial(serial.unwrap()));
    let why = refused(client.issue(&workload("cart"), &request()).await);
    assert!(why.contains("deny-list"), "{why}");
    // Another certificate of the same node is not denied.
    let again = control.node("n1").await;
    assert!(again.issue(&workload("cart"), &request()).await.is_ok());
    control.deny(Denied::Identity(workload("cart")));
    let why = refused(again.issue(&workload("cart"), &request()).await);
    assert!(why.contains("the identity is on the deny-list"), "{why}");
}

/// Counts the warnings of this thread.
struct Warnings(Arc<AtomicU64>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        if event.metadata().target().starts_with("heddle_control") {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// A node can ask as often as it likes, but cannot fill the log.
#[tokio::test]
async fn refusals_are_all_counted_and_logged_seldom() {
    let warnings = Arc::new(AtomicU64::new(0));
    let _subscribed = tracing::subscriber::set_default(Warnings(Arc::clone(&warnings)));
    let control = Control::start();
    let node = control.node("n1").await;
    for _ in 0..10 {
        refused(node.issue(&workload("web"), &request()).await);
        refused(node.issue(&node_id("n2"), &request()).await);
    }
    assert_eq!(control.counters.issues_refused.load(Relaxed), 20);
    assert_eq!(warnings.load(Relaxed), 2);
}
