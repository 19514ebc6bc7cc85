//! The data path from both ends, with scripted clients and endpoints on loopback.

mod failures;
mod http;
mod routes;
mod support;
