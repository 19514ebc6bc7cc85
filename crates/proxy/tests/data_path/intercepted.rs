//! Connections that interception redirected to the proxy.

mod arriving;
mod asking;
mod bed;
mod draining;
mod nodes;
mod outbound;
mod pods;
mod seen;
mod shares;
