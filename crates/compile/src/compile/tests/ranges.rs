//! Addresses outside of the mesh's ranges.

use crate::{Options, load_with};

#[test]
fn an_address_outside_of_the_ranges_is_refused_wherever_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let ranges = ["10.96.0.0/16", "10.244.0.0/16", "fd00::/8"];
    let options = Options {
        address_ranges: ranges.map(|range| range.parse().unwrap()).to_vec(),
        ..Options::default()
    };
    let load = |cluster: &str, workload: &str, more: &str, endpoint: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: s}}\nspec: {{clusterIP: {cluster}, ports: [{{port: 80}}]}}\n---\n\
             apiVersion: heddle.dev/v1alpha1\nkind: LocalWorkload\nmetadata: {{name: w}}\n\
             spec: {{address: {workload}, addresses: [\"{more}\"], ports: [{{port: 8080}}]}}\n---\n\
             apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: e, labels: {{kubernetes.io/service-name: s}}}}\naddressType: IPv4\n\
             endpoints: [{{addresses: [{endpoint}]}}]\nports: [{{port: 8080}}]\n"
        );
        std::fs::write(dir.path().join("a.yaml"), text).unwrap();
        let (mesh, report) = load_with(dir.path(), &options);
        let said = report.problems.iter();
        let said = said.map(|one| (one.field.clone(), one.reason.clone()));
        (mesh, said.collect::<Vec<_>>())
    };
    let right = ["10.96.0.1", "10.244.0.7", "fd00::7", "10.244.0.8"];
    let (mesh, said) = load(right[0], right[1], right[2], right[3]);
    assert_eq!(said, []);
    assert_eq!(mesh.unwrap().address_ranges, options.address_ranges);
    let fields = [
        "spec.clusterIP",
        "spec.address",
        "spec.addresses[0]",
        "endpoints[0].addresses[0]",
    ];
    let wrong = ["10.97.0.1", "192.0.2.7", "fe80::7", "192.0.2.8"];
    for (at, (field, wrong)) in fields.into_iter().zip(wrong).enumerate() {
        let mut all = right;
        all[at] = wrong;
        let (mesh, said) = load(all[0], all[1], all[2], all[3]);
        let named = ranges.join(", ");
        let reason = format!("{wrong} is in none of the mesh's address ranges ({named})");
        assert_eq!(said, [(field.to_owned(), reason)]);
        assert!(mesh.is_none());
    }
}
