//! The page as HTML.

use std::fmt::{self, Write};

use super::Product;
use crate::reviews::Version;

/// Writes the page of one book.
pub(super) fn render(product: &Product) -> String {
    let mut page = String::with_capacity(1024);
    // Writing to a string cannot fail.
    let _ = write_page(&mut page, product);
    page
}

fn write_page(page: &mut String, product: &Product) -> fmt::Result {
    let Product { details, reviews } = product;
    let title = escape(&details.title);
    let version = match reviews.version {
        Version::V1 => "v1",
        Version::V2 => "v2",
    };
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<title>{title}</title>\n\
         <h1>{title}</h1>\n<p>{}, {}</p>\n<h2>What readers say (reviews {version})</h2>\n",
        escape(&details.author),
        details.year,
    )?;
    for review in &reviews.reviews {
        let stars = "★".repeat(usize::from(review.stars.unwrap_or(0)));
        writeln!(
            page,
            "<blockquote>{}<footer>{} {stars}</footer></blockquote>",
            escape(&review.text),
            escape(&review.reader),
        )?;
    }
    page.write_str("</html>\n")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
