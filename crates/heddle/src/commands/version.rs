//! `heddle version`.

use heddle_node::exit::{Exit, Failure};
use serde::Deserialize;

/// Print the version, with the commit and the compiler that it was built from, and that of the running heddle
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heddle version
  heddle version --control")]
pub(crate) struct Args {
    #[command(flatten)]
    at: super::At,
}

/// The part of a status that every version has.
#[derive(Deserialize)]
struct RunningVersion {
    version: String,
    pid: u32,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    super::print(&text(&args.at))?;
    Ok(Exit::Ok)
}

/// This program's version, and that of the process that answers, if one does.
pub(super) fn text(at: &super::At) -> String {
    let answer = at.get("/status").ok();
    let running = answer.and_then(|answer| serde_json::from_str::<RunningVersion>(&answer).ok());
    let running = match running {
        Some(RunningVersion { version, pid }) => {
            format!("{} (process {pid})", heddle_model::printable(&version))
        }
        None => "nothing answers".to_owned(),
    };
    format!(
        "heddle {}\ncommit {}\ncompiler {}\nrunning {running}\n",
        env!("CARGO_PKG_VERSION"),
        env!("HEDDLE_COMMIT"),
        env!("HEDDLE_COMPILER")
    )
}
