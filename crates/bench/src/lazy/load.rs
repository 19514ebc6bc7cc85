//! Namespaces of load: Services whose pods are in the mesh, and do not run.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Services of a namespace, and how many of them carry bytes.
pub(super) const SERVICES: usize = 19;
const BYTES: usize = 4;
/// Pods of a Service.
pub(super) const PODS: usize = 5;
/// Namespaces that there may be, by their addresses.
const MAX: usize = 120;

/// Writes a namespace into the folder of the manifests that a control plane follows. In another `version` each Service has one pod
/// with another address.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write(folder: &Path, namespace: usize, version: usize) -> anyhow::Result<()> {
    anyhow::ensure!(namespace < MAX, "there are at most {MAX} namespaces");
    let mut text = String::new();
    for service in 0..SERVICES {
        put_service(&mut text, namespace, service, version)?;
    }
    // Hidden files are not read as manifests.
    let next = folder.join(".next");
    fs::write(&next, text)?;
    Ok(fs::rename(
        &next,
        folder.join(format!("load-{namespace:03}.yaml")),
    )?)
}

fn put_service(
    text: &mut String,
    namespace: usize,
    service: usize,
    version: usize,
) -> anyhow::Result<()> {
    let [third, fourth] = [1 + namespace, 1 + service];
    let (port, protocol) = match service < SERVICES - BYTES {
        true => (80, "http"),
        false => (9000, "tcp"),
    };
    let (name, namespace) = (format!("s{service}"), format!("load-{namespace:03}"));
    writeln!(
        text,
        "---\n{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {name}, namespace: {namespace}}}}}\n\
         ---\n{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: {namespace}}}, spec: {{clusterIP: \
         10.97.{third}.{fourth}, ipFamilies: [IPv4], selector: {{app: {name}}}, ports: [{{port: {port}, appProtocol: {protocol}}}]}}}}"
    )?;
    for pod in 0..PODS {
        // Of each Service, the first pod is the one that changes.
        let moved = if pod == 0 { version % 2 * 100 } else { 0 };
        let last = 1 + service * PODS + pod + moved;
        writeln!(
            text,
            "---\n{{apiVersion: heddle.dev/v1alpha1, kind: LocalWorkload, metadata: {{name: {name}-{pod}, namespace: {namespace}, \
             labels: {{app: {name}}}, annotations: {{heddle.dev/proxy: envoy}}}}, spec: {{address: 10.130.{third}.{last}, \
             nodeName: elsewhere, serviceAccountName: {name}}}}}"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_of_load_is_what_a_control_plane_takes() {
        let folder = tempfile::tempdir().expect("a folder");
        for version in [0, 1] {
            write(folder.path(), 104, version).expect("written");
            let options = heddle_compile::Options {
                placement: heddle_compile::Placement::ByNode,
                ..heddle_compile::Options::default()
            };
            let (mesh, report) = heddle_compile::load_with(folder.path(), &options);
            let mesh = mesh.unwrap_or_else(|| panic!("{:?}", report.problems));
            assert_eq!(mesh.services.len(), SERVICES);
            let endpoints = mesh.services.iter().flat_map(|service| service.endpoints());
            assert_eq!(
                endpoints.filter(|one| one.has_envoy).count(),
                SERVICES * PODS
            );
        }
    }
}
