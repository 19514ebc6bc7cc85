//! Tables on a terminal.

use heddle_model::printable;
use unicode_width::UnicodeWidthStr as _;

use crate::status::{ListenerKind, ListenerStatus};

/// Most listeners that are listed in full when a process starts.
const MAX_FIRST: usize = 40;

/// Formats rows under a header line, with aligned columns and two spaces between them.
pub fn render<const N: usize>(
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let rows: Vec<[String; N]> = [head.map(str::to_owned)]
        .into_iter()
        .chain(rows)
        .map(|row| row.map(|cell| printable(&cell).into_owned()))
        .collect();
    let widths: [usize; N] = std::array::from_fn(|column| {
        rows.iter()
            .map(|row| row[column].width())
            .max()
            .unwrap_or(0)
    });
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // `format!` pads by characters, but some are two columns wide and some none.
            line.push_str(cell);
            line.push_str(&" ".repeat(width - cell.width() + 2));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// `1 error`, `2 errors`.
pub fn count(number: impl TryInto<u64>, what: &str) -> String {
    match number.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

/// Table of listeners: those for all callers first, then each caller's own.
pub fn listeners(all: &[ListenerStatus]) -> String {
    let mut all: Vec<&ListenerStatus> = all.iter().collect();
    all.sort_by_key(|l| (&l.caller, &l.service, l.port));
    let rows = all.into_iter().map(|listener| {
        let what = match &listener.service {
            Some(service) => format!("{service}:{}", listener.port),
            None => "every HTTP service, as http_proxy".to_owned(),
        };
        let caller = listener
            .caller
            .as_deref()
            .unwrap_or("unidentified")
            .to_owned();
        let speaks = match listener.protocol.as_str() {
            "undeclared" => "found out",
            declared => declared,
        };
        [
            what,
            speaks.to_owned(),
            caller,
            listener.address.to_string(),
        ]
    });
    render(["SERVICE", "SPEAKS", "CALLER", "ADDRESS"], rows)
}

/// Like [`listeners`], for the start of a process: of more than `MAX_FIRST` listeners, only those that reach
/// everything.
pub fn first_listeners(all: &[ListenerStatus]) -> String {
    if all.len() <= MAX_FIRST {
        return listeners(all);
    }
    let is_shown = |l: &&ListenerStatus| l.caller.is_none() || l.kind == ListenerKind::ForwardProxy;
    let shown: Vec<ListenerStatus> = all.iter().filter(is_shown).cloned().collect();
    let hidden = all.len() - shown.len();
    listeners(&shown) + &format!("and {hidden} addresses of single callers: heddle status\n")
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::{MAX_FIRST, first_listeners, listeners, render};
    use crate::status::{ListenerKind, ListenerStatus};

    fn listener(service: Option<&str>, caller: Option<&str>, protocol: &str) -> ListenerStatus {
        ListenerStatus {
            service: service.map(str::to_owned),
            port: 80,
            caller: caller.map(str::to_owned),
            kind: if service.is_some() {
                ListenerKind::Service
            } else {
                ListenerKind::ForwardProxy
            },
            protocol: protocol.to_owned(),
            address: SocketAddr::from(([127, 64, 0, 1], 80)),
        }
    }

    #[test]
    fn columns_are_aligned_and_lines_end_with_text() {
        let rows = [["a", "bbb"], ["cccc", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(render(["X", "Y"], rows), "X     Y\na     bbb\ncccc\n");
        assert_eq!(
            render(["X"], [["a\n\u{1b}".to_owned()]]),
            "X\na\\n\\u{1b}\n"
        );
        // Each character is two columns wide; the separate accent is zero columns wide.
        let rows = [["書店", "b"], ["e\u{301}", "b"]].map(|row| row.map(str::to_owned));
        assert_eq!(
            render(["X", "Y"], rows),
            "X     Y\n書店  b\ne\u{301}     b\n"
        );
    }

    #[test]
    fn what_a_port_speaks_is_shown() {
        let all = [
            listener(Some("a/db"), None, "tcp"),
            listener(Some("a/any"), None, "undeclared"),
            listener(None, Some("a/w"), "http"),
        ];
        assert_eq!(
            listeners(&all),
            "SERVICE                            SPEAKS     CALLER        ADDRESS\n\
             a/any:80                           found out  unidentified  127.64.0.1:80\n\
             a/db:80                            tcp        unidentified  127.64.0.1:80\n\
             every HTTP service, as http_proxy  http       a/w           127.64.0.1:80\n"
        );
    }

    #[test]
    fn of_many_listeners_those_that_reach_everything_are_shown_first() {
        let listener = |service, caller| listener(service, caller, "http");
        let mut all = vec![listener(Some("a/b"), None), listener(None, Some("a/w"))];
        all.resize(MAX_FIRST, listener(Some("a/b"), Some("a/w")));
        assert_eq!(first_listeners(&all).lines().count(), 1 + MAX_FIRST);
        all.push(listener(Some("a/b"), Some("a/w")));
        let shown = first_listeners(&all);
        assert_eq!(shown.lines().count(), 1 + 2 + 1);
        assert!(
            shown.ends_with("and 39 addresses of single callers: heddle status\n"),
            "{shown}"
        );
    }
}
