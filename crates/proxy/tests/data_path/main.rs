//! The data path from both ends, with scripted clients and endpoints on loopback.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod balancing;
mod blame;
mod changes;
mod choosing;
mod corpus;
mod elastic;
mod failures;
mod http;
mod intercepted;
mod nodes;
mod opaque;
mod policy;
mod routes;
mod support;
mod upgrade;
mod waits;
mod websocket;
