//! The bookstore's page.

use anyhow::{Context, bail};
use serde::Deserialize;

#[cfg(test)]
mod tests;

/// Versions of the reviews on a page.
pub(super) const VERSIONS: [&str; 2] = ["v1", "v2"];

/// The part of a page that the demo reads.
#[derive(Deserialize)]
pub(super) struct Page {
    reviews: Reviews,
}

#[derive(Deserialize)]
struct Reviews {
    version: String,
}

impl Page {
    /// The version of the reviews on a page.
    ///
    /// # Errors
    /// The body is not such a page.
    pub(super) fn read(body: &[u8]) -> anyhow::Result<String> {
        let page: Page =
            serde_json::from_slice(body).context("the page is not what it should be")?;
        let version = page.reviews.version;
        match VERSIONS.contains(&version.as_str()) {
            true => Ok(version),
            false => bail!("the page has reviews of an unknown version"),
        }
    }
}
