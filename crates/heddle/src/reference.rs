//! `docs/commands.md`: the help of every command, generated from the command line itself.

use std::fmt::Write;

use clap::Command;

use crate::cli;

const PAGE: &str = include_str!("../../../docs/commands.md");
const BEGINS: &str = "<!-- generated from the command line, not by hand -->\n";
/// Columns of a terminal that shows the whole page.
const WIDTH: usize = 100;

/// The page as it should be: what stands before the mark, then every command.
fn page() -> String {
    let (before, _) = PAGE.split_once(BEGINS).expect("the mark");
    let mut page = format!("{before}{BEGINS}");
    let mut heddle = cli::command().term_width(WIDTH);
    heddle.build();
    add(&mut page, &heddle, "heddle");
    page
}

fn add(page: &mut String, command: &Command, name: &str) {
    let help = command.clone().render_long_help().to_string();
    let lines = help.lines().map(str::trim_end);
    let help = lines.collect::<Vec<_>>().join("\n");
    write!(page, "\n## {name}\n```text\n{}\n```\n", help.trim_end()).expect("a string");
    let commands = command.get_subcommands();
    let shown = commands.filter(|command| !command.is_hide_set() && command.get_name() != "help");
    for command in shown {
        add(page, command, &format!("{name} {}", command.get_name()));
    }
}

#[test]
fn the_page_of_commands_is_the_help_of_now() {
    let wanted = page();
    let different = wanted.lines().zip(PAGE.lines());
    let different = different.filter(|(wanted, there)| wanted != there);
    assert!(
        wanted == PAGE,
        "docs/commands.md is not the help of now, from {:?} on: cargo test -p heddle the_page_of_commands_is_written -- --ignored",
        different.map(|(wanted, _)| wanted).next()
    );
}

/// Writes the page anew: `cargo test -p heddle the_page_of_commands_is_written -- --ignored`.
#[test]
#[ignore = "writes docs/commands.md"]
fn the_page_of_commands_is_written() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
    std::fs::write(path, page()).expect("written");
}
