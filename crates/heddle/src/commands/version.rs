//! `heddle version`.

use heddle_node::exit::{Exit, Failure};

pub(crate) fn run() -> Result<Exit, Failure> {
    super::print(&format!("heddle {}\n", env!("CARGO_PKG_VERSION")))?;
    Ok(Exit::Ok)
}
