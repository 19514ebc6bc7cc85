//! Objects that protect something.

use super::*;

#[test]
fn a_broken_policy_opens_nothing() {
    for action in ["DENY", "ALLOW"] {
        let [web, cart] = [service("web", 1), service("cart", 2)];
        let good = policy("p", action, "{matchLabels: {app: web}}", "cart");
        let files = |policy: &str| format!("{web}---\n{cart}---\n{policy}");
        let before = {
            let mut served = Served::new();
            let text = files(&good);
            allowed(served.read(&[("a.yaml", &text)]))
        };
        for (what, broken, closes_web_only) in [
            ("a value", good.replace(action, "DENNY"), true),
            ("a field", good.replace("action", "akshun"), true),
            (
                "the kind of source",
                good.replace("type: Serv", "type: Sorv"),
                true,
            ),
            (
                "the selector",
                good.replace("matchLabels", "matchLables"),
                false,
            ),
            ("the name", good.replace("name: p,", "nam: p,"), true),
            (
                "the namespace",
                good.replace("namespace: shop", "namespace: 'sh op'"),
                false,
            ),
            ("the kind", good.replace("kind: Auth", "kind: Aut"), true),
            ("all of it", good.replace("spec:", "spec: ]"), true),
        ] {
            let (good, broken) = (files(&good), files(&broken));
            let mut served = Served::new();
            served.read(&[("a.yaml", &good)]);
            let by_edit = allowed(served.read(&[("a.yaml", &broken)]));
            match what {
                // It may be another policy than the one that was there.
                "the name" => assert!(by_edit.is_subset(&before), "{action}: {by_edit:?}"),
                _ => assert_eq!(by_edit, before, "{action}, {what}, by an edit"),
            }
            let mut again = served.again();
            let restarted = allowed(again.read(&[("a.yaml", &broken)]));
            assert_eq!(restarted, by_edit, "{action}, {what}, after a restart");

            let mut fresh = Served::new();
            fresh.look(&[("a.yaml", &broken)]);
            let Some(mesh) = &fresh.mesh else {
                assert_eq!(what, "all of it", "the only file");
                continue;
            };
            let at_start = allowed(mesh);
            assert!(
                at_start.iter().all(|(_, to)| to != "web"),
                "{action}, {what}: {at_start:?}"
            );
            let others = at_start.iter().any(|(_, to)| to == "cart");
            assert_eq!(
                others,
                closes_web_only,
                "{action}, {what}: {:?}",
                fresh.errors()
            );
        }
    }
}

#[test]
fn a_file_that_is_no_yaml_closes_what_it_may_protect() {
    let [web, cart] = [service("web", 1), service("cart", 2)];
    let services = format!("{web}---\n{cart}");
    let good = policy("p", "DENY", "{matchLabels: {app: web}}", "cart");
    let broken = good.replace("spec:", "spec: ]");
    let mut served = Served::new();
    let mesh = served.read(&[("a.yaml", &services), ("p.yaml", &broken)]);
    assert_eq!(allowed(mesh), BTreeSet::new());
    let mesh = served.read(&[("a.yaml", &services), ("p.yaml", &good)]);
    assert!(calls(mesh, "shop/sa/other", "web") && !calls(mesh, "shop/sa/cart", "web"));
    // It is known now.
    let before = allowed(mesh);
    let mesh = served.read(&[("a.yaml", &services), ("p.yaml", &broken)]);
    assert_eq!(allowed(mesh), before);
    let unreadable = ("unreadable text", InForce::LastGood);
    let wanted = [
        unreadable,
        ("AuthorizationPolicy shop/p", InForce::LastGood),
    ];
    assert_eq!(served.refused(), wanted);
    // A text about other things closes nothing, and keeps what it had.
    let text = service("other", 3);
    let broken = text.replace("spec:", "spec: ]");
    let mesh = served.read(&[("a.yaml", &services), ("o.yaml", &broken)]);
    assert_eq!(mesh.services.len(), 2);
    assert!(
        calls(mesh, "shop/sa/cart", "web"),
        "the policy's file is gone"
    );
    assert_eq!(served.refused(), [("unreadable text", InForce::Nothing)]);
    served.read(&[("a.yaml", &services), ("o.yaml", &text)]);
    let mesh = served.read(&[("a.yaml", &services), ("o.yaml", &broken)]);
    assert_eq!(mesh.services.len(), 3);
}

/// Two mistakes of one edit, or one after the other, open nothing either.
#[test]
fn what_a_policy_protected_stays_protected_whatever_changes_beside_it() {
    let [web, cart] = [service("web", 1), service("cart", 2)];
    let p = policy("p", "DENY", "{matchLabels: {app: web}}", "cart");
    let broken = p.replace("DENY", "DENNY");
    let with = |web: &str, policy: &str| format!("{web}---\n{cart}---\n{policy}");
    let is_closed = |mesh: &Mesh| !calls(mesh, "shop/sa/cart", "web");

    // The labels change together with the selector, which has an error.
    let relabelled = web.replace("app: web", "app: front");
    let text = with(&relabelled, &broken.replace("app: web", "app: front"));
    let mut served = Served::new();
    served.read(&[("a.yaml", &with(&web, &p))]);
    assert!(is_closed(served.read(&[("a.yaml", &text)])));
    let mut again = served.again();
    assert!(is_closed(again.read(&[("a.yaml", &text)])));

    // The last good version cannot be enforced any more, while the text is about other workloads.
    let http = p.replace(
        "rules: [{",
        "rules: [{httpAttributes: {paths: [{type: PathPrefix, value: /}]}, ",
    );
    let other = http
        .replace("DENY", "DENNY")
        .replace("app: web", "app: cart");
    let tcp = web.replace("appProtocol: http", "appProtocol: tcp");
    let mut served = Served::new();
    served.read(&[("a.yaml", &with(&web, &http))]);
    served.read(&[("a.yaml", &with(&web, &other))]);
    assert!(is_closed(served.read(&[("a.yaml", &with(&tcp, &other))])));
    assert!(
        served
            .refused()
            .contains(&("AuthorizationPolicy shop/p", InForce::Closed))
    );

    // The senior one of two of one name breaks.
    let weak = p.replace("cart", "absent");
    let services = format!("{web}---\n{cart}");
    let files = |first: &'static str, p: &str| {
        [
            (first.to_owned(), p.to_owned()),
            ("b.yaml".to_owned(), weak.clone()),
            ("c.yaml".to_owned(), services.clone()),
        ]
    };
    for text in [broken, p.replace("spec:", "spec: ]")] {
        let mut served = Served::new();
        for (policy, step) in [
            (&p, "at first"),
            (&text, "by an edit"),
            (&text, "and again"),
        ] {
            let files = files("a.yaml", policy);
            let files: Vec<(&str, &str)> = files
                .iter()
                .map(|(name, text)| (name.as_str(), text.as_str()))
                .collect();
            assert!(
                is_closed(served.read(&files)),
                "{step}: {:?}",
                served.refused()
            );
        }
        let mut fresh = Served::new();
        let files = files("a.yaml", &text);
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        assert!(is_closed(fresh.read(&files)), "{:?}", fresh.refused());
    }

    // The junior one of two of one name breaks: nothing opens.
    let text = with(&web, &p);
    for junior in [
        weak.replace("DENY", "DENNY"),
        weak.replace("spec:", "spec: ]"),
    ] {
        let mut served = Served::new();
        let before = allowed(served.read(&[("a.yaml", &text), ("b.yaml", &weak)]));
        let after = allowed(served.read(&[("a.yaml", &text), ("b.yaml", &junior)]));
        assert!(after.is_subset(&before), "{:?}", served.refused());
        let mut fresh = Served::new();
        let mesh = fresh.read(&[
            ("a.yaml", &text),
            ("b.yaml", &weak.replace("DENY", "DENNY")),
        ]);
        assert_eq!(allowed(mesh), before, "{:?}", fresh.refused());
    }

    // It moves into a file that is known, and breaks there.
    let mut served = Served::new();
    served.read(&[("a.yaml", &services), ("p.yaml", &p)]);
    let moved = format!("{services}---\n{}", p.replace("spec:", "spec: ]"));
    assert!(is_closed(served.read(&[("a.yaml", &moved)])));
    let mut fresh = Served::new();
    fresh.look(&[("a.yaml", &moved)]);
    assert!(fresh.mesh.is_none(), "nothing can be used");
}

#[test]
fn a_broken_namespace_is_strict() {
    let namespace = "apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {heddle.dev/mode: strict}}
---
";
    let text = format!("{namespace}{}", service("web", 1));
    let mut served = Served::new();
    let broken = text.replace("mode: strict", "mode: strikt");
    assert_eq!(
        served.read(&[("a.yaml", &broken)]).workloads[0].mode,
        Mode::Strict
    );
    assert_eq!(served.refused(), [("Namespace shop", InForce::Closed)]);
    let open = text.replace("mode: strict", "mode: permissive");
    assert_eq!(
        served.read(&[("a.yaml", &open)]).workloads[0].mode,
        Mode::Permissive
    );
    // It was permissive until the edit, and stays so.
    let mesh = served.read(&[("a.yaml", &broken)]);
    assert_eq!(mesh.workloads[0].mode, Mode::Permissive);
}

/// What was closed without a last good version stays closed when its file cannot be read any more.
#[test]
fn a_file_with_a_closed_policy_opens_nothing_when_it_cannot_be_read() {
    let services = format!("{}---\n{}", service("web", 1), service("cart", 2));
    let p = policy("p", "DENY", "{matchLabels: {app: web}}", "cart");
    let is_closed = |mesh: &Mesh| !calls(mesh, "shop/sa/cart", "web");
    let broken = p.replace("DENY", "DENNY");
    let text = p.replace("spec:", "spec: ]");
    let mut served = Served::new();
    for policy in [&broken, &text, &broken, &text] {
        assert!(is_closed(
            served.read(&[("a.yaml", &services), ("p.yaml", policy)])
        ));
    }
    let mut again = served.again();
    assert!(is_closed(
        again.read(&[("a.yaml", &services), ("p.yaml", &text)])
    ));

    // Nor does it count what else the file had, which is gone.
    let [other, more] =
        ["q", "r"].map(|name| policy(name, "DENY", "{matchLabels: {app: cart}}", "web"));
    let account = service("other", 3);
    let mut served = Served::new();
    for policies in [
        format!("{account}---\n{other}---\n{more}"),
        format!("{account}---\n{broken}"),
    ] {
        served.read(&[("a.yaml", &services), ("p.yaml", &policies)]);
    }
    let policies = format!("{account}---\n{text}");
    let mesh = served.read(&[("a.yaml", &services), ("p.yaml", &policies)]);
    assert!(is_closed(mesh), "{:?}", served.refused());
}
