//! `heddle version`.

use heddle_node::exit::{Exit, Failure};

pub(crate) fn run() -> Result<Exit, Failure> {
    super::print(&format!(
        "heddle {}\ncommit {}\ncompiler {}\n",
        env!("CARGO_PKG_VERSION"),
        env!("HEDDLE_COMMIT"),
        env!("HEDDLE_COMPILER")
    ))?;
    Ok(Exit::Ok)
}
