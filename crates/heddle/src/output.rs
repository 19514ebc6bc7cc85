//! Output formats of commands.

use anyhow::Context;
use clap::ValueEnum;
use heddle_node::exit::Failure;
use serde::Serialize;

/// How a command prints its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people
    Text,
    /// For people, with all there is: `status` sums up nothing, `pods` has more columns
    Wide,
    /// For programs: fields are only ever added
    Json,
    /// The same as YAML
    Yaml,
}

impl OutputFormat {
    /// Writes a result in this format; `text` writes it for people.
    ///
    /// # Errors
    /// When the result has no form as text, which only a mistake in this program causes.
    pub(crate) fn written<T: Serialize>(
        self,
        result: &T,
        text: impl FnOnce() -> String,
    ) -> Result<String, Failure> {
        Ok(match self {
            OutputFormat::Text | OutputFormat::Wide => text(),
            OutputFormat::Json => {
                let json = serde_json::to_string_pretty(result);
                json.context("the answer has no JSON")? + "\n"
            }
            OutputFormat::Yaml => {
                serde_saphyr::to_string(result).context("the answer has no YAML")?
            }
        })
    }
}
