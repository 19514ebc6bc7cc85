//! The four services, each on a port of its own, called as a visitor calls them.

use axum::Router;
use axum::http::HeaderMap;
use tokio::net::TcpListener;

use super::{Backends, Product, page, router};
use crate::client::Client;
use crate::reviews::Version;
use crate::{details, ratings, reviews};

/// Serves on a free port until the test ends, and gives a client for it.
async fn serve(name: &'static str, service: Router) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, service).await });
    Client::new(name, address.to_string())
}

/// A bookstore with `version` of the reviews.
async fn bookstore(version: Version) -> Client {
    let ratings = match version {
        Version::V1 => None,
        Version::V2 => Some(serve("ratings", ratings::router()).await),
    };
    let backends = Backends {
        details: serve("details", details::router()).await,
        reviews: serve("reviews", reviews::router(ratings)).await,
    };
    serve("productpage", router(backends)).await
}

async fn product(version: Version) -> Product {
    bookstore(version)
        .await
        .get("/products/1", &HeaderMap::new())
        .await
        .unwrap()
}

#[tokio::test]
async fn version_1_shows_texts_and_no_stars() {
    let product = product(Version::V1).await;
    assert_eq!(product.details.title, "The Silence of the Loom");
    assert_eq!(product.reviews.version, Version::V1);
    assert!(
        product
            .reviews
            .reviews
            .iter()
            .all(|review| review.stars.is_none())
    );
}

#[tokio::test]
async fn version_2_shows_the_stars_of_each_reader() {
    let product = product(Version::V2).await;
    assert_eq!(product.reviews.version, Version::V2);
    let stars: Vec<_> = product
        .reviews
        .reviews
        .iter()
        .map(|review| review.stars)
        .collect();
    assert_eq!(stars, [Some(5), Some(4)]);
    assert!(page::render(&product).contains("★★★★★"));
}

#[tokio::test]
async fn a_book_that_is_not_there_is_not_found() {
    let bookstore = bookstore(Version::V1).await;
    let error = bookstore
        .get::<Product>("/products/99", &HeaderMap::new())
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "productpage: no /products/99");
}

#[tokio::test]
async fn a_failing_service_fails_the_page() {
    let absent = Client::new("reviews", "127.0.0.1:0".to_owned());
    let backends = Backends {
        details: serve("details", details::router()).await,
        reviews: absent,
    };
    let bookstore = serve("productpage", router(backends)).await;
    let error = bookstore
        .get::<Product>("/products/1", &HeaderMap::new())
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "productpage: answered 502 Bad Gateway");
}
