//! The readers' stars.

use std::collections::BTreeMap;

use axum::extract::Path;
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

/// The stars of one book, one to five from each reader.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Ratings {
    pub(crate) id: u32,
    pub(crate) stars: BTreeMap<String, u8>,
}

/// The service: `GET /ratings/{id}`.
pub(crate) fn router() -> Router {
    Router::new().route("/ratings/{id}", get(ratings))
}

async fn ratings(Path(id): Path<u32>) -> Json<Ratings> {
    Json(Ratings {
        id,
        stars: BTreeMap::from([("Robin".to_owned(), 5), ("Kim".to_owned(), 4)]),
    })
}
