//! Colours of the words that a result turns on. `commands::print` removes them where standard output is no terminal or
//! `NO_COLOR` is set (<https://no-color.org>).

use std::fmt::Display;

use anstyle::{AnsiColor, Style};

/// What is as it should be.
pub(crate) fn good(text: impl Display) -> String {
    painted(AnsiColor::Green.on_default(), text)
}

/// What an operator should look at.
pub(crate) fn attention(text: impl Display) -> String {
    painted(AnsiColor::Yellow.on_default(), text)
}

/// What is wrong.
pub(crate) fn bad(text: impl Display) -> String {
    painted(AnsiColor::Red.on_default().bold(), text)
}

fn painted(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn colours_end_with_their_text() {
        assert_eq!(super::good("ready"), "\u{1b}[32mready\u{1b}[0m");
    }
}
