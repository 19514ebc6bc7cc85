//! Tests of the data path with scripted clients and endpoints on loopback.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod accounted;
mod balancing;
mod blame;
mod callers;
mod changes;
mod choosing;
mod classes;
mod corpus;
mod dialled;
mod ejecting;
mod elastic;
mod failures;
mod framing;
mod http;
mod intercepted;
mod nodes;
mod opaque;
mod policy;
mod room;
mod routes;
mod spellings;
mod stale;
mod support;
mod tries;
mod turns;
mod upgrade;
mod waits;
mod websocket;
