//! For any manifest: reading ends with a mesh that fulfils its invariants or with an error, gives the same result
//! again, and names only lines that exist.

use std::path::Path;

use heddle_compile::load_text;
use heddle_model::report::Severity;

/// Checks one input.
pub fn check(data: &[u8]) {
    let file = Path::new("/mesh/manifest.yaml");
    let (mesh, report) = load_text(file, data);
    let errors = report
        .problems
        .iter()
        .filter(|p| p.severity == Severity::Error)
        .count();
    assert!(errors <= report.errors() && report.errors() <= errors + report.omitted);
    assert_eq!(mesh.is_none(), report.has_errors());
    if let Some(mesh) = &mesh {
        assert_eq!(mesh.check_invariants(), Ok(()));
    }
    let lines = data
        .iter()
        .filter(|&&byte| byte == b'\n' || byte == b'\r')
        .count()
        + 1;
    for problem in &report.problems {
        assert!(!problem.reason.is_empty());
        if let Some(line) = problem.origin.line() {
            assert!(
                (1..=lines).contains(&(line as usize)),
                "{problem}: {lines} lines"
            );
        }
    }
    let (again, same) = load_text(file, data);
    assert!(mesh == again && report == same);
}
