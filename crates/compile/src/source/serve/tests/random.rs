//! Random edits of a folder.

use std::path::Path;

use super::*;
use crate::load_text;

/// Documents with everything that decides about calls.
fn documents() -> Vec<String> {
    let target = "apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: {name: t, namespace: shop}
spec:
  destination: {kind: ServiceAccount, name: cart}
  sources: [{kind: ServiceAccount, name: web}]
  rules: [{kind: HTTPRouteGroup, name: g, matches: [m]}]
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: HTTPRouteGroup
metadata: {name: g, namespace: shop}
spec: {matches: [{name: m, pathRegex: /}]}
---
apiVersion: v1
kind: Namespace
metadata:
  name: shop
  labels: {heddle.dev/mode: strict}
";
    let text = [
        service("web", 1),
        service("cart", 2),
        service("other", 3),
        policy("deny", "DENY", "{matchLabels: {app: web}}", "cart"),
        policy(
            "allow",
            "ALLOW",
            "{matchExpressions: [{key: app, operator: In, values: [other]}]}",
            "web",
        ),
        target.to_owned(),
        ROUTE.to_owned(),
    ]
    .join("---\n");
    text.split("---\n").map(str::to_owned).collect()
}

/// An edit of a text: some bytes at a place give way to others.
fn edited(text: &str, (place, removed, added): (usize, usize, &str)) -> String {
    let mut start = place % text.len();
    let mut end = (start + removed).min(text.len());
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    while !text.is_char_boundary(end) {
        end += 1;
    }
    [&text[..start], added, &text[end..]].concat()
}

proptest! {
    /// What is valid is served as it is written. What is not lets no call in that was not let in before: neither by an
    /// edit, nor after a restart, nor when nothing is known.
    #[test]
    fn an_edit_that_breaks_something_opens_nothing(
        document in any::<prop::sample::Index>(),
        place in any::<usize>(),
        removed in 0_usize..12,
        added in "[a-z:{}\\[\\] \n,]{0,6}",
    ) {
        let mut documents = documents();
        let before = documents.join("---\n");
        // Within one object: what is valid in another may open something.
        let one = document.get_mut(&mut documents);
        *one = edited(one, (place, removed, &added));
        let after = documents.join("---\n");
        let mut served = Served::new();
        let allowed_before = allowed(served.read(&[("a.yaml", &before)]));
        let (strict, _) = load_text(Path::new("/mesh/a.yaml"), after.as_bytes());
        served.look(&[("a.yaml", &after)]);
        match (strict, &served.mesh) {
            (Some(strict), Some(mesh)) => prop_assert_eq!(&strict, mesh),
            (Some(_), None) => prop_assert!(false, "a valid folder is served"),
            (None, None) => {}
            (None, Some(mesh)) => {
                let allowed_now = allowed(mesh);
                prop_assert!(
                    allowed_now.is_subset(&allowed_before),
                    "{:?}\n{}\n{:?}", allowed_now.difference(&allowed_before), after, served.report.refused
                );
                let mut again = served.again();
                prop_assert_eq!(allowed(again.read(&[("a.yaml", &after)])), allowed_now);
            }
        }
    }
}
