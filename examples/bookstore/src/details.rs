//! Author and year of each book.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

/// The details of a book.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Details {
    pub(crate) id: u32,
    pub(crate) title: String,
    pub(crate) author: String,
    pub(crate) year: u16,
}

/// Title, author and year; a book's id is its position here, from 1.
const BOOKS: [(&str, &str, u16); 5] = [
    ("The Silence of the Loom", "Ada Weaver", 1987),
    ("A Shuttle Through Time", "Tomas Reed", 1994),
    ("Warp and Consequence", "Mina Harlow", 2003),
    ("Of Threads and Threats", "Oskar Lind", 2011),
    ("The Last Selvedge", "Ines Cardoso", 2019),
];

/// The service: `GET /details/{id}`.
pub(crate) fn router() -> Router {
    Router::new().route("/details/{id}", get(details))
}

async fn details(Path(id): Path<u32>) -> Result<Json<Details>, StatusCode> {
    find(id).map(Json).ok_or(StatusCode::NOT_FOUND)
}

fn find(id: u32) -> Option<Details> {
    let index = usize::try_from(id.checked_sub(1)?).ok()?;
    let (title, author, year) = *BOOKS.get(index)?;
    Some(Details {
        id,
        title: title.to_owned(),
        author: author.to_owned(),
        year,
    })
}
