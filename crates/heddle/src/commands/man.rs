//! `heddle man`.

use std::path::PathBuf;

use anyhow::Context;
use heddle_node::exit::{Exit, Failure};

use crate::cli;

/// Write the manual pages into a folder
///
/// One page for heddle and one for each command: heddle.1, heddle-status.1 and so on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo heddle man /usr/local/share/man/man1
  heddle man . && man ./heddle-explain.1")]
pub(crate) struct Args {
    /// The folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let dir = &args.dir;
    clap_mangen::generate_to(cli::command(), dir)
        .with_context(|| format!("cannot write manual pages to {}", dir.display()))?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page() {
        let dir = tempfile::tempdir().expect("a folder");
        let dir = dir.path().to_owned();
        run(&Args { dir: dir.clone() }).expect("written");
        for command in cli::command()
            .get_subcommands()
            .filter(|c| !c.is_hide_set())
        {
            let page = dir.join(format!("heddle-{}.1", command.get_name()));
            let text = std::fs::read_to_string(&page).expect("a page");
            assert!(text.contains(".TH heddle-"), "{}", page.display());
        }
        let missing = run(&Args {
            dir: dir.join("missing"),
        });
        let said = missing.expect_err("no folder").to_string();
        assert!(said.contains("cannot write manual pages to"), "{said}");
    }
}
