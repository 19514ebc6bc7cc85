//! The page that a visitor sees: a book's details beside its reviews.

mod page;
#[cfg(test)]
mod tests;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use crate::client::{BackendError, Client};
use crate::details::Details;
use crate::reviews::Reviews;

/// The services behind a page.
#[derive(Clone)]
pub(crate) struct Backends {
    pub(crate) details: Client,
    pub(crate) reviews: Client,
}

/// The data on one book's page.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Product {
    pub(crate) details: Details,
    pub(crate) reviews: Reviews,
}

/// The service: `GET /products/{id}`, as HTML, or as JSON for clients that accept only JSON.
pub(crate) fn router(backends: Backends) -> Router {
    Router::new()
        .route("/", get(|| async { Redirect::to("/products/1") }))
        .route("/products/{id}", get(product))
        .with_state(backends)
}

async fn product(
    State(backends): State<Backends>,
    Path(id): Path<u32>,
    head: HeaderMap,
) -> Result<Response, BackendError> {
    let (details_path, reviews_path) = (format!("/details/{id}"), format!("/reviews/{id}"));
    let (details, reviews) = tokio::try_join!(
        backends.details.get(&details_path, &head),
        backends.reviews.get(&reviews_path, &head),
    )?;
    let product = Product { details, reviews };
    let wants_json = head
        .get(header::ACCEPT)
        .is_some_and(|value| value == "application/json");
    Ok(if wants_json {
        Json(product).into_response()
    } else {
        Html(page::render(&product)).into_response()
    })
}
