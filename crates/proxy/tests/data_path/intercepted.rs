//! Connections that were steered here on their way to somewhere else.

mod arriving;
mod bed;
mod draining;
mod nodes;
mod outbound;
mod pods;
mod seen;
mod shares;
