//! Tables on a terminal.

use crate::status::{ListenerKind, ListenerStatus};

/// Rows under a head, columns aligned, two spaces between them.
pub(crate) fn render<const N: usize>(
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let rows: Vec<[String; N]> = [head.map(str::to_owned)].into_iter().chain(rows).collect();
    let widths: [usize; N] = std::array::from_fn(|column| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    });
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Name → address: everybody's first, then each caller's own.
pub(crate) fn listeners(all: &[ListenerStatus]) -> String {
    let mut all: Vec<&ListenerStatus> = all.iter().collect();
    all.sort_by(|a, b| (&a.caller, &a.service, a.port).cmp(&(&b.caller, &b.service, b.port)));
    let rows = all.into_iter().map(|listener| {
        let what = match listener.kind {
            ListenerKind::Service => {
                let service = listener.service.as_deref().unwrap_or_default();
                format!("{service}:{}", listener.port)
            }
            ListenerKind::ForwardProxy => "every service, as http_proxy".to_owned(),
        };
        let caller = listener.caller.as_deref().unwrap_or("anybody").to_owned();
        [what, caller, listener.address.to_string()]
    });
    render(["SERVICE", "CALLER", "ADDRESS"], rows)
}

#[cfg(test)]
mod tests {
    use super::render;

    #[test]
    fn columns_are_aligned_and_lines_end_with_text() {
        let rows = [["a", "bbb"], ["cccc", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(render(["X", "Y"], rows), "X     Y\na     bbb\ncccc\n");
    }
}
