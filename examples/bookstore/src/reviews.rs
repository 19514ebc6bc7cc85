//! The readers' reviews. There are two versions: the second adds stars, which it gets from `ratings`.

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::routing::get;
use axum::{Json, Router};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::client::{BackendError, Client};
use crate::ratings::Ratings;

/// The version of the service.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Version {
    /// Texts only.
    V1,
    /// Texts and stars.
    V2,
}

/// The reviews of one book.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Reviews {
    pub(crate) id: u32,
    pub(crate) version: Version,
    pub(crate) reviews: Vec<Review>,
}

/// One reader's review.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Review {
    pub(crate) reader: String,
    pub(crate) text: String,
    /// One to five; only in version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stars: Option<u8>,
}

/// Reader and text.
const TEXTS: [(&str, &str); 2] = [
    (
        "Robin",
        "I could not put it down, and neither could the cat.",
    ),
    ("Kim", "Every thread of it is picked up in the end."),
];

/// The service: `GET /reviews/{id}`. It is version 2 if it has a client of `ratings`.
pub(crate) fn router(ratings: Option<Client>) -> Router {
    Router::new()
        .route("/reviews/{id}", get(reviews))
        .with_state(ratings)
}

async fn reviews(
    State(ratings): State<Option<Client>>,
    Path(id): Path<u32>,
    head: HeaderMap,
) -> Result<Json<Reviews>, BackendError> {
    let (version, ratings) = match ratings {
        None => (Version::V1, None),
        Some(ratings) => {
            let ratings: Ratings = ratings.get(&format!("/ratings/{id}"), &head).await?;
            (Version::V2, Some(ratings))
        }
    };
    let stars = |reader| {
        ratings
            .as_ref()
            .and_then(|ratings| ratings.stars.get(reader).copied())
    };
    let reviews = TEXTS
        .iter()
        .map(|&(reader, text)| Review {
            reader: reader.to_owned(),
            text: text.to_owned(),
            stars: stars(reader),
        })
        .collect();
    Ok(Json(Reviews {
        id,
        version,
        reviews,
    }))
}
